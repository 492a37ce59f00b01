"""What a failed call means: its reason, whether it is tried again, and after how long."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from providers.errors import RedirectRefusedError, classify, retry_after


def row(status: int, message: str, **marks: object) -> dict[str, Any]:
    return {"status": status, "message": message, **marks}


OVERFLOWS = [
    row(400, "maximum context length is 8000 tokens", code="context_length_exceeded"),
    row(400, "Input length (9001) exceeds model's maximum context length (8000).", code=None),
    row(400, "Input length 9001 exceeds the maximum allowed input length of 8000 tokens", code="400"),
    row(400, "input (9001 tokens) is longer than the model's context length (8000 tokens)", code=400),
    row(400, "request exceeded model token limit: 8000 (requested: 9001)", code=None),
    row(400, "Prompt 超长", code="1261"),
    row(400, "exceeds the available context size", type="exceed_context_size_error"),
    row(413, "", code=None),
    row(503, "wrapped: OpenAIException - exceeds the model's maximum context length of 8000 tokens", code=None),
    row(400, "requested 8100 tokens (5000 in the messages, 3100 in the completion)", code=None),
    row(400, "The input token count (9001) exceeds the maximum number of tokens allowed (8000).", code=None),
    row(400, "prompt is too long: 9001 tokens > 8000 maximum", code=None),
    row(400, "tokens in request more than max tokens allowed"),
    row(400, "<400> InvalidParameter: Range of input length should be [1, 8000]", type="invalid_parameter_error"),
    row(400, "Input length 9001 exceeds the maximum length 8000", code="InvalidParameter"),
    row(400, "Total tokens of image and text exceed max message tokens."),
    row(400, "Trying to keep the first 9001 tokens when context the overflows."),
    row(422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8000. Given: 9001"),
    row(422, "Input validation error: `inputs` must have less than 8000 tokens. Given: 9001"),
    row(400, "This model's maximum prompt length is 8000 but the request contains 9001 tokens."),
    row(400, "prompt token count of 9001 exceeds the limit of 8000"),
    row(400, "The prompt is too large for this model"),
    row(500, "Error code: 400 - {'error': {'code': 'context_length_exceeded'}}"),
    row(400, "输入长度超出模型最大上下文"),
    row(400, "invalid params, context window exceeds limit (2013)"),
    row(400, "too many tokens: total number of tokens in the prompt cannot exceed 8000 - received 9001."),
    row(400, "The sum of prompt length (9001.0), query length (0) should not exceed max_num_tokens (8000)"),
    row(400, "The total number of tokens (9001) exceeds the model's limit (8000)"),
    row(400, "length of prompt_tokens (9001) must be less than max_seq_len (8000)"),
    row(400, "Input Tokens Exceeded: number of input tokens exceeds maximum length"),
    row(400, "Context size has been exceeded."),
    row(400, "Reached context length of 8000 tokens with model, but it does not support mid-generation overflow."),
    row(400, "the input length is too long"),
    row(400, "Input data may exceed max input tokens"),
]
OTHER_LIMITS = [
    "max_tokens is too large: 9001. This model supports at most 4096 completion tokens",
    "The value of max_tokens exceeds the limit of 8192",
    "Invalid 'messages[0].content': string too long. Expected a string with maximum length 1048576",
    "Invalid 'tools[3].function.name': string too long. Expected a string with maximum length 64, but got 70",
    "Array 'tools' too long. Expected maximum length 128, but got 140",
    "max_completion_tokens cannot exceed 8192",
    "The input image exceeds the maximum file size of 20 MB",
    "The number of tools must be less than 128",
    "The number of images in the prompt must not exceed 10",
]
RETRIED = [
    row(429, "Too many tokens, please wait before trying again"),
    row(429, "Limit 8000 tokens per min, requested 9001", code="rate_limit_exceeded"),
    row(429, "You exceeded your current quota", type="RESOURCE_EXHAUSTED"),
    row(429, "API key limit exceeded: 60 requests per minute"),
    row(429, "This request would exceed your organization's rate limit of 30,000 input tokens per minute"),
    row(500, "model runner crashed"),
    row(408, "x"),
    row(409, "x"),
    row(529, "overloaded"),
]
FINAL = [
    (row(400, "max_tokens must be at most 4096"), "model_rejected"),
    (row(402, "Insufficient Balance"), "model_quota"),
    (row(400, "Insufficient Balance", type="unknown_error", code="invalid_request_error"), "model_quota"),
    (row(429, "You exceeded your current quota", code="insufficient_quota"), "model_quota"),
    (row(429, "You've reached your usage limit for this billing cycle."), "model_quota"),
    (row(403, "You've reached your monthly usage limit"), "model_quota"),
    (row(400, "You have reached your specified API usage limits."), "model_quota"),
    (row(403, "Key limit exceeded"), "model_quota"),
    (row(403, "You have run out of credits"), "model_quota"),
    (row(429, "Your account is suspended", type="exceeded_current_quota_error"), "model_quota"),
    (row(500, "insufficient balance (1008)", type="api_error"), "model_quota"),
    (row(403, "Too many requests, slow down"), "model_rate_limited"),
    (row(400, "x", code="rate_limit_exceeded"), "model_rate_limited"),
    (row(400, "API key not valid. Please pass a valid API key."), "model_auth"),
    (row(400, "The request was rejected because it was considered high risk"), "content_filtered"),
    (row(400, "Content Exists Risk"), "content_filtered"),
    (row(400, "x", code="content_filter"), "content_filtered"),
    (row(401, "bad key"), "model_auth"),
    (row(403, "not yours"), "model_auth"),
    (row(400, "x", code="invalid_api_key"), "model_auth"),
    (row(404, "model not found"), "model_not_found"),
    (row(404, ""), "model_not_found"),
    (row(410, "gone"), "model_not_found"),
    (row(400, "Model Not Exist", type="invalid_request_error"), "model_not_found"),
    (row(400, "The model `m` has been decommissioned", code="model_decommissioned"), "model_not_found"),
    (row(422, "model 'm' does not exist"), "model_not_found"),
    (row(400, "the tool in your model request was not found"), "model_rejected"),
    (row(405, "method not allowed"), "model_no_api"),
    (row(422, "x"), "model_rejected"),
]


def wrapped(complaint: dict[str, Any]) -> list[bytes]:
    """The same complaint in the shapes that bodies have."""
    about = {key: value for key, value in complaint.items() if key != "status"}
    shapes: list[object] = [{"error": about}, about, [{"error": about}], {"object": "error", **about}]
    return [json.dumps(shape, ensure_ascii=False).encode() for shape in shapes]


@pytest.mark.parametrize("complaint", OVERFLOWS, ids=lambda complaint: str(complaint["message"])[:30])
def test_every_wording_of_a_full_window_is_understood(complaint: dict[str, Any]) -> None:
    """Case 035, SPEC B7."""
    for body in wrapped(complaint):
        error = classify(complaint["status"], {}, body)
        assert (error.reason, error.retryable) == ("context_length", False)


@pytest.mark.parametrize("message", OTHER_LIMITS)
def test_another_limit_than_the_window_is_not_taken_for_it(message: str) -> None:
    """Case 035, SPEC B7: no compaction mends those."""
    assert classify(400, {}, json.dumps({"error": {"message": message}}).encode()).reason == "model_rejected"


@pytest.mark.parametrize("as_text", [True, False])
def test_a_gateway_passes_on_what_it_was_answered(as_text: bool) -> None:
    """SPEC B7, L2: its own words say less than the answer they wrap."""
    raw = {"error": {"message": "no", "code": "context_length_exceeded"}}
    metadata = {"raw": json.dumps(raw) if as_text else raw}
    body = json.dumps({"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}}).encode()
    assert classify(400, {}, body).reason == "context_length"


@pytest.mark.parametrize("complaint", RETRIED)
def test_throttling_and_breakdowns_are_tried_again(complaint: dict[str, Any]) -> None:
    """Case 035, SPEC L2: also where throttling counts tokens."""
    for body in wrapped(complaint):
        error = classify(complaint["status"], {}, body)
        reason = "model_rate_limited" if complaint["status"] == 429 else "model_unavailable"
        assert (error.reason, error.retryable, error.status) == (reason, True, complaint["status"])


@pytest.mark.parametrize(("complaint", "reason"), FINAL)
def test_what_can_not_clear_has_its_own_reason_and_is_not_tried_again(complaint: dict[str, Any], reason: str) -> None:
    """Case 039, SPEC L2: no balance, refused content, bad key, unknown model."""
    for body in wrapped(complaint):
        error = classify(complaint["status"], {}, body)
        assert (error.reason, error.retryable, error.status) == (reason, False, complaint["status"])


@pytest.mark.parametrize(
    "body", [b"", b"<html>Bad gateway</html>", b"\xff\xfe", b"[]", b"5", b"[" * 100_000, b'{"error": 5}']
)
def test_a_body_of_any_kind_leaves_the_status_to_decide(body: bytes) -> None:
    """SPEC L2."""
    assert classify(502, {}, body).retryable
    assert not classify(400, {}, body).retryable


def test_the_providers_words_are_in_no_error() -> None:
    """SPEC Y6."""
    error = classify(400, {}, b'{"error": {"message": "MARKER", "code": "MARKER"}}')
    assert "MARKER" not in repr(error) + str(error) + str(error.numbers) + str(error.__cause__) + str(error.__context__)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused_by_name_and_not_tried_again(status: int) -> None:
    """Case 107."""
    error = classify(status, {"location": "https://elsewhere.test"}, b"")
    assert isinstance(error, RedirectRefusedError)
    assert (error.reason, error.retryable) == ("model_redirected", False)


@pytest.mark.parametrize("status", [300, 304, 305, 306, 399])
def test_every_other_3xx_is_a_redirect_too(status: int) -> None:
    """SPEC Y4: a provider that does not answer itself never gets another request."""
    assert (classify(status, {}, b"").reason, classify(status, {}, b"").retryable) == ("model_redirected", False)


NOW = datetime(2026, 10, 21, 7, 27, 52, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:02 GMT"}, 10),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:02"}, 10),
        ({"retry-after": "Wed, 21 Oct 2026 07:00:00 GMT"}, None),
        ({"retry-after": "86400"}, 86400),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 99999999999999999999999 07:28:02 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 0001 07:28:02 +2359"}, None),
        ({"retry-after": "9" * 5_000}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "1e300"}, 1e300),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "2"}, 2),
        ({}, None),
    ],
)
def test_the_wish_to_wait_is_read_in_each_form(headers: dict[str, str], seconds: float | None) -> None:
    """Case 037: odd values mean the default back-off, and nothing raises."""
    assert retry_after(headers, now=NOW) == seconds
    assert classify(429, headers, b"", now=NOW).retry_after_s == seconds


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        ({"message": "Rate limit reached. Please try again in 7.66s. Visit x"}, 7.66),
        ({"message": "Rate limit reached. Please try again in 850ms."}, 0.85),
        ({"message": "Rate limit reached. Please try again in 1m2.5s."}, 62.5),
        ({"message": "Please try again in 2h3m."}, 7380),
        ({"message": "Requests have exceeded the rate limit. Please retry after 10 seconds."}, 10),
        ({"message": "Quota exceeded. Please retry in 54.25s."}, 54.25),
        ({"message": "x", "details": [{"violations": []}, {"retryDelay": "54s"}]}, 54),
        ({"message": "x", "details": [{"retryDelay": "soon"}, 5]}, None),
        ({"message": "Too many tokens, please wait before trying again in 2030"}, None),
        ({"message": "try again in " + "9" * 5_000 + "s"}, None),
        ({"message": "try again in 0s"}, None),
    ],
)
def test_a_wish_to_wait_in_the_error_itself_is_read(error: dict[str, Any], seconds: float | None) -> None:
    """SPEC L2: many servers send no header; where there is one, it goes first."""
    body = json.dumps({"error": error}).encode()
    assert classify(429, {}, body).retry_after_s == seconds
    assert classify(429, {"retry-after": "3"}, body).retry_after_s == 3
