"""The runner process at its socket: who is served, which connection is live, what is idempotent."""

import contextlib
import json
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from corral.cowboy.runner import domain, processes
from corral.cowboy.runner.domain import (
    Finished,
    Forget,
    Go,
    Hello,
    Kill,
    Prepared,
    Query,
    Refused,
    Rejected,
    RunPhase,
    RunState,
)
from corral.cowboy.runner.transport import CONNECTIONS_MAX
from corral.local.wait import until
from tests.unit.runner import world as worlds
from tests.unit.runner.launch import Program
from tests.unit.runner.world import AGENT, LEDGER, WAIT_S, World, prepare_request, shell

DAEMON_UID, THIRD_UID = 61_234, 61_235
TURN = "scout.a2a.1.1732935482123-0"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with worlds.world(tmp_path) as made:
        yield made


def test_a_run_from_hello_to_forget(world: World) -> None:
    daemon = world.up()
    assert daemon.welcome is not None
    assert daemon.welcome.boot == processes.boot_id()
    prepared = daemon.prepare(TURN, prompt=b"\x00\xff bytes")
    assert worlds.alive(prepared.run.pid)
    assert prepared.run.group == f"pgid:{prepared.run.pid}"
    assert daemon.phase(TURN) is RunPhase.PREPARED
    daemon.forget(TURN)  # not over: ignored
    assert daemon.phase(TURN) is RunPhase.PREPARED
    daemon.send(Go(TURN, 1))
    result = daemon.expect(Finished).result
    assert (result.outcome, result.went) == ("output_invalid", True)
    assert daemon.state(TURN) == RunState(TURN, 1, RunPhase.FINISHED, result)
    daemon.forget(TURN)
    assert daemon.state(TURN) == RunState(TURN, 1, RunPhase.UNKNOWN, None)
    assert world.records == []


def test_prepare_and_go_are_idempotent(world: World) -> None:
    ran = world.directory / "ran"
    world.program(*shell(f"echo $$ >> {ran}; cat"))
    daemon = world.up()
    first = daemon.prepare(TURN)
    assert [daemon.prepare(TURN) for _ in range(3)] == [first] * 3
    daemon.send(*[Go(TURN, 1)] * 3)
    result = daemon.expect(Finished).result
    assert result.reply == b"hello"
    assert daemon.prepare(TURN) == first
    daemon.send(Go(TURN, 1), Kill(TURN, 1, "late"))
    assert [daemon.expect(Finished).result for _ in range(2)] == [result] * 2
    assert ran.read_text().split() == [str(first.run.pid)]


def test_orders_for_what_is_not_there_are_answered_with_its_state(world: World) -> None:
    daemon = world.up()
    daemon.send(Go(TURN, 1), Kill(TURN, 1, "cancel"), Forget(TURN, 1), Query(((TURN, 1),)))
    expected = RunState(TURN, 1, RunPhase.UNKNOWN, None)
    assert [daemon.expect(RunState) for _ in range(3)] == [expected] * 3


def test_attempts_of_one_turn_never_live_together(world: World) -> None:
    world.program(*shell("read line; echo $line"))
    daemon = world.up()
    daemon.prepare(TURN, 2, prompt=b"second\n")
    for attempt in (1, 3):
        daemon.send(prepare_request(TURN, attempt))
        assert daemon.expect(Refused) == Refused(TURN, attempt, "other_attempt_not_over")
    daemon.send(Go(TURN, 2))
    assert daemon.expect(Finished).result.reply == b"second\n"
    daemon.send(prepare_request(TURN, 1))
    assert daemon.expect(Refused).reason == "later_attempt_known"
    assert daemon.state(TURN, 1).state is RunPhase.UNKNOWN
    daemon.prepare(TURN, 3)  # says that the result of attempt 2 is not wanted any more
    assert daemon.state(TURN, 2).state is RunPhase.UNKNOWN
    assert daemon.kill(TURN, 3).went is False
    assert world.records == [f"{TURN}.3.json"]


def test_a_refused_run_leaves_nothing(world: World) -> None:
    daemon = world.up()
    for changes, reason in (
        ({"source": "nowhere"}, "source_unknown"),
        ({"sender": b"a\0b"}, "metadata_invalid: CORRAL_SENDER contains a NUL byte"),
        ({"channel": b"\0"}, "metadata_invalid: CORRAL_CHANNEL contains a NUL byte"),
        ({"traceparent": b"\0"}, "metadata_invalid: TRACEPARENT contains a NUL byte"),
        ({"entry": "1\0"}, "metadata_invalid: CORRAL_ENTRY_ID contains a NUL byte"),
        ({"session": "\ud800"}, "metadata_invalid: CORRAL_SESSION_ID is not text"),
    ):
        daemon.send(prepare_request(TURN, 1, **changes))
        assert daemon.expect(Refused) == Refused(TURN, 1, reason)
        assert daemon.state(TURN).state is RunPhase.UNKNOWN
    assert world.records == []
    assert daemon.run(TURN).outcome == "completed"  # the same attempt may still be prepared


def test_a_new_hello_fences_the_old_connection_and_its_unread_bytes(world: World) -> None:
    old = world.up()
    prepared = old.prepare(TURN)
    half = domain.encode_request(Go(TURN, 1))
    old.socket.sendall(half[:-5])  # an order that is on its way when the connection is replaced
    new = world.daemon()
    assert old.next() is None
    with contextlib.suppress(ConnectionError):
        old.socket.sendall(half[-5:])
    assert new.phase(TURN) is RunPhase.PREPARED
    assert new.prepare(TURN) == prepared
    new.send(Go(TURN, 1))
    assert new.expect(Finished).result.outcome == "completed"


def test_a_connection_without_a_hello_does_not_fence(world: World) -> None:
    daemon = world.up()
    stranger = world.connect()
    assert daemon.phase(TURN) is RunPhase.UNKNOWN
    stranger.send(Query(((TURN, 1),)))
    assert "begins with a hello" in stranger.expect(Rejected).reason
    assert stranger.next() is None
    assert daemon.phase(TURN) is RunPhase.UNKNOWN


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (Hello(2, AGENT, LEDGER), "protocol 2 is not spoken, 1 is"),
        (Hello(1, "other", LEDGER), "this runner serves 'scout', not 'other'"),
    ],
)
def test_another_protocol_or_agent_is_rejected_and_does_not_fence(
    world: World, hello: Hello, reason: str
) -> None:
    daemon = world.up()
    other = world.connect()
    other.send(hello)
    assert other.expect(Rejected).reason == reason
    assert other.next() is None
    assert daemon.phase(TURN) is RunPhase.UNKNOWN


def test_noise_closes_the_connection_and_nothing_else(world: World) -> None:
    daemon = world.up()
    daemon.prepare(TURN)
    daemon.socket.sendall(b"\xff\xfe\n" + domain.encode_request(Go(TURN, 1)))
    assert daemon.expect(Rejected).reason == "the frame is not JSON"
    assert daemon.next() is None
    assert world.daemon().phase(TURN) is RunPhase.PREPARED


def test_a_frame_of_the_largest_size_is_served_and_a_longer_one_is_not(world: World) -> None:
    daemon = world.up()
    bare = json.dumps({"op": "query", "turns": [[TURN, 1]], "pad": ""}).encode() + b"\n"
    padding = b"x" * (domain.FRAME_MAX_BYTES - len(bare))
    daemon.socket.sendall(bare.replace(b'""', b'"' + padding + b'"'))
    assert daemon.expect(RunState).state is RunPhase.UNKNOWN
    daemon.socket.sendall(bare.replace(b'""', b'"' + padding + b'x"'))
    assert str(domain.FRAME_MAX_BYTES) in daemon.expect(Rejected).reason
    assert world.daemon().phase(TURN) is RunPhase.UNKNOWN


def test_results_are_held_while_no_daemon_is_there_and_offered_until_forget(world: World) -> None:
    gate = world.directory / "gate"
    os.mkfifo(gate)
    world.program(*shell(f"cat; cat {gate}"))
    first = world.up()
    run = first.prepare(TURN).run
    first.send(Go(TURN, 1))
    assert first.phase(TURN) is RunPhase.RUNNING
    first.close()
    gate.write_bytes(b" world")  # opens when the program reads: it is running without a daemon
    until(lambda: '"run_over"' in world.log, WAIT_S, "the run to be over")
    worlds.wait_gone(run.pid)
    for _ in range(2):
        again = world.daemon()
        state = again.state(TURN)
        assert state.result is not None
        assert (state.state, state.result.reply) == (RunPhase.FINISHED, b"hello world")
        again.close()
    last = world.daemon()
    last.forget(TURN)
    assert last.phase(TURN) is RunPhase.UNKNOWN


def test_after_hello_the_runner_sends_nothing_by_itself(world: World) -> None:
    daemon = world.up()
    daemon.run(TURN)
    again = world.daemon()
    # The answer to the first question is the first thing to arrive.
    assert again.state("other").turn == "other"


def test_the_socket_is_private_and_the_records_too(world: World) -> None:
    daemon = world.up()
    daemon.prepare(TURN)
    assert stat.S_IMODE(world.socket.stat().st_mode) == 0o600
    runs = Path(world.launch.runs)
    assert stat.S_IMODE(runs.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in runs.iterdir()] == [0o600]
    text = (runs / f"{TURN}.1.json").read_text()
    assert "hello" not in text
    assert json.loads(text)["phase"] == "prepared"


def as_other_user(path: Path, uid: int) -> str:
    """What a process of another user gets when it says hello. Only root can ask."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = b"nothing"
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            daemon = worlds.Daemon(path)
            with contextlib.suppress(BrokenPipeError):  # a refusal does not wait for the hello
                daemon.send(Hello(1, AGENT, LEDGER))
            answer = type(daemon.next()).__name__.encode()
        except OSError as error:
            answer = type(error).__name__.encode()
        finally:
            os.write(write, answer)
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    answer = os.read(read, 100)
    os.close(read)
    return answer.decode()


@pytest.fixture
def open_directory(tmp_path: Path) -> Iterator[None]:
    """Lets other users reach the socket, so that only its own protection is tested."""
    changed = [path for path in (tmp_path, *tmp_path.parents) if path.stat().st_uid == os.getuid()]
    modes = [(path, stat.S_IMODE(path.stat().st_mode)) for path in changed]
    for path, mode in modes:
        path.chmod(mode | 0o005)
    yield
    for path, mode in modes:
        path.chmod(mode)


@pytest.mark.usefixtures("open_directory")
def test_other_users_cannot_reach_the_socket(world: World) -> None:
    world.up()
    if os.getuid() != 0:
        return  # tests/unit/runner/test_transport.py has the rule
    assert as_other_user(world.socket, DAEMON_UID) == "PermissionError"
    world.socket.chmod(0o666)  # and if it were open, the runner would look at the peer
    assert as_other_user(world.socket, DAEMON_UID) == "Rejected"
    assert as_other_user(world.socket, 0) == "Welcome"


@pytest.mark.usefixtures("open_directory")
def test_with_a_daemon_uid_that_user_is_served_and_no_third_one(world: World) -> None:
    world.start(daemon_uid=DAEMON_UID)
    mine = world.connect()
    assert stat.S_IMODE(world.socket.stat().st_mode) == 0o666
    if os.getuid() != 0:  # its own uid, which every run has, is not served either
        with contextlib.suppress(BrokenPipeError):  # it need not be asked to say so
            mine.send(Hello(domain.PROTOCOL_VERSION, AGENT, LEDGER))
        assert isinstance(mine.next(), Rejected)
        return  # tests/unit/runner/test_transport.py has the rule
    assert as_other_user(world.socket, DAEMON_UID) == "Welcome"
    assert as_other_user(world.socket, THIRD_UID) == "Rejected"
    assert as_other_user(world.socket, 0) == "Welcome"


def test_a_second_runner_is_refused_and_the_first_goes_on(world: World) -> None:
    daemon = world.up()
    daemon.prepare(TURN)
    second = world.start()
    assert second.wait(WAIT_S) == 69
    assert "another runner holds" in world.log
    world.runners.pop()
    assert daemon.phase(TURN) is RunPhase.PREPARED


def test_a_stale_socket_is_replaced(world: World) -> None:
    world.up()
    world.kill_runner()
    assert world.socket.exists()
    assert world.up().phase(TURN) is RunPhase.UNKNOWN


def test_a_socket_that_something_listens_on_is_left_alone(world: World) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(world.socket))
        listener.listen(1)
        assert world.start().wait(WAIT_S) == 69
        assert "another program listens at" in world.log
    assert world.socket.exists()


def test_a_file_in_the_place_of_the_socket_is_left_alone(world: World) -> None:
    world.socket.write_text("precious")
    assert world.start().wait(WAIT_S) == 78
    assert "config_invalid: runtime_dir" in world.log
    assert world.socket.read_text() == "precious"


@pytest.mark.parametrize(("length", "status"), [(107, None), (108, 78)])
def test_the_longest_socket_path(
    tmp_path_factory: pytest.TempPathFactory, length: int, status: int | None
) -> None:
    base = tmp_path_factory.mktemp("p")
    with worlds.world(base) as world:
        path = base / ("s" * (length - len(str(base)) - 1))
        world.launch = replace(world.launch, socket=str(path))
        if status is None:
            assert world.up().phase(TURN) is RunPhase.UNKNOWN
        else:
            assert world.start().wait(WAIT_S) == status
            assert f"has a path of {length} bytes, the system takes 107" in world.log


def test_connections_max(world: World) -> None:
    daemon = world.up()
    more = [world.connect() for _ in range(CONNECTIONS_MAX - 1)]
    surplus = world.connect()
    assert surplus.next() is None
    assert daemon.phase(TURN) is RunPhase.UNKNOWN
    for connection in more:
        connection.close()
    assert world.daemon().phase(TURN) is RunPhase.UNKNOWN


def test_runs_max_follows_from_the_limit_of_descriptors(world: World) -> None:
    world.program(*shell("exec sleep 1000"))
    daemon = world.up(nofile=64 + 3 * 6 + 5)
    for number in range(3):
        daemon.prepare(f"t{number}")
    daemon.send(prepare_request("t3"))
    assert daemon.expect(Refused).reason == "runs_max"
    daemon.kill("t0")
    assert isinstance(daemon.prepare("t3"), Prepared)


def test_an_echo_source_answers_with_the_prompt(world: World) -> None:
    world.launch = replace(world.launch, programs={"a2a": Program(reply_max_bytes=5)})
    daemon = world.up()
    assert daemon.prepare(TURN, prompt=b"12345").run.group == "none"
    assert daemon.phase(TURN) is RunPhase.PREPARED
    daemon.send(Go(TURN, 1))
    assert daemon.expect(Finished).result.reply == b"12345"
    assert daemon.run("t2", prompt=b"123456").outcome == "reply_too_large"
    assert daemon.run("t3", prompt=b"\xff").outcome == "output_invalid"
    daemon.prepare("t4")
    assert daemon.kill("t4") == replace(daemon.kill("t4"), outcome="killed", went=False)
    world.kill_runner()
    assert world.up().phase("t4") is RunPhase.NEVER_WENT
