"""Runs with real programs: what they get, what becomes of their output, and the limits."""

import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.cowboy.runner import domain
from corral.cowboy.runner.domain import Finished, Go, RunResult
from corral.local.wait import until
from tests.unit.runner import world as worlds
from tests.unit.runner.world import WAIT_S, World, prepare_request, python, shell

MIB = 1024 * 1024


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with worlds.world(tmp_path) as made:
        yield made


def outcome(world: World, *command: str, prompt: bytes = b"hello", **rules: object) -> RunResult:
    world.program(*command, **rules)
    return world.up().run("t", prompt=prompt)


def environment_of(dump: bytes) -> dict[bytes, bytes]:
    return dict(line.split(b"=", 1) for line in dump.split(b"\0") if line)


def test_a_run_gets_exactly_its_environment(world: World) -> None:
    world.program("/usr/bin/env", "-0", environment={"MODEL": "größer", "LANG": "de_DE.UTF-8"})
    daemon = world.up()
    result = daemon.run(
        "scout.a2a.1.5-0",
        sender="Ädä\n".encode(),
        channel=None,
        entry="5-0",
        resumed=True,
        traceparent=b"00-aa-bb-01",
    )
    found = environment_of(result.reply)
    token = found.pop(b"CORRAL_RUN_TOKEN")
    assert len(bytes.fromhex(token.decode())) == 16
    assert found == {
        b"PATH": b"/usr/local/bin:/usr/bin:/bin",
        b"LANG": b"de_DE.UTF-8",
        b"MODEL": "größer".encode(),
        b"CORRAL_AGENT": b"scout",
        b"CORRAL_SOURCE": b"a2a",
        b"CORRAL_TURN_ID": b"scout.a2a.1.5-0",
        b"CORRAL_ENTRY_ID": b"5-0",
        b"CORRAL_SENDER": "Ädä\n".encode(),
        b"CORRAL_SESSION_ID": b"00ff",
        b"CORRAL_RESUMED": b"1",
        b"TRACEPARENT": b"00-aa-bb-01",
    }


def test_metadata_that_is_not_utf8_arrives_unchanged(world: World) -> None:
    world.program("/usr/bin/printenv", "CORRAL_CHANNEL")
    daemon = world.up()
    channel = bytes(set(range(1, 128)) - {10})
    assert daemon.run("t", channel=channel).reply == channel + b"\n"
    # Output that is not UTF-8 is no reply, so this one is looked at through od.
    world.kill_runner()
    world.program(*shell("printenv CORRAL_CHANNEL | od -An -v -tx1 | tr -d ' \\n'"))
    assert world.up().run("t", channel=b"\xff\x80\xc3").reply == b"ff80c30a"


def test_a_run_inherits_nothing_else_of_the_runner(world: World) -> None:
    script = """
import json, os, resource, signal
print(json.dumps({
    "fds": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    "session": os.getsid(0) == os.getpid() == os.getpgrp(),
    "status": [line for line in open("/proc/self/status") if line[:6] in ("SigBlk", "SigIgn")],
    "nofile": resource.getrlimit(resource.RLIMIT_NOFILE),
    "umask": os.umask(0),
}))
"""
    result = outcome(world, sys.executable, "-I", "-S", "-c", script)
    seen = json.loads(result.reply)
    # 3 is the descriptor with which the program lists them.
    assert seen["fds"] == [0, 1, 2, 3]
    assert seen["session"]
    masks = {line.split(":")[0]: int(line.split()[1], 16) for line in seen["status"]}
    assert masks["SigBlk"] == 0
    # Python itself ignores SIGPIPE (13) and SIGXFSZ (25); everything else would be inherited.
    assert masks["SigIgn"] == 1 << 12 | 1 << 24
    assert seen["nofile"] == list(resource.getrlimit(resource.RLIMIT_NOFILE))
    assert seen["umask"] == os.umask(os.umask(0o022)) or seen["umask"] == 0o022


def test_signals_have_their_default_action_in_a_run(world: World) -> None:
    ignored = outcome(world, *shell("grep SigIgn /proc/self/status")).reply
    assert int(ignored.split()[1], 16) == 0


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 3", ("exit_nonzero", "exit status 3")),
        ("echo partial; exit 1", ("exit_nonzero", "exit status 1")),
        ("kill -TERM $$", ("exit_nonzero", "signal 15")),
        ("kill -KILL $$", ("exit_nonzero", "signal 9")),
        ("printf '\\377'", ("output_invalid", "not UTF-8")),
        ("printf 0123456789", ("completed", "")),
        ("printf 0123456789x", ("reply_too_large", "more than 10 bytes")),
        ("exec >&-; exit 0", ("completed", "")),
        ("exec 0<&- 1>&- 2>&-; exit 4", ("exit_nonzero", "exit status 4")),
    ],
)
def test_how_a_program_ends(world: World, script: str, expected: tuple[str, str]) -> None:
    result = outcome(world, *shell(script), reply_max_bytes=10)
    assert (result.outcome, result.detail) == expected
    assert result.went
    assert result.reply == (b"0123456789" if script == "printf 0123456789" else b"")


@pytest.mark.parametrize(
    ("command", "detail"),
    [
        (("/does/not/exist",), "No such file or directory"),
        (("no-such-program-anywhere",), "No such file or directory"),
        (("/tmp",), "Permission denied"),
        (("/bin/echo", "x" * 200_000), "Argument list too long"),
    ],
)
def test_a_program_that_cannot_start(world: World, command: tuple[str, ...], detail: str) -> None:
    result = outcome(world, *command)
    assert result == RunResult("start_failed", b"", detail, True)
    assert result.went


def test_a_file_without_permission_to_execute_it_cannot_start(world: World) -> None:
    plain = world.directory / "plain"
    plain.write_text("#!/bin/sh\n")
    plain.chmod(0o644)
    assert outcome(world, str(plain)).detail == "Permission denied"


def test_a_script_without_an_interpreter_line_cannot_start(world: World) -> None:
    script = world.directory / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    assert outcome(world, str(script)).detail == "Exec format error"


def test_a_program_name_is_looked_up_in_the_path_of_the_run(world: World) -> None:
    tools = world.directory / "tools"
    tools.mkdir()
    tool = tools / "my-agent"
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    environment = {"PATH": f"/nowhere:{tools}:/bin"}
    assert outcome(world, "my-agent", environment=environment).reply == b"found\n"


@pytest.mark.parametrize("state", ["completed", "input_required", "failed"])
def test_an_envelope_chooses_the_outcome(world: World, state: str) -> None:
    text = json.dumps({"state": state, "text": "ä\n\0"})
    result = outcome(world, "/bin/cat", prompt=text.encode(), envelope=True)
    assert result == RunResult(state, "ä\n\0".encode(), "", True)


def test_a_broken_envelope_is_output_invalid(world: World) -> None:
    result = outcome(world, "/bin/cat", prompt=b'{"state":"completed"}', envelope=True)
    assert (result.outcome, result.reply) == ("output_invalid", b"")


@pytest.mark.parametrize(("length", "expected"), [(9, "completed"), (10, "reply_too_large")])
def test_reply_max_bytes_of_an_envelope(world: World, length: int, expected: str) -> None:
    text = b'{"state":"completed","text":"' + b"\\u0041" * length + b'"}'
    assert outcome(world, "/bin/cat", prompt=text, envelope=True, reply_max_bytes=9).outcome == (
        expected
    )


def test_the_largest_prompt_and_reply_pass_unchanged(world: World) -> None:
    prompt = os.urandom(3 * MIB).hex().encode()[: domain.REPLY_MAX_BYTES_LIMIT]
    result = outcome(world, "/bin/cat", prompt=prompt, reply_max_bytes=len(prompt))
    assert result == RunResult("completed", prompt, "", True)


def test_a_reply_one_byte_too_long_is_refused_at_any_size(world: World) -> None:
    prompt = b"x" * (MIB + 1)
    result = outcome(world, "/bin/cat", prompt=prompt, reply_max_bytes=MIB)
    assert result == RunResult("reply_too_large", b"", f"more than {MIB} bytes", True)


def test_endless_output_is_cut_and_the_group_killed(world: World) -> None:
    pids = world.directory / "pids"
    world.program(*shell(f"sleep 1000 & echo $! >> {pids}; echo $$ >> {pids}; yes"))
    result = world.up().run("t")
    assert result.outcome == "reply_too_large"
    assert worlds.gone(*[int(pid) for pid in pids.read_text().split()])


def test_a_program_that_never_reads_its_prompt_ends_normally(world: World) -> None:
    assert outcome(world, *shell("echo done"), prompt=b"x" * 2 * MIB).reply == b"done\n"


def test_a_program_that_closes_its_input_goes_on(world: World) -> None:
    result = outcome(world, *shell("head -c 1; exec 0<&-; echo done"), prompt=b"x" * 2 * MIB)
    assert result.reply == b"xdone\n"


def test_a_prompt_is_followed_by_end_of_file_even_when_it_is_empty(world: World) -> None:
    assert outcome(world, "/usr/bin/wc", "-c", prompt=b"").reply.strip() == b"0"


def test_a_slow_reader_does_not_stop_the_runner(world: World) -> None:
    gate = world.directory / "gate"
    os.mkfifo(gate)
    world.program(*shell(f"cat {gate}; wc -c"))
    daemon = world.up()
    daemon.prepare("slow", prompt=b"x" * MIB)
    daemon.send(Go("slow", 1))
    daemon.prepare("other", prompt=b"12345")
    assert daemon.phase("slow") == "running"
    daemon.kill("other")
    gate.write_bytes(b"read: ")
    assert daemon.expect(Finished).result.reply == b"read: %d\n" % MIB


def test_error_output_is_drained_counted_and_never_logged(world: World) -> None:
    script = f"yes private | head -c {3 * MIB} >&2; echo reply"
    assert outcome(world, *shell(script)).reply == b"reply\n"
    until(lambda: '"run_over"' in world.log, WAIT_S, "the log line")
    assert f'"stderr_bytes": {3 * MIB}' in world.log
    assert "private" not in world.log
    assert "hello" not in world.log


def test_a_timeout_kills_the_whole_group(world: World) -> None:
    pids = world.directory / "pids"
    script = f"(trap '' TERM; echo $$ >> {pids}; sleep 1000) & echo $! >> {pids}; sleep 1000"
    result = outcome(world, *shell(script), turn_timeout_s=2)
    assert result == RunResult("timeout", b"", "after 2 s", True)
    assert worlds.gone(*[int(pid) for pid in pids.read_text().split()])


def test_the_time_limit_counts_from_go(world: World) -> None:
    world.program(*shell("cat"), turn_timeout_s=2)
    daemon = world.up()
    daemon.prepare("waits")
    result = daemon.run("sleeper", prompt=b"")
    assert result.outcome == "completed"
    began = worlds.monotonic_ms()
    until(lambda: worlds.monotonic_ms() - began > 2200, WAIT_S, "longer than turn_timeout_s")
    daemon.send(Go("waits", 1))
    assert daemon.expect(Finished).result.outcome == "completed"


def test_the_result_is_the_leaders_and_does_not_wait_for_its_children(world: World) -> None:
    pids = world.directory / "pids"
    world.program(*shell(f"sleep 1000 & echo $! > {pids}; printf answer"))
    result = world.up().run("t")
    assert result == RunResult("completed", b"answer", "", True)
    assert worlds.gone(int(pids.read_text()))


def test_output_that_is_still_in_the_pipe_when_the_leader_ends_is_part_of_the_reply(
    world: World,
) -> None:
    script = "import os; os.write(1, b'x' * 65536); os._exit(0)"
    world.program(*python(script), reply_max_bytes=65_536)
    daemon = world.up()
    for number in range(20):
        assert daemon.run(f"t{number}").reply == b"x" * 65_536


def test_a_child_that_floods_standard_output_cannot_delay_the_leaders_end(world: World) -> None:
    script = "(setsid yes & ) ; exit 3"
    result = outcome(world, *shell(script), reply_max_bytes=domain.REPLY_MAX_BYTES_LIMIT)
    assert result.outcome in {"exit_nonzero", "reply_too_large"}


def test_fifty_runs_at_once(world: World) -> None:
    gate = world.directory / "gate"
    started = world.directory / "started"
    world.program(*shell(f"echo $$ >> {started}; until [ -e {gate} ]; do sleep 0.02; done; cat"))
    daemon = world.up()
    turns = [f"turn-{number}" for number in range(50)]
    for turn in turns:
        daemon.send(prepare_request(turn, prompt=turn.encode()))
    pids = {daemon.expect(domain.Prepared).run.pid for _ in turns}
    for turn in turns:
        daemon.send(Go(turn, 1))
    assert {int(line) for line in worlds.wait_lines(started, 50)} == pids
    assert [daemon.phase(turn) for turn in turns] == ["running"] * 50
    gate.touch()
    finished = [daemon.expect(Finished) for _ in turns]
    assert {(event.turn, event.result.reply) for event in finished} == {
        (turn, turn.encode()) for turn in turns
    }
    assert worlds.gone(*pids)
    assert len(world.records) == 50
    for turn in turns:
        daemon.forget(turn)
    assert daemon.phase(turns[-1]) == "unknown"
    assert world.records == []


def test_nothing_of_a_hundred_runs_stays_behind(world: World) -> None:
    world.program("/bin/cat")
    daemon = world.up()
    runner = world.runners[-1].pid
    daemon.run("warm-up")
    daemon.forget("warm-up")
    before = len(list(Path(f"/proc/{runner}/fd").iterdir()))
    for number in range(100):
        daemon.run(f"t{number}")
        daemon.forget(f"t{number}")
    assert daemon.phase("t99") == "unknown"
    assert len(list(Path(f"/proc/{runner}/fd").iterdir())) == before
    assert Path(f"/proc/{runner}/task/{runner}/children").read_text() == ""
    assert len(list(Path(f"/proc/{runner}/task").iterdir())) == 1
    assert world.records == []
