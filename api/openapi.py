"""The OpenAPI document, made true: every error is a problem document, and only what a route can answer is listed."""

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

from api.errors import PROBLEM_MEDIA_TYPE
from api.patience import PatientRoute
from api.schemas import Problem

PROBLEM_REF = "#/components/schemas/Problem"

MEANING = {
    401: "No valid API key.",
    403: "This key may not do that.",
    404: "Unknown, or another person's.",
    409: "It can't be done in this state; `code` says why.",
    413: "The body or the text is too large.",
    415: "The body is not application/json.",
    422: "The request is not valid; `errors` names the fields.",
    429: "Too many requests with this key; see `Retry-After`.",
    503: "The database or Temporal is away; see `Retry-After`.",
}

ALWAYS = (401, 422, 429, 503)
WITH_BODY = (413, 415)


def refusals(*statuses: int, body: bool = False) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route: its own, and those that every route has."""
    listed = sorted({*statuses, *ALWAYS, *(WITH_BODY if body else ())})
    return {status: problem_answer(status) for status in listed}


def problem_answer(status: int) -> dict[str, Any]:
    """One error answer in the document."""
    content = {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": PROBLEM_REF}}}
    return {"description": MEANING[status], "content": content}


def router(tag: str) -> APIRouter:
    """A router whose routes parse strictly and wait for a lost database."""
    return APIRouter(tags=[tag], route_class=PatientRoute)


def install(app: FastAPI) -> None:
    """Make `app.openapi()` name the problem document, which no route returns by itself."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            schemas = made.setdefault("components", {}).setdefault("schemas", {})
            schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            _without_null_parameters(made)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def _without_null_parameters(document: dict[str, Any]) -> None:
    """A query parameter or header that is left out is not null; the framework lists null as a value of it."""
    operations = (operation for methods in document["paths"].values() for operation in methods.values())
    for parameter in (one for operation in operations for one in operation.get("parameters", ())):
        kinds = [kind for kind in parameter["schema"].pop("anyOf", ()) if kind != {"type": "null"}]
        if len(kinds) == 1:
            parameter["schema"] |= kinds[0]
