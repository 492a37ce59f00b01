"""Which addresses and headers a definition may give to an HTTP tool or an MCP server (SPEC E, T1)."""

from typing import Any

import pytest

from context.errors import ConfigurationInvalidError
from tests.support.tool_calls import entry
from tools.http import freeze_http
from tools.http_fields import check_http_fields

URL = "https://example.org/tool"


def refusal(kind: str = "http", **fields: Any) -> str:
    with pytest.raises(ConfigurationInvalidError) as refused:
        check_http_fields(entry(kind=kind, name="weather", **({"url": URL} | fields)))
    assert "'weather'" in refused.value.message
    assert refused.value.__cause__ is None
    return refused.value.message


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org", "example.org", "http://", "http:///x", "http://a b/", "http://h/a b", "http://h/\r\nX: y",
        "http://h:x/", "http://h:0/", "http://h:99999/", f"http://{'a' * 64}.example/", "http://.example/", "http://..",
        "http://" + ".".join(["a" * 60] * 5), "http://%zz/", "http://xn--zz--/", "http://\u2603.net", "http://[::1",
        "http://h\\x/", "http://u:p@h/", "http://u@h/", "http://h/#f", "http://h/#", "http://h/{city}", "http://-h/",
        "http://h\u0000/",
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_called_is_refused_and_the_field_is_named(url: str) -> None:
    """SPEC E."""
    for kind in ("http", "mcp"):
        assert refusal(kind, url=url).startswith("The url of the tool")


@pytest.mark.parametrize(
    "url",
    ["http://example.org", "HTTPS://EXAMPLE.ORG:8443/a?b=c%20d", "http://[::1]:80/", "http://127.0.0.1:1/", "http://h_x/",
     "http://\u00e9.example/\u00e9", "http://x", "https://a-b.example/"],
)  # fmt: skip
def test_an_address_that_can_be_called_is_taken(url: str) -> None:
    """SPEC T1."""
    check_http_fields(entry(kind="http", url=url))


@pytest.mark.parametrize(
    "name", ["Content-Type", "content-length", "Transfer-Encoding", "Host", "IDEMPOTENCY-KEY", "TE"]
)
def test_a_header_that_is_set_here_cannot_be_set_there(name: str) -> None:
    """SPEC T4: two of them, or a wrong length, would make the request another one."""
    assert name in refusal(headers={name: "1"})


def test_headers_that_meet_are_refused() -> None:
    """SPEC E: names of headers know no case."""
    assert "twice" in refusal(headers={"X-A": "1", "x-a": "2"})
    assert "connection" in refusal(headers={"authorization": "Basic x"}, connection="stored")
    assert "Mcp-Session-Id" in refusal("mcp", headers={"Mcp-Session-Id": "1"})


def test_ordinary_headers_are_taken() -> None:
    """SPEC T1."""
    frozen = freeze_http(entry(kind="http", url=URL, headers={"X-Team": "a b", "Accept": "*/*", "X-Empty": ""}))
    assert frozen.kind == "http"
