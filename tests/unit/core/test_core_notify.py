import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.core.ids import new_uuid
from corral.core.notify import STATUS_MAX_CHARS, Notifier


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "path" else f"@corral-{new_uuid()}"


@pytest.fixture
def manager(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + address[1:] if address.startswith("@") else address)
        receiver.settimeout(5)
        yield receiver


def received(manager: socket.socket) -> str:
    return manager.recv(4096).decode()


def test_each_call_is_one_datagram(address: str, manager: socket.socket) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": address})
    assert notifier.ready("two sources")
    assert notifier.status("draining")
    assert notifier.watchdog()
    assert notifier.stopping()
    assert [received(manager) for _ in range(4)] == [
        "READY=1\nSTATUS=two sources\n",
        "STATUS=draining\n",
        "WATCHDOG=1\n",
        "STOPPING=1\n",
    ]


async def test_calls_do_not_block_the_event_loop(address: str, manager: socket.socket) -> None:
    assert Notifier(address).ready()
    assert received(manager) == "READY=1\n"


def test_a_status_is_one_line_of_limited_length(address: str, manager: socket.socket) -> None:
    Notifier(address).status("a\nMAINPID=1\n b" + "c" * STATUS_MAX_CHARS)
    line = received(manager)
    assert line.startswith("STATUS=a MAINPID=1 bccc")
    assert line.count("\n") == 1
    assert len(line) == len("STATUS=\n") + STATUS_MAX_CHARS


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}])
def test_outside_systemd_nothing_happens(environ: dict[str, str]) -> None:
    notifier = Notifier.from_environment(environ)
    assert not notifier.ready()
    assert not notifier.watchdog()
    assert notifier.watchdog_interval_s is None


def test_a_ready_that_could_not_be_delivered_goes_out_with_the_next_call(tmp_path: Path) -> None:
    address = str(tmp_path / "late")
    notifier = Notifier(address)
    assert not notifier.ready("lost")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(address)
        assert notifier.watchdog()
        assert received(receiver) == "READY=1\nWATCHDOG=1\n"
        assert notifier.watchdog()
        assert received(receiver) == "WATCHDOG=1\n"


def test_a_full_queue_neither_blocks_nor_raises(address: str, manager: socket.socket) -> None:
    notifier = Notifier(address)
    sent = 0
    while notifier.watchdog():
        sent += 1
    assert not notifier.ready()
    for _ in range(sent):
        assert received(manager) == "WATCHDOG=1\n"
    assert notifier.status("up")
    assert received(manager) == "READY=1\nSTATUS=up\n"


def test_an_address_that_is_too_long_is_no_reason_to_die() -> None:
    assert not Notifier("/" + "a" * 200).ready()


@pytest.mark.parametrize(
    ("usec", "pid", "expected"),
    [
        ("30000000", None, 15.0),
        ("30000000", str(os.getpid()), 15.0),
        ("30000000", "1", None),
        ("0", None, None),
        ("soon", None, None),
        (None, None, None),
    ],
)
def test_the_watchdog_interval_is_half_the_limit(
    usec: str | None, pid: str | None, expected: float | None
) -> None:
    environ = {"WATCHDOG_USEC": usec, "WATCHDOG_PID": pid}
    given = {name: value for name, value in environ.items() if value is not None}
    assert Notifier.from_environment(given).watchdog_interval_s == expected
