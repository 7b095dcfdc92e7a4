"""Processes are restarted when they die, killed and stopped on demand, and leave nothing behind."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from corral.local import wait
from corral.local.faults import Fault, inflict, resume_all
from corral.local.supervisor import Service, Supervisor, left_behind
from corral.local.topology import base_environment

FOREVER = "import signal, time; print('up', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {FOREVER}"


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[Supervisor]:
    made = Supervisor(tmp_path, in_flight=lambda: 7)
    yield made
    await made.abandon()


def service(supervisor: Supervisor, tmp_path: Path, code: str, name: str = "one") -> Service:
    def command(start: int) -> Sequence[str]:
        return [sys.executable, "-S", "-c", code, str(start)]

    log = supervisor.log_file(name)

    async def ready() -> bool:
        return log.exists() and log.read_text().count("up") >= made.starts

    made = Service(name, command, {**base_environment(), "MARK": str(tmp_path)}, tmp_path, ready)
    supervisor.add(made)
    return made


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


async def test_restarts_what_was_killed(supervisor: Supervisor, tmp_path: Path) -> None:
    one = service(supervisor, tmp_path, FOREVER)
    await supervisor.start("one")
    assert one.process is not None
    first = one.process.pid
    assert (tmp_path / "pids" / "one").read_text() == str(first)
    assert supervisor.kill("one", "test")
    await wait.until_true(lambda: one.starts == 2, 10, "the second start")
    await supervisor.ready("one")
    assert one.process.pid != first
    assert (tmp_path / "pids" / "one").read_text() == str(one.process.pid)
    killed = [event for event in supervisor.timeline if event.what == "killed"]
    assert [(e.process, e.cause, e.pid, e.in_flight, e.lethal) for e in killed] == [
        ("one", "test", first, 7, True)
    ]
    assert not [event for event in supervisor.timeline if event.what == "ended"]


async def test_records_ends_that_it_did_not_cause(supervisor: Supervisor, tmp_path: Path) -> None:
    one = service(
        supervisor,
        tmp_path,
        "import os, time; print('up', flush=True); time.sleep(0.3); os._exit(3)",
    )
    await supervisor.start("one", timeout_s=10)
    await wait.until_true(lambda: one.starts >= 3, 10, "more starts")
    ended = [event for event in supervisor.timeline if event.what == "ended"]
    assert {event.code for event in ended} == {3}
    assert not any(event.lethal for event in ended)


async def test_self_kill_is_lethal(supervisor: Supervisor, tmp_path: Path) -> None:
    code = "import os, sys\nprint('up', flush=True)\nif sys.argv[1] == '0': os.kill(os.getpid(), 9)"
    one = service(supervisor, tmp_path, f"{code}\n{FOREVER}")
    await supervisor.start("one")
    await wait.until_true(lambda: one.starts == 2, 10, "the second start")
    (ended,) = [event for event in supervisor.timeline if event.what == "ended"]
    assert ended.code == -signal.SIGKILL
    assert ended.lethal


async def test_stop_ends_in_order_and_kills_what_stays(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    service(supervisor, tmp_path, FOREVER, "first")
    stubborn = service(supervisor, tmp_path, STUBBORN, "second")
    await supervisor.start("first", "second")
    supervisor.pause("first")
    await supervisor.stop("first", "second", timeout_s=0.5)
    assert not any(s.running for s in supervisor.services.values())
    assert [e.process for e in supervisor.timeline if e.what == "overdue"] == ["second"]
    assert stubborn.starts == 1
    assert left_behind(str(tmp_path)) == {}


async def test_pause_stall_and_kill_as_faults(supervisor: Supervisor, tmp_path: Path) -> None:
    one = service(supervisor, tmp_path, FOREVER)
    await supervisor.start("one")
    assert one.process is not None
    pid = one.process.pid
    loop = asyncio.get_running_loop()
    pausing = loop.create_task(inflict(supervisor, Fault(0, "pause", ("one",), 30.0), 0.0))
    await wait.until_true(lambda: one.paused and state(pid) == "T", 5, "the process to stop")
    resume_all(supervisor)
    await wait.until_true(lambda: state(pid) != "T", 5, "the process to go on")
    pausing.cancel()
    await inflict(supervisor, Fault(0, "stall", ("one", "one"), 0.01), 0.0)
    await wait.until_true(lambda: one.starts == 2, 10, "the restart after the stall")
    causes = [event.cause for event in supervisor.timeline if event.what == "killed"]
    assert causes == ["stalled"]


async def test_nothing_to_kill(supervisor: Supervisor, tmp_path: Path) -> None:
    service(supervisor, tmp_path, FOREVER)
    assert not supervisor.kill("one")
    assert not supervisor.pause("one")
    assert supervisor.timeline == []


async def test_left_behind_finds_by_environment(supervisor: Supervisor, tmp_path: Path) -> None:
    one = service(supervisor, tmp_path, FOREVER)
    await supervisor.start("one")
    assert one.process is not None
    assert one.process.pid in left_behind(str(tmp_path))
    assert os.getpid() not in left_behind("PATH=")


async def test_what_passes_is_waited_out(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A full disk, which a test that is not root cannot make: neither log nor pid file.
    one = service(supervisor, tmp_path, FOREVER)
    await supervisor.start("one")
    whole = Path.open

    def full(path: Path, *mode: str, **more: object) -> IO[str]:
        if path.parent in {supervisor.logs, supervisor.pids}:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return whole(path, *mode, **more)  # type: ignore[call-overload, no-any-return]

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        supervisor.kill("one")
        await wait.until_true(
            lambda: any(event.what == "not started" for event in supervisor.timeline), 10, "a try"
        )
        assert one.keeper is not None
        assert not one.keeper.done()
    await wait.until_true(lambda: one.running, 10, "it to run again")


async def test_without_room_there_is_no_pid_file_rather_than_an_old_one(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    one = service(supervisor, tmp_path, FOREVER)
    await supervisor.start("one")
    (tmp_path / "pids" / "one.new").mkdir()  # what is written first cannot be written
    supervisor.kill("one")
    await wait.until_true(lambda: one.starts == 2, 10, "the second start")
    await supervisor.ready("one")
    await wait.until_true(lambda: not (tmp_path / "pids" / "one").exists(), 10, "it to be gone")


async def test_what_does_not_pass_is_a_failure(supervisor: Supervisor, tmp_path: Path) -> None:
    missing = Service("one", lambda _: ["/nonexistent"], {}, tmp_path / "nowhere")
    supervisor.add(missing)
    with pytest.raises(FileNotFoundError):
        await supervisor.start("one")
    with pytest.raises(FileNotFoundError):
        await asyncio.wait_for(supervisor.failure(), 10)
