"""Addresses as JSON: read back as they were written, and refused by key."""

import pytest

from corral.tamq.terminal.address import PATH_MAX_BYTES, AddressError, as_dict, parse
from corral.tamq.terminal.base import Address, ProcessId, PtyAddress, TmuxAddress

ONE = ProcessId(100, 2000, "b" * 36)
TMUX = TmuxAddress("/run/tmux", ONE, "%7", ProcessId(101, 2001, "b" * 36))
PTY = PtyAddress("/run/pty", ONE, ProcessId(101, 2001, "b" * 36))


@pytest.mark.parametrize("address", [TMUX, PTY])
def test_an_address_survives(address: Address) -> None:
    assert parse(as_dict(address)) == address


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": "screen"}, "terminal.kind"),
        ({"socket": "relative"}, "terminal.socket: must be an absolute"),
        ({"socket": "/" + "x" * PATH_MAX_BYTES}, "terminal.socket: longer than 107"),
        ({"socket": "/a\0b"}, "terminal.socket"),
        ({"socket": 1}, "terminal.socket"),
        ({"pane": "7"}, "terminal.pane"),
        ({"pane": "%"}, "terminal.pane"),
        ({"pane": "%7:x"}, "terminal.pane"),
        ({"pane": "%" + "1" * 12}, "terminal.pane"),
        ({"server": 1}, "terminal.server: must be an object"),
        ({"server": {"pid": 1}}, "terminal.server.boot_id: is missing"),
        ({"process": {"pid": 0, "start_ticks": 1, "boot_id": "x"}}, "terminal.process.pid"),
        ({"process": {"pid": True, "start_ticks": 1, "boot_id": "x"}}, "terminal.process.pid"),
        ({"process": {"pid": 1, "start_ticks": 1, "boot_id": ""}}, "terminal.process.boot_id"),
        ({"colour": "x"}, "terminal.colour: unknown key"),
    ],
)
def test_what_is_no_address_names_its_key(change: dict[str, object], problem: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse(as_dict(TMUX) | change)
    assert problem in caught.value.message


def test_the_longest_path_is_taken() -> None:
    socket = "/" + "x" * (PATH_MAX_BYTES - 1)
    assert parse(as_dict(PTY) | {"socket": socket}).socket == socket
