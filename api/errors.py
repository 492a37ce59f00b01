"""Domain errors as RFC 9457 problem documents: the only place that knows HTTP status codes.

A problem holds a code of SPEC section 14, sentences of ours and numbers. What the caller sent is never in it (SPEC Y6):
validation errors name the place and the rule, not the value.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api.addresses import ADDRESS, NOT_AN_ADDRESS
from api.admin_schemas import VISIBLE
from api.allowed import fitting_methods
from api.paging import CURSOR, EVENT_ID, INSTANCE
from api.places import meant, place_of
from context import errors
from context.errors import AgentLoomError, InputInvalidError, RateLimitedError, UnavailableError
from context.written import CURRENCY, NAME

LOG = logging.getLogger(__name__)

PROBLEM_MEDIA_TYPE = "application/problem+json"
UNAVAILABLE_RETRY_S = 5
MOST_LISTED = 50  # reasons in one answer

STATUS: Mapping[type[AgentLoomError], int] = {
    errors.RunActiveError: 409,
    errors.RunNotActiveError: 409,
    errors.RunNotResumableError: 409,
    errors.ClientKeyReusedError: 422,
    errors.ClientKeyInFlightError: 409,
    errors.InputInvalidError: 422,
    errors.InputNotPendingError: 409,
    errors.TooLargeError: 413,
    errors.SessionArchivedError: 409,
    errors.ConfigurationInvalidError: 422,
    errors.ModelWindowUnknownError: 422,
    errors.ConfirmationRequiredError: 409,
    errors.UnauthenticatedError: 401,
    errors.ForbiddenError: 403,
    errors.NotFoundError: 404,
    errors.RateLimitedError: 429,
    errors.RevisionConflictError: 409,
    errors.CorruptPayloadError: 500,
    errors.UnknownContentError: 500,
    errors.UnavailableError: 503,
}

CODE_OF_STATUS: Mapping[int, str] = {
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    413: "TOO_LARGE",
    429: "RATE_LIMITED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}

SENTENCE_OF_STATUS: Mapping[int, str] = {
    404: "There is nothing at this address.",
    405: "This address does not take this method.",
    406: "This address answers with JSON or an event stream only.",
    415: "Send the body as application/json, in UTF-8 and not compressed.",
}

# pydantic's own sentences that would quote a piece of the input or say things twice, replaced by ours.
SILENT_REASONS: Mapping[str, str] = {
    "int_parsing": "should be a whole number",
    "float_parsing": "should be a number",
    "bool_parsing": "should be true or false",
    "uuid_parsing": "should be a valid UUID",
    "uuid_type": "should be a valid UUID",
    "url_parsing": "should be a valid URL",
    "model_type": "should be an object",
    "model_attributes_type": "should be an object",
    "dict_type": "should be an object",
    "tuple_type": "should be a list",
    "missing": "is required",
    "json_invalid": "is not valid JSON",
}

# The rules of our own that patterns stand for.
PATTERNS: Mapping[str, str] = {
    NAME: "should have 1 to 64 letters, digits, hyphens and underscores, and begin with a letter or a digit",
    ADDRESS: NOT_AN_ADDRESS,
    CURSOR: "is not one that was given out for this list",
    CURRENCY: "should be three capital letters, such as USD",
    EVENT_ID: "should be the id of an event, a number",
    INSTANCE: "should be `main` or the id of a task",
    VISIBLE: "should have no blanks, no line breaks and no letters of other alphabets",
}

SUBJECT = re.compile(r"^\w+( input)? (?=should )")  # pydantic's words for the value, where ours is its place


class Problem(JSONResponse):
    """A problem document as an answer."""

    media_type = PROBLEM_MEDIA_TYPE


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    title: str | None = None,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Problem:
    """`{type, title, status, detail, code, …more}`; `more` are numbers and ids of the case."""
    document = {"type": f"urn:agentloom:problem:{code.lower()}", "title": title or detail, "status": status}
    return Problem(document | {"detail": detail, "code": code} | more, status, headers)


def domain_problem(error: AgentLoomError) -> Problem:
    """The problem for a domain error; what is in no table is a 500 without any detail."""
    status = STATUS.get(type(error))
    if status is None:
        return internal_problem()
    taken = {"type", "title", "status", "detail", "code"}
    numbers = {name: value for name, value in error.numbers.items() if name not in taken}
    return problem(status, error.code, error.message, title=error.sentence, headers=_headers(error), **numbers)


def invalid_problem(reasons: Sequence[tuple[str, str]], *, code: str = InputInvalidError.code) -> Problem:
    """422 for a request that breaks the schema: each place once, with the rule that it breaks."""
    detail = "; ".join(f"{place} {reason}" for place, reason in reasons[:5])
    listed = [{"field": place, "reason": reason} for place, reason in reasons[:MOST_LISTED]]
    title = errors.ConfigurationInvalidError.sentence if code == "CONFIGURATION_INVALID" else InputInvalidError.sentence
    return problem(422, code, detail, title=title, errors=listed)


def nowhere_problem(reasons: Sequence[tuple[str, str]]) -> Problem:
    """404 for an address with a part that can't be the id or name it stands for: no such thing can be there."""
    rules = "; ".join(f"{place.removeprefix('path.')} {reason}" for place, reason in reasons)
    sentence = SENTENCE_OF_STATUS[404]
    return problem(404, errors.NotFoundError.code, f"{sentence} ({rules})", title=sentence)


def internal_problem() -> Problem:
    """500: the details are in the log of the server, without content."""
    return problem(500, "INTERNAL", AgentLoomError.sentence)


def reasons_of(problems: Sequence[Mapping[str, Any]], *, body: Any) -> list[tuple[str, str]]:
    """`(place, reason)` for each entry of pydantic's error list, without input, context or library addresses."""
    return [(place_of(one["loc"], body), _reason_of(one)) for one in problems]


def install(app: FastAPI) -> None:
    """Make every error answer of the app a problem document."""
    app.add_exception_handler(AgentLoomError, _on_domain_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_unexpected)


def _headers(error: AgentLoomError) -> dict[str, str]:
    if isinstance(error, RateLimitedError):
        return {"Retry-After": str(error.retry_after_s)}
    if isinstance(error, UnavailableError):
        return {"Retry-After": str(UNAVAILABLE_RETRY_S)}
    if isinstance(error, errors.UnauthenticatedError):
        return {"WWW-Authenticate": "Bearer"}
    return {}


def _reason_of(entry: Mapping[str, Any]) -> str:
    if entry["type"] == "extra_forbidden":
        nearest = meant(str(entry["loc"][-1]))
        return f"is not a known field; perhaps {nearest} is meant" if nearest else "is not a known field"
    if entry["type"] == "string_pattern_mismatch" and (rule := PATTERNS.get(entry["ctx"]["pattern"])):
        return rule
    if silent := SILENT_REASONS.get(entry["type"]):
        return silent
    message = SUBJECT.sub("", str(entry["msg"]).removeprefix("Value error, "))
    return message[:1].lower() + message[1:]


async def _on_domain_error(request: Request, error: Exception) -> Response:
    if type(error) not in STATUS:
        LOG.error("a request failed inside: %s", error, exc_info=error)
    return domain_problem(cast(AgentLoomError, error))


async def _on_invalid(request: Request, error: Exception) -> Response:
    refused = cast(RequestValidationError, error)
    found = refused.errors()
    if misplaced := [one for one in found if one["loc"][0] == "path"]:
        return nowhere_problem(reasons_of(misplaced, body=None))
    in_definition = all(tuple(one["loc"][:2]) == ("body", "definition") and len(one["loc"]) > 2 for one in found)
    code = errors.ConfigurationInvalidError.code if in_definition else InputInvalidError.code
    return invalid_problem(reasons_of(found[:MOST_LISTED], body=refused.body), code=code)


async def _on_http_error(request: Request, error: Exception) -> Response:
    refused = cast(HTTPException, error)
    methods = fitting_methods(request) if refused.status_code == 405 else []
    if refused.status_code == 405 and not methods:
        return problem(404, errors.NotFoundError.code, SENTENCE_OF_STATUS[404])
    code = CODE_OF_STATUS.get(refused.status_code, InputInvalidError.code)
    sentence = SENTENCE_OF_STATUS.get(refused.status_code, InputInvalidError.sentence)
    if not methods:
        return problem(refused.status_code, code, sentence, headers=refused.headers)
    allowed = ", ".join(methods)
    return problem(405, code, f"{sentence} It takes {allowed}.", title=sentence, headers={"Allow": allowed})


async def _on_unexpected(request: Request, error: Exception) -> Response:
    return internal_problem()
