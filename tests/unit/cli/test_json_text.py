"""A member of a JSON object is cut out as it is written."""

import pytest

from cli.json_text import member_text


@pytest.mark.parametrize(
    "value", ['{"b":1.0,"a":"}\\u00e9é,"}', "1e-7", "[ {} ]", '{"request":2}', "null", '"\\"request\\":3"']
)
def test_no_character_of_the_member_changes_wherever_it_stands(value: str) -> None:
    """SPEC A9: `show request` prints the bytes that were sent."""
    assert member_text(f'{{"request":{value},"sha256":"0"}}', "request") == value
    assert member_text(f' {{ "x" : {{"request":1}} , "request" : {value} }}', "request") == value


def test_a_missing_member_is_an_error() -> None:
    """SPEC A9."""
    for text in ("{}", '{"a":{"request":1}}'):
        with pytest.raises(KeyError):
            member_text(text, "request")
