"""Moving bytes: order, pauses, readers that are slow or gone."""

import asyncio
import contextlib
import os
from collections.abc import Iterator

import pytest

from corral.local.wait import until_true
from corral.tamq.terminal.streams import (
    NOT_STARTED,
    PENDING_MAX_BYTES,
    Inlet,
    Outlet,
    reopen,
)

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    yield read, write
    for fd in (read, write):
        with contextlib.suppress(OSError):  # a test may have closed it
            os.close(fd)


async def test_everything_arrives_in_order_at_a_slow_reader(pipe: Pipe) -> None:
    read, write = pipe
    outlet = Outlet(write)
    data = bytes(range(256)) * 4096
    outlet.write(data[:1000])
    outlet.write(data[1000:])
    full = [outlet.full]
    got = bytearray()
    inlet = Inlet(read, got.extend)
    inlet.resume(NOT_STARTED)
    await outlet.drained()
    assert [*full, outlet.full] == [True, False]
    await until_true(lambda: len(got) == len(data), 30, "all of it")
    assert got == data
    inlet.pause("end")
    outlet.close()


async def test_what_a_reader_that_is_gone_does_not_take_is_dropped(pipe: Pipe) -> None:
    read, write = pipe
    os.close(read)
    outlet = Outlet(write)
    outlet.write(b"x")
    await outlet.drained()
    assert outlet.closed
    outlet.write(b"y" * (PENDING_MAX_BYTES + 1))
    assert not outlet.full


async def test_the_limit_of_what_may_wait(pipe: Pipe) -> None:
    _, write = pipe
    outlet = Outlet(write)
    outlet.write(b"x" * 65_536)  # what a pipe holds
    outlet.write(b"x" * (PENDING_MAX_BYTES - 1))
    full = [outlet.full]
    outlet.write(b"x")
    assert [*full, outlet.full] == [False, True]
    outlet.close()


async def test_it_reads_when_no_reason_to_pause_is_left(pipe: Pipe) -> None:
    read, write = pipe
    got: list[bytes] = []
    inlet = Inlet(read, got.append)
    os.write(write, b"a")
    inlet.pause("one")
    inlet.resume(NOT_STARTED)
    inlet.pause("two")
    inlet.resume("one")
    for _ in range(5):
        await asyncio.sleep(0)
    assert got == []
    inlet.resume("two")
    await until_true(lambda: got == [b"a"], 30, "the byte")
    os.close(write)
    await until_true(lambda: got == [b"a", b""], 30, "the end")
    inlet.resume("two")
    assert got == [b"a", b""]


async def test_a_plain_file_ends_at_once() -> None:
    first = os.open("/dev/null", os.O_RDONLY)
    fd = reopen(first, os.O_RDONLY)
    got: list[bytes] = []
    Inlet(fd, got.append).resume(NOT_STARTED)
    os.close(first)
    os.close(fd)
    assert got == [b""]


def test_a_file_opened_anew_does_not_block_and_leaves_the_first_alone(pipe: Pipe) -> None:
    read, _ = pipe
    os.set_blocking(read, True)
    again = reopen(read, os.O_RDONLY)
    assert not os.get_blocking(again)
    assert os.get_blocking(read)
    os.close(again)
