"""Where agents are: URLs, where cards may send us, and tokens."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.bridge.a2a import target
from corral.bridge.a2a.target import Address, read_token
from corral.core.errors import ConfigError


@given(st.text() | st.text().map(lambda end: f"http://{end}") | st.text().map("unix:/".__add__))
def test_any_text_is_an_address_or_a_config_error(url: str) -> None:
    try:
        address = Address.parse(url)
    except ConfigError:
        return
    assert address.path.startswith("/")
    assert address.origin.startswith(("http://", "https://"))


@given(st.text())
def test_any_url_of_a_card_is_here_or_nowhere(named: str) -> None:
    here = Address.parse("https://agent.example.org/a2a/")
    there = here.joined(named)
    assert there is None or there.origin == here.origin


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h", Address("http://h:80", "/")),
        ("https://h/x?y=1", Address("https://h:443", "/x?y=1")),
        ("http://[::1]:8080/x", Address("http://[::1]:8080", "/x")),
        ("unix:/run/a.sock", Address("http://localhost", "/", "/run/a.sock")),
        ("unix:/run/a.sock:/a2a/x/", Address("http://localhost", "/a2a/x/", "/run/a.sock")),
    ],
)
def test_addresses(url: str, address: Address) -> None:
    assert Address.parse(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "", "h", "ftp://h", "http://", "http://h:99999", "http://u:p@h", "http://h/#f",
        "http://h/\nx", "http://h/a b", "unix:", "unix:relative", "http://[::1",
    ],
)  # fmt: skip
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ConfigError) as found:
        Address.parse(url)
    assert "p@h" not in str(found.value)


@pytest.mark.parametrize(
    ("url", "named", "leads_to"),
    [
        ("https://h/card.json", "https://h/rpc", "https://h:443/rpc"),
        ("https://h/a/card.json", "rpc", "https://h:443/a/rpc"),
        ("https://h/", "https://other/rpc", None),
        ("https://h/", "http://h/rpc", None),
        ("https://h/", "https://h:444/rpc", None),
        ("http://127.0.0.1:9/", "http://localhost:9/rpc", "http://127.0.0.1:9/rpc"),
        ("http://127.0.0.1:9/", "http://0.0.0.0:9/rpc", "http://127.0.0.1:9/rpc"),
        ("http://127.0.0.1:9/", "http://localhost:10/rpc", None),
        ("unix:/s:/", "https://anywhere/a2a/x", "http://localhost/a2a/x"),
        ("https://h/", "file:///etc/passwd", None),
        ("https://h/", "", "https://h:443/"),
    ],
)
def test_f51_card_leads_to_its_own_server_only(url: str, named: str, leads_to: str | None) -> None:
    there = Address.parse(url).joined(named)
    assert (there.url if there else None) == leads_to
    assert there is None or there.socket == Address.parse(url).socket


def test_token_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(b"abc.DEF-1\r\n")
    assert read_token(file) == b"abc.DEF-1"


@pytest.mark.parametrize(
    "held", [b"", b"\n", b"two words", b"two\nlines", b"t\xc3\xbc", b"x" * 8193, b"a\r\nX: 1"]
)
def test_what_is_no_token_is_not_quoted(tmp_path: Path, held: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(held)
    with pytest.raises(ConfigError, match="holds no bearer token") as found:
        read_token(file)
    assert "words" not in str(found.value)
    file.write_bytes(b"x" * target.TOKEN_MAX_BYTES)
    assert len(read_token(file)) == target.TOKEN_MAX_BYTES


def test_token_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_token(tmp_path / "none")
