"""`tamq run`: the person's terminal goes through unchanged, and messages come in between."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corral.local.wait import until_async
from corral.tamq.terminal import process
from corral.tamq.terminal.base import Outcome, Ready
from corral.tamq.terminal.spawn import Size, size_of
from corral.tamq.terminal.text import render
from tests.contract.terminal.hosted import USUAL, Hosted, environment
from tests.contract.terminal.panes import Agent, envelope, is_prompt, soon, wake

Start = Callable[..., Hosted]
BASH = ("bash", "--norc", "--noprofile")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Hosted] = []

    def start(profile: str, *command: str, size: Size = USUAL) -> Hosted:
        started.append(Hosted(tmp_path, profile, command, size))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def start_agent(start: Start, tmp_path: Path) -> Callable[..., tuple[Hosted, Agent]]:
    def begin(look: str, *options: str) -> tuple[Hosted, Agent]:
        agent = Agent(tmp_path, look, *options)
        hosted = start(look, *agent.argv)
        hosted.see("? for shortcuts")
        return hosted, agent

    return begin


StartAgent = Callable[..., tuple[Hosted, Agent]]
LOOKS = ["claude-code", "codex"]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("body", ["hello", "a\nb;\t-x \"'", "世界 " * 900], ids=lambda b: b[:5])
async def test_a_message_arrives(start_agent: StartAgent, look: str, body: str) -> None:
    hosted, agent = start_agent(look)
    terminal = hosted.open()
    assert (await terminal.readiness(wake(body))).state is Ready.READY
    injection = await terminal.inject(wake(body))
    assert (injection.outcome, injection.reason) == (Outcome.INJECTED, "drained")
    assert agent.submitted == [envelope(body)]


async def test_the_text_is_on_the_prompt_line_of_a_shell(start: Start, tmp_path: Path) -> None:
    hosted = start("shell", *BASH)
    hosted.see("$")
    terminal = hosted.open()
    body = f"touch {tmp_path}/one;\ntouch {tmp_path}/two"
    injection = await terminal.inject(wake(body))
    assert (injection.outcome, injection.enters) == (Outcome.INJECTED, 0)
    hosted.see("end of TAMQ")
    # bash asked for bracketed paste, so the lines are lines, and none of them was run.
    assert f"\n[end of TAMQ message {wake(body).message_id}]" in hosted.shown
    again = await terminal.readiness(wake("other", message_id="8-" + "ab" * 16))
    assert (again.state, again.reason) == (Ready.DRAFT, "draft")
    assert not (tmp_path / "one").exists()


async def test_without_bracketed_paste_lines_are_joined(start: Start, tmp_path: Path) -> None:
    hosted = start("shell", *BASH)
    hosted.see("$")
    hosted.type("bind 'set enable-bracketed-paste off'; clear\r")
    soon(lambda: hosted.shown.strip() == "$", "the cleared screen")
    body = f"touch {tmp_path}/one\ntouch {tmp_path}/two"
    assert (await hosted.open().inject(wake(body))).outcome is Outcome.INJECTED
    hosted.type("\x03")
    soon(lambda: is_prompt(hosted.shown), "the new prompt")
    hosted.type(f"touch {tmp_path}/control\r")
    soon((tmp_path / "control").exists, "the positive control")
    assert not (tmp_path / "one").exists()


async def test_f20_a_draft_defers(start_agent: StartAgent) -> None:
    hosted, agent = start_agent("claude-code")
    hosted.type("half a thou")
    hosted.see("half a thou")
    terminal = hosted.open()
    assert (await terminal.inject(wake("hello"))).reason == "draft"
    hosted.type("ght\r")
    hosted.see("Try")  # the hint of an empty composer
    assert agent.submitted == ["half a thought"]
    assert (await terminal.inject(wake("hello"))).outcome is Outcome.INJECTED


READS_LINES = """
import signal, sys
def noise(*_):
    sys.stdout.write("something happened\\n")
    sys.stdout.flush()
signal.signal(signal.SIGUSR1, noise)
sys.stdout.write("ready\\n")
sys.stdout.flush()
for line in sys.stdin:
    with open(sys.argv[1], "a") as file:
        file.write(line)
"""


@pytest.fixture
def reader(start: Start, tmp_path: Path) -> tuple[Hosted, Path]:
    """A program that reads lines, and prints a line of its own on SIGUSR1."""
    read = tmp_path / "read"
    hosted = start("plain", sys.executable, "-c", READS_LINES, str(read), size=Size(250, 24))
    hosted.see("ready")
    return hosted, read


async def hide(hosted: Hosted, text: str) -> None:
    """Type something, and have the program print over it: the cursor's line is empty then."""
    hosted.type(text)
    hosted.see(text)
    os.kill(hosted.address.process.pid, signal.SIGUSR1)
    hosted.see("something happened")


async def test_f20_a_draft_that_the_program_printed_over_is_still_a_draft(
    reader: tuple[Hosted, Path],
) -> None:
    hosted, read = reader
    await hide(hosted, "half a thou")
    terminal = hosted.open()
    assert (await terminal.readiness(wake("hello"))).state is Ready.DRAFT
    assert (await terminal.inject(wake("hello"))).reason == "draft"
    hosted.type("ght\r")
    soon(lambda: read.exists() and read.read_text() == "half a thought\n", "the person's line")
    assert (await terminal.inject(wake("hello"))).outcome is Outcome.INJECTED
    soon(lambda: len(read.read_text().splitlines()) == 2, "the message, in a line of its own")


async def test_f21_a_text_of_ours_that_was_printed_over_gets_only_enter(
    reader: tuple[Hosted, Path],
) -> None:
    hosted, read = reader
    first = render(wake("hello"), one_line=True).text
    await hide(hosted, first)
    terminal = hosted.open()
    assert (await terminal.readiness(wake("other", 1, message_id="8-" + "ab" * 16))).reason == (
        "draft"
    )
    assert (await terminal.readiness(wake("hello", 2, 1))).pasted
    injection = await terminal.inject(wake("hello", 2, 1))
    assert (injection.outcome, injection.enters) == (Outcome.INJECTED, 1)
    soon(lambda: read.exists() and read.read_text() == f"{first}\n", "exactly one line")


async def test_f20_keys_typed_meanwhile_come_after(start_agent: StartAgent) -> None:
    hosted, agent = start_agent("codex", "--swallow", "1")
    injecting = asyncio.ensure_future(hosted.open().inject(wake("hello")))
    await asyncio.to_thread(hosted.see, "end of TAMQ")
    hosted.type("and I\r")
    assert (await injecting).outcome is Outcome.INJECTED
    soon(lambda: len(agent.submitted) == 2, "both")
    assert agent.submitted == [envelope("hello"), "and I"]


async def test_f24_a_question_is_never_answered(start_agent: StartAgent) -> None:
    hosted, agent = start_agent("codex")
    hosted.type("\x10")
    hosted.see("1. Yes")
    assert (await hosted.open().inject(wake("hello"))).reason == "dialog"
    assert agent.events == []


async def test_f27_another_program_in_the_foreground_defers(start: Start) -> None:
    hosted = start("shell", *BASH)
    hosted.see("$")
    hosted.type("cat\r")
    terminal = hosted.open()

    async def is_(state: Ready) -> bool:
        return (await terminal.readiness()).state is state

    await until_async(lambda: is_(Ready.OTHER_PROGRAM), 30, "the other program")
    assert (await terminal.inject(wake("hello"))).reason == "other_program"
    hosted.type("\x03")
    await until_async(lambda: is_(Ready.READY), 30, "the shell")
    assert (await terminal.inject(wake("hello"))).outcome is Outcome.INJECTED


async def test_a_killed_daemon_learns_what_became_of_its_attempt(start_agent: StartAgent) -> None:
    """The host finishes what it began; the message is not shown twice."""
    hosted, agent = start_agent("claude-code")
    first = asyncio.ensure_future(hosted.open().inject(wake("hello")))
    await asyncio.to_thread(hosted.see, "end of TAMQ")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    soon(lambda: agent.submitted == [envelope("hello")], "the whole injection")
    terminal = hosted.open()
    second = await terminal.inject(wake("hello", 2, 1))
    assert second.outcome is Outcome.INJECTED
    assert agent.submitted == [envelope("hello")]
    # A redelivery for want of an acknowledgement is shown again, and says so.
    assert (await terminal.inject(wake("hello", 3))).outcome is Outcome.INJECTED
    assert agent.submitted[1:] == [envelope("hello", 3)]


async def test_an_agent_that_hangs_gets_the_text_once(start_agent: StartAgent) -> None:
    hosted, agent = start_agent("codex")
    terminal = hosted.open()
    target = hosted.address.process.pid
    os.kill(target, signal.SIGSTOP)
    first = await terminal.inject(wake("a"))
    assert (first.outcome, first.reason) == (Outcome.UNKNOWN, "paste_not_seen")
    second = await terminal.inject(wake("a", 2, 1))
    assert (second.outcome, second.reason) == (Outcome.NOT_READY, "unread_input")
    os.kill(target, signal.SIGCONT)
    hosted.see("end of TAMQ")
    third = await terminal.inject(wake("a", 3, 1))
    assert (third.outcome, third.enters) == (Outcome.INJECTED, 1)
    assert agent.submitted == [envelope("a", 1)]


# ---- what the person sees -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -9 $$"), 137),
        (("no-such-program",), 127),
        (("/etc/passwd",), 126),
    ],
)
def test_the_exit_status_goes_through(start: Start, command: tuple[str, ...], status: int) -> None:
    assert start("plain", *command).wait() == status


def test_a_program_that_is_nowhere_is_that_whatever_stands_in_the_path(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a folder of another user; a file in its place is refused to root, too."""
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/etc/passwd")
    assert start("plain", "no-such-program").wait() == 127


def test_what_was_said_last_is_shown(start: Start) -> None:
    hosted = start("plain", "sh", "-c", "printf '%05000d' 1; echo; echo last")
    assert hosted.wait() == 0
    hosted.see("last")


def test_the_terminal_is_restored(start: Start) -> None:
    hosted = start("plain", "sh", "-c", "read line; exit 3")
    hosted.address  # noqa: B018  waits for it
    soon(lambda: not termios.tcgetattr(hosted.slave)[3] & termios.ICANON, "raw mode")
    hosted.type("\r")
    assert hosted.wait() == 3
    assert termios.tcgetattr(hosted.slave) == hosted.settings


def test_the_window_size_goes_through(start: Start) -> None:
    hosted = start("plain", *BASH, size=Size(100, 30))
    inside = Path(f"/proc/{hosted.address.process.pid}/fd/0").resolve()

    def size() -> Size:
        with inside.open("rb", buffering=0) as terminal:
            return size_of(terminal.fileno())

    assert size() == Size(100, 30)
    hosted.resize(Size(90, 20))
    soon(lambda: size() == Size(90, 20), "the new size")
    hosted.type("stty size\r")
    hosted.see("20 90")


def test_what_is_typed_too_early_is_kept(start: Start) -> None:
    hosted = start("plain", *BASH)
    hosted.type("echo $((40 + 2))\r")
    hosted.see("42")


def test_control_c_is_a_key(start: Start) -> None:
    hosted = start("plain", "sh", "-c", "trap 'echo caught; exit 5' INT; while :; do read x; done")
    hosted.address  # noqa: B018  waits for it
    hosted.type("a\r")
    hosted.see("a")
    hosted.type("\x03")
    hosted.see("caught")
    assert hosted.wait() == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_even_a_shell(start: Start, number: signal.Signals) -> None:
    hosted = start("shell", *BASH)
    hosted.see("$")
    target = hosted.address.process
    hosted.program.send_signal(number)
    assert hosted.wait() == 128 + signal.SIGHUP
    assert process.find(target) is None


def test_a_closed_window_hangs_the_program_up(start: Start, tmp_path: Path) -> None:
    hosted = start("shell", *BASH)
    hosted.see("$")
    target = hosted.address.process
    hosted.hang_up()
    assert hosted.wait() == 128 + signal.SIGHUP
    assert process.find(target) is None
    assert (tmp_path / "stderr").read_bytes() == b""


def test_when_the_host_is_killed_the_program_is_hung_up(start: Start) -> None:
    hosted = start("shell", *BASH)
    hosted.see("$")
    target = hosted.address.process
    hosted.program.kill()
    soon(lambda: process.find(target) is None, "the end of the program")


async def test_an_endpoint_whose_program_or_host_died_is_gone(start: Start) -> None:
    hosted = start("shell", *BASH)
    hosted.see("$")
    terminal = hosted.open()
    os.kill(hosted.address.process.pid, signal.SIGKILL)
    assert hosted.wait() == 128 + signal.SIGKILL
    assert (await terminal.readiness()).state is Ready.GONE
    assert (await terminal.inject(wake("hello"))).outcome is Outcome.GONE
    assert not Path(hosted.address.socket).exists()
    with pytest.raises(OSError, match="cannot be seen"):
        await terminal.capture()


async def test_a_host_that_is_stopped_is_unreachable_not_gone(start: Start) -> None:
    hosted = start("shell", *BASH)
    hosted.see("$")
    terminal = hosted.open()
    hosted.program.send_signal(signal.SIGSTOP)
    assert (await terminal.readiness()).state is Ready.UNREACHABLE
    hosted.program.send_signal(signal.SIGCONT)
    assert (await terminal.inject(wake("hello"))).outcome is Outcome.INJECTED


async def test_a_failed_registration_does_not_end_the_session(start: Start, tmp_path: Path) -> None:
    (tmp_path / "fails").touch()
    hosted = start("shell", *BASH)
    hosted.see("$")
    soon(lambda: b"not registered" in (tmp_path / "stderr").read_bytes(), "the message")
    hosted.type("echo $((40 + 2))\r")
    hosted.see("42")


def test_without_a_terminal_it_runs_too(tmp_path: Path) -> None:
    argv = [sys.executable, "-P", "-m", "tests.contract.terminal.hosted", "plain", str(tmp_path)]
    # The program waits for the answer of a terminal to its query.
    query = "stty raw; printf '\\033[6n'; dd bs=1 count=6 2>&1; stty size"
    argv += ["sh", "-c", query]
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, env=environment()
    )
    assert done.returncode == 0
    assert b"\x1b[1;1R" in done.stdout
    assert b"24 80" in done.stdout


async def test_the_socket_is_private_and_takes_no_garbage(start: Start) -> None:
    hosted = start("shell", *BASH)
    hosted.see("$")
    path = Path(hosted.address.socket)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for line in (b"{}\n", b"garbage\n", b'{"op":"inject","wake":{}}\n', b'{"op":"inject"}\n'):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(line)
        assert b'"invalid_request"' in await reader.readline()
        writer.close()
    assert (await hosted.open().inject(wake("hello"))).outcome is Outcome.INJECTED


async def test_capture_shows_what_the_person_sees(start: Start) -> None:
    hosted = start("shell", *BASH)
    hosted.type("echo $((40 + 2))\r")
    hosted.see("42")
    assert "42" in await hosted.open().capture()


def test_a_flood_of_output_goes_through_whole(start: Start) -> None:
    hosted = start("plain", "sh", "-c", "seq 1 60000; echo 'the end'")
    assert hosted.wait() == 0
    hosted.see("the end")
    numbers = [int(one) for one in hosted.output.split() if one.isdigit()]
    assert numbers == list(range(1, 60001))
