"""What a user's text may be (SPEC Y5), before anything of it is stored."""

import unicodedata

from context.errors import InputInvalidError, TooLargeError

MAX_CHARS = 1_000_000
UNSEEN = ("Zs", "Zl", "Zp", "Cc", "Cf")
"""Categories of Unicode that show nothing: blanks, line ends, control and format characters."""


def is_blank(text: str) -> bool:
    """Whether there is nothing to see in a text."""
    return all(unicodedata.category(sign) in UNSEEN for sign in text)


def check_text(text: str) -> None:
    """Raises InputInvalidError or TooLargeError, with numbers only, for a text that no Run may get."""
    if len(text) > MAX_CHARS:
        raise TooLargeError("The text is longer than allowed.", characters=len(text), limit=MAX_CHARS)
    if is_blank(text):
        raise InputInvalidError("The text is empty or blank.")
    if "\0" in text:
        raise InputInvalidError("The text contains a NUL character.", position=text.index("\0"))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputInvalidError("The text contains half of a surrogate pair.", position=error.start) from None
