"""Facts that are planted in a session, and the tools whose results hold them and whose arguments do not."""


def fact(kind: str, number: int) -> str:
    """A sentence that says which it is."""
    return f"Rule {number} of the {kind}: parcel {number * 7919 % 1000:03} goes to dock {number * 104729 % 97:02}."


def tell(number: int) -> str:
    """Tell a rule."""
    return fact("result", number)


def hide(number: int) -> str:
    """Give a long page with a rule in the middle."""
    return "nothing here. " * 200 + fact("unread part", number) + " nothing here." * 200
