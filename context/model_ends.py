"""Why a model gave no usable answer, as end reasons of a Run, and what a person does about each (SPEC S2, L2).

A reason says who has to act: the provider's account, the stored connection, the release, or nobody but time. The
sentences hold no word of the provider and no address (SPEC Y6).
"""

from typing import Literal

ModelEnd = Literal[
    "model_unavailable",
    "model_host_unknown",
    "model_no_api",
    "model_rate_limited",
    "model_auth",
    "model_quota",
    "model_not_found",
    "model_redirected",
    "model_address_refused",
    "model_certificate_untrusted",
    "model_answer_refused",
    "model_connection_unusable",
    "model_rejected",
    "content_filtered",
    "context_length",
]
"""Why a call failed; `context_length` alone is none of the Run's end reasons (SPEC B7)."""

ADVICE = {
    "model_unavailable": "The model could not be reached or kept failing; resume the run later.",
    "model_host_unknown": "The host name in base_url does not resolve from here. If it is misspelt, correct base_url"
    " and publish the agent again; if it is right, mend the name service or the network, then resume the run.",
    "model_no_api": "What stands at base_url is no model API: it answered with a web page or nothing, speaks no HTTP,"
    " or wants https instead of http or the reverse; correct base_url and publish the agent again.",
    "model_rate_limited": "The provider's rate limit holds longer than model.retry waits; resume the run later.",
    "model_auth": "The provider refused the key, or the key may not use this model; put the right key into the stored"
    " connection, then resume the run.",
    "model_quota": "The provider account has no balance or quota left; mend that, then resume the run.",
    "model_not_found": "The provider has no such model at this address; correct model.model or base_url and publish"
    " the agent again.",
    "model_redirected": "The address of the model answers with a redirect, which is never followed, since it could"
    " take the key elsewhere; give the final address as base_url and publish the agent again.",
    "model_address_refused": "The address of the model may not be reached from here, so nothing was sent; correct"
    " base_url and publish the agent again, or allow private addresses (AGENTLOOM_PRIVATE_ADDRESSES) and resume.",
    "model_certificate_untrusted": "The certificate of the model's server is not trusted here, so nothing was sent:"
    " nobody known signed it, it is out of date, or it is for another name. Mend the certificate and resume the run, or"
    " correct base_url and publish the agent again.",
    "model_answer_refused": "The answer of the model was not read: it is larger than allowed, or compressed although"
    " that was not asked for; look at what stands at base_url.",
    "model_connection_unusable": "The stored connection can't be used, so nothing was sent: it is gone, belongs to"
    " another provider or address than this agent was published with, or holds a key that no header can carry; store"
    " it again and resume the run, or publish the agent again.",
    "model_rejected": "The provider refused the request; check model.model and model.parameters and publish the agent"
    " again.",
    "content_filtered": "The provider withheld the answer.",
    "output_cut": "The answer was cut at the output limit; raise model.max_output_tokens.",
}
"""What to do next, by end reason."""

NEEDS_PUBLISHING = frozenset(
    {"model_no_api", "model_not_found", "model_redirected", "model_address_refused", "model_rejected", "output_cut"}
)
"""Ends whose cause is frozen into the release: a resume, which keeps it, would end the same way (SPEC S9)."""
