"""What the guard refuses, as named errors. They carry numbers, never an address, a header or a piece of an answer.

Two tell what the network did more precisely than its library, which they are errors of.
"""

import httpcore

from context.errors import AgentLoomError


class EgressError(AgentLoomError):
    """An outbound call was stopped by the guard, not by the network; the same call would be stopped again."""

    code = "CONFIGURATION_INVALID"
    sentence = "The outbound call was refused."


class AddressRefusedError(EgressError):
    sentence = (
        "The address is not allowed from here: only http and https to public addresses are, "
        "unless private addresses are allowed by the settings."
    )


class AnswerTooLargeError(EgressError):
    code = "TOO_LARGE"
    sentence = "The answer is larger than allowed."


class AnswerEncodedError(EgressError):
    """`status` is the HTTP status of the answer, whose body was not read."""

    sentence = "The answer is compressed although none was asked for; its real size can't be bounded."

    def __init__(self, status: int = 0) -> None:
        super().__init__()
        self.status = status


class NotHttpError(httpcore.RemoteProtocolError):
    """What stands at the address speaks another protocol: no HTTP, or no TLS where it was asked for."""


class HostUnknownError(httpcore.ConnectError):
    """The host name does not resolve, which may be a moment's failure of the name service."""


class CertificateUntrustedError(EgressError):
    sentence = (
        "The server's certificate is not trusted here: nobody known signed it, it is out of date, or it is for another "
        "name. Nothing was sent, and trying again won't help: mend the certificate or the address."
    )


class RedirectRefusedError(EgressError):
    sentence = "The server answered with a redirect, which is never followed: it could take a credential elsewhere."
