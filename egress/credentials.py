"""Replaces known credentials in what comes back from outside, before anything is stored of it (SPEC L6, Y3).

It knows only the values it is given. It finds them whole, as they are and as JSON text would escape them; a caller
that reads an answer in pieces joins them first.
"""

import json
from collections.abc import Iterable

REMOVED = "[credential removed]"
_SHORTEST = 8  # shorter values, such as the dummy keys of local servers, are words that occur in ordinary text


class Credentials:
    """The credentials known in one place."""

    def __init__(self, values: Iterable[str]) -> None:
        known = {value for value in values if len(value) >= _SHORTEST}
        forms = known | {json.dumps(value)[1:-1] for value in known} | {value.replace("/", "\\/") for value in known}
        # Longest first, so that a credential that contains another one is replaced whole.
        self._forms = sorted(forms, key=lambda form: (-len(form), form))
        self._raw_forms = [form.encode(errors="surrogatepass") for form in self._forms]

    def occur_in(self, text: str) -> bool:
        return any(form in text for form in self._forms)

    def removed_from(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, REMOVED)
        return text

    def removed_from_bytes(self, body: bytes) -> bytes:
        for form in self._raw_forms:
            body = body.replace(form, REMOVED.encode())
        return body
