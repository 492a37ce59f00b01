"""Ids that a person gives to a command: checked before they become part of an address (SPEC 17, Y5)."""

import re
from collections.abc import Callable
from uuid import UUID

from cli.output import CommandError, ExitCode

WHERE_TO_LOOK = {
    "session": "agentloom sessions list",
    "run": "agentloom sessions show SESSION",
    "run or model call": "agentloom sessions show SESSION",
    "agent": "agentloom agents list",
    "operation": "agentloom show operations RUN",
    "model call": "agentloom show operations RUN",
    "input": "agentloom sessions inputs SESSION",
    "record": "agentloom sessions messages SESSION",
    "key": "agentloom keys list",
    "connection": "agentloom connections list",
}
"""The command that lists what there is of a kind, or makes it."""

NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
NAMES = "a name has at most 64 letters, digits, hyphens and underscores"
SHOWN_CHARS = 80
HIGHEST = 10**15 - 1  # more than any number of a record or an event, and what the API takes


def id_of(kind: str) -> Callable[[str | None], str | None]:
    """What a command checks an id with: gives it back in its plain form, None if there is none.

    Raises CommandError, as the API would say, for what can be no id: with a slash in it, it would be another address.
    """

    def checked(given: str | None) -> str | None:
        if given is None:
            return None
        try:
            return str(UUID(given))
        except ValueError:
            raise _none(kind, given, f"the id of {_a(kind)} is a UUID, 36 characters long.") from None

    return checked


def known_name(kind: str) -> Callable[[str | None], str | None]:
    """What a command checks the name of something that is there with. Raises CommandError, as `id_of`."""

    def checked(given: str | None) -> str | None:
        if given is not None and not NAME.fullmatch(given):
            raise _none(kind, given, f"{NAMES}.")
        return given

    return checked


def name_of(kind: str) -> Callable[[str | None], str | None]:
    """What a command checks a name with that it is about to give. Raises CommandError for what can be none."""

    def checked(given: str | None) -> str | None:
        if given is not None and not NAME.fullmatch(given):
            told = f"{given[:SHOWN_CHARS]!r}" if given else "An empty text"
            raise CommandError(f"{told} can't be the name of {_a(kind)}.", why=f"{NAMES.capitalize()}.")
        return given

    return checked


def _none(kind: str, given: str, why: str) -> CommandError:
    return CommandError(
        f"There is no {kind} {given[:SHOWN_CHARS]}." if given else f"An empty text names no {kind}.",
        why=f"NOT_FOUND: {why}",
        mend=WHERE_TO_LOOK[kind],
        exit_code=ExitCode.REFUSED,
    )


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"
