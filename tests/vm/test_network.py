"""The network between machines: who is where, and frames that reach all others."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.vm.network import Hub, Port

PATIENCE_S = 10


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with closing(Hub(tmp_path, ["rooms", "agents", "third"])) as made:
        yield made


def plugged(stack: ExitStack, port: Port) -> socket.socket:
    """A socket in place of the machine's QEMU."""
    made = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    made.bind(str(port.local))
    made.settimeout(PATIENCE_S)
    return made


def test_addresses_and_names_are_those_of_the_other_driver(hub: Hub) -> None:
    assert {port.name: port.address for port in hub.ports.values()} == {
        "agents": "192.168.1.1",
        "rooms": "192.168.1.2",
        "third": "192.168.1.3",
    }
    assert hub.ports["rooms"].hosts == (
        "127.0.0.1 localhost rooms\n192.168.1.1 agents\n192.168.1.2 rooms\n192.168.1.3 third\n"
    )
    assert "address add 192.168.1.2/24 dev eth1" in hub.ports["rooms"].unit
    cards = [" ".join(port.arguments) for port in hub.ports.values()]
    assert len({card.partition("mac=")[2] for card in cards}) == 3


def test_a_frame_reaches_all_others_and_not_its_sender(hub: Hub) -> None:
    with ExitStack() as stack:
        one, two, three = (plugged(stack, port) for port in hub.ports.values())
        to = str(hub.ports["agents"].hub)
        one.sendto(b"first", to)
        two.sendto(b"second", to)
        assert two.recv(100) == b"first"
        assert [three.recv(100), three.recv(100)] == [b"first", b"second"]
        assert one.recv(100) == b"second"


def test_a_machine_that_is_off_or_stands_still_holds_up_nobody(hub: Hub) -> None:
    """ "third" is off; "agents" takes no frames."""
    with ExitStack() as stack:
        plugged(stack, hub.ports["agents"])
        rooms = plugged(stack, hub.ports["rooms"])
        queue = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text(encoding="ascii"))
        for _ in range(queue + 2):
            rooms.sendto(b"nobody takes it", str(hub.ports["rooms"].hub))
        third = plugged(stack, hub.ports["third"])
        rooms.sendto(b"last", str(hub.ports["rooms"].hub))
        while third.recv(100) != b"last":
            pass
