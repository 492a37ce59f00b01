"""Requests and answers about connections, users and keys (SPEC 16)."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, field_validator

from api.addresses import ADDRESS, NOT_AN_ADDRESS, is_api_address
from api.schemas import Answer, Page, Wanted
from context.written import Name, Tokens

VISIBLE = r"^[!-~]+$"


class KnownModel(Wanted):
    id: str = Field(min_length=1, max_length=200)
    context_window: Tokens | None = None
    max_output_tokens: Tokens | None = None


class ConnectionSettings(Wanted):
    """A connection but for its name. Without `api_key` a stored key is kept if provider and address stay the same."""

    provider: Literal["openai", "deepseek", "openai_compatible", "demo", "tool"]
    base_url: str | None = Field(None, max_length=2_000, pattern=ADDRESS)
    api_key: str | None = Field(
        None, min_length=1, max_length=10_000, pattern=VISIBLE, json_schema_extra={"writeOnly": True}
    )
    """Sent in a header: visible ASCII characters, no blanks, no line break at its end."""
    models: Annotated[list[KnownModel], Field(max_length=1_000)] | None = None

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None and not is_api_address(value):
            raise ValueError(NOT_AN_ADDRESS)
        return value

    @field_validator("models")
    @classmethod
    def _each_is_there_once(cls, value: list[KnownModel] | None) -> list[KnownModel] | None:
        first: dict[str, int] = {}
        for position, model in enumerate(value or ()):
            if first.setdefault(model.id, position) != position:
                raise ValueError(f"entries {first[model.id]} and {position} have the same id")
        return value


class NewConnection(ConnectionSettings):
    name: Name


class ConnectionModel(Answer):
    id: str
    context_window: int | None
    max_output_tokens: int | None
    source: Literal["provider", "official_manifest", "platform_default", "manual"]


class ConnectionEntry(Answer):
    name: str
    provider: str
    base_url: str | None
    has_key: bool
    models: list[ConnectionModel]


class ConnectionList(Page):
    items: list[ConnectionEntry]


UserRole = Literal["admin", "member", "auditor"]


class CreateUser(Wanted):
    name: Name
    role: UserRole = "member"


class UserEntry(Answer):
    user_id: UUID
    name: str
    role: UserRole
    created_at: datetime


class UserList(Page):
    items: list[UserEntry]


class CreateKey(Wanted):
    user: Name | None = Field(None, description="Name of the user; your own if left out.")


class CreatedKey(Answer):
    """The only answer that ever shows the key."""

    key_id: UUID
    user_id: UUID
    api_key: str


class KeyEntry(Answer):
    key_id: UUID
    user_id: UUID
    hint: str
    created_at: datetime
    revoked_at: datetime | None


class KeyList(Page):
    items: list[KeyEntry]
