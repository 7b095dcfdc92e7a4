"""Programs that read lines, with a prompt of their own or none, in tmux and under `tamq run`."""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from corral.local.wait import until_async
from corral.tamq.terminal import open_terminal, process
from corral.tamq.terminal.attach import discover
from corral.tamq.terminal.base import Outcome, Readiness, Ready, Terminal, Wake
from corral.tamq.terminal.profiles import BUILT_IN
from corral.tamq.terminal.spawn import Size
from corral.tamq.terminal.text import render
from tests.contract.terminal.conftest import StartTmux
from tests.contract.terminal.hosted import PATIENCE_S, Hosted
from tests.contract.terminal.panes import Tmux, soon, wake

# It answers as an interactive program does: with a line of its own, then its prompt again.
READER = """
import os, signal, sys
{before}
with open({log!r} + ".pid", "w") as file:
    file.write(str(os.getpid()))
def ask(*_):
    sys.stdout.write("> ")
    sys.stdout.flush()
signal.signal(signal.SIGUSR1, ask)
signal.signal(signal.SIGUSR2, lambda *_: print("something happened", flush=True))
print("ready", flush=True)
while True:
    line = input({prompt!r})
    with open({log!r}, "a") as file:
        file.write(line + "\\n")
    print("got", len(line), flush=True)
"""
PROMPTS = {"prompt": ("", "> "), "no prompt": ("", ""), "line editing": ("import readline", ">>> ")}


@dataclass
class Session:
    terminal: Terminal
    window: Hosted | Tmux
    log: Path

    @property
    def pid(self) -> int:
        return int(Path(f"{self.log}.pid").read_text())

    @property
    def read(self) -> list[str]:
        return self.log.read_text().split("\n")[:-1] if self.log.exists() else []

    def type(self, text: str) -> None:
        self.window.type("-l", text) if isinstance(self.window, Tmux) else self.window.type(text)

    async def until(self, state: Ready, reason: str, asked: Wake) -> Readiness:
        async def is_so() -> Readiness | None:
            found = await self.terminal.readiness(asked)
            return found if (found.state, found.reason) == (state, reason) else None

        found = await until_async(is_so, PATIENCE_S, reason)
        assert found is not None
        return found


Begin = Callable[..., Awaitable[Session]]


@pytest.fixture(params=["tmux", "pty"])
async def begin(
    request: pytest.FixtureRequest, tmp_path: Path, start_tmux: StartTmux
) -> AsyncIterator[Begin]:
    hosted: list[Hosted] = []
    log = tmp_path / "read"

    async def start(how: str, *, width: int = 80) -> Session:
        before, prompt = PROMPTS[how]
        source = READER.format(before=before, prompt=prompt, log=str(log))
        argv = [sys.executable, "-c", source]
        if request.param == "pty":
            hosted.append(Hosted(tmp_path, "plain", argv, Size(width, 24)))
            hosted[0].see(f"ready\n{prompt}".rstrip())
            session = Session(hosted[0].open(), hosted[0], log)
            await session.until(Ready.READY, "ready", wake("x"))
            return session
        # A child of a child: what tmux started itself, it continues when it is stopped.
        pane = start_tmux(f"{shlex.join(argv)}; :", width=width, height=24)
        pane.see(f"ready\n{prompt}".rstrip())
        address = await discover(pane.socket, pane.pane)
        session = Session(open_terminal(address, BUILT_IN["plain"]), pane, log)
        await session.until(Ready.READY, "ready", wake("x"))
        return session

    yield start
    for one in hosted:
        one.close()


@pytest.mark.parametrize("how", PROMPTS)
async def test_each_message_is_read_once_and_seen_to_be(begin: Begin, how: str) -> None:
    session = await begin(how)
    for attempt in (1, 2, 3):
        asked = wake("hello", attempt)
        await session.until(Ready.READY, "ready", asked)
        injection = await session.terminal.inject(asked)
        assert (injection.outcome, injection.reason) == (Outcome.INJECTED, "drained")
        assert injection.enters == 1
        assert session.read[attempt - 1 :] == [render(asked, one_line=True).text]


@pytest.mark.parametrize("width", [80, 171, 172, 173])  # the text is 170 columns long
async def test_a_prompt_that_was_printed_behind_our_text_is_not_somebodys(
    begin: Begin, width: int
) -> None:
    session = await begin("no prompt", width=width)
    ours = render(wake("x"), one_line=True).text
    session.type(ours)
    await session.until(Ready.READY, "pasted", wake("x", 2, 1))
    os.kill(session.pid, signal.SIGUSR1)
    soon(lambda: "]> " in session.window.shown or "]>" in session.window.shown, "the prompt")
    other = await session.terminal.readiness(wake("x", message_id="8-" + "ab" * 16))
    assert (other.state, other.reason) == (Ready.DRAFT, "draft")
    injection = await session.terminal.inject(wake("x", 2, 1))
    assert (injection.outcome, injection.reason) == (Outcome.INJECTED, "drained")
    soon(lambda: session.read, "the line")
    assert session.read == [ours]


async def test_what_is_printed_between_our_text_and_enter_does_no_harm(begin: Begin) -> None:
    session = await begin("no prompt")
    injecting = asyncio.ensure_future(session.terminal.inject(wake("x")))
    await asyncio.to_thread(session.window.see, "end of TAMQ")
    os.kill(session.pid, signal.SIGUSR2)
    injection = await injecting
    assert (injection.outcome, injection.reason) == (Outcome.INJECTED, "drained")
    await asyncio.to_thread(session.window.see, "something happened")
    assert session.read == [render(wake("x"), one_line=True).text]


async def test_our_text_with_somebody_elses_is_a_failed_attempt(begin: Begin) -> None:
    session = await begin("prompt")
    session.type(render(wake("x"), one_line=True).text + " and I")
    await session.until(Ready.READY, "draft_mixed", wake("x", 2, 1))
    injection = await session.terminal.inject(wake("x", 2, 1))
    assert (injection.outcome, injection.reason) == (Outcome.NOT_SUBMITTED, "draft_mixed")
    assert (injection.typed, injection.enters) == (True, 0)
    assert (await session.terminal.readiness(wake("x"))).state is Ready.DRAFT
    assert session.read == []


BODIES = {
    "variation selector": "I \u2764\ufe0f it \u260e\ufe0f 1\ufe0f\u20e3 end",
    "skin": "\U0001f44d\U0001f3fd end",
    "flag": "\U0001f1e8\U0001f1ed end",
    "family": "a \U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 end",
    "marks": "e\u0301 e\u200b\u0301 n\u0303 end",
    "hindi": "\u0939\u093f\u0928\u094d\u0926\u0940 \u0915\u094d\u200d\u0937 end",
    "thai": "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u0e19\u0e49\u0e33 end",
    "korean in parts": "\u1112\u1161\u11ab\u1100\u1173\u11af end",
    "no width": "a\u200bb\u2060c\u00add end",
    "direction": "a\u202eb \u05e9\u05dc\u05d5\u05dd end",
    "byte order": "a\ufeffb end",
    "line separator": "a\u2028b\u2029c end",
}


async def test_what_terminals_draw_in_their_own_way_is_known_as_ours(begin: Begin) -> None:
    session = await begin("prompt", width=200)
    for number, body in enumerate(BODIES.values(), 1):
        asked = wake(body, number)
        await session.until(Ready.READY, "ready", asked)
        injection = await session.terminal.inject(asked)
        assert (body, injection.outcome, injection.reason) == (body, Outcome.INJECTED, "drained")
        assert session.read[number - 1 :] == [render(asked, one_line=True).text]


async def test_what_a_stopped_program_has_not_read_is_not_injected(
    begin: Begin,
) -> None:
    session = await begin("no prompt")
    os.kill(session.pid, signal.SIGSTOP)
    injection = await session.terminal.inject(wake("x"))
    assert (injection.outcome, injection.reason) == (Outcome.UNKNOWN, "not_read")
    assert (injection.typed, injection.enters) == (True, 1)
    waits = await session.terminal.readiness(wake("x", 2, 1))
    assert (waits.state, waits.reason) == (Ready.BUSY, "unread_input")
    os.kill(session.pid, signal.SIGCONT)
    await session.until(Ready.READY, "read_late", wake("x", 2, 1))
    # Another daemon has it from its queue (and a session under `tamq run` from that).
    another = open_terminal(session.terminal.address, BUILT_IN["plain"])
    told = await another.readiness(replace(wake("x", 2, 1), unread=True))
    await another.close()
    assert (told.state, told.reason) == (Ready.READY, "read_late")
    late = await session.terminal.inject(wake("x", 2, 1))
    assert (late.outcome, late.reason, late.enters) == (Outcome.INJECTED, "read_late", 0)
    soon(lambda: session.read, "the line")
    assert session.read == [render(wake("x"), one_line=True).text]
    # Wanted again for want of an acknowledgement: written again.
    again = await session.terminal.inject(wake("x", 3))
    assert (again.outcome, again.reason) == (Outcome.INJECTED, "drained")
    assert len(session.read) == 2


async def test_what_a_program_never_read_is_not_injected_when_it_is_killed(
    begin: Begin,
) -> None:
    session = await begin("prompt")
    os.kill(session.pid, signal.SIGSTOP)
    assert (await session.terminal.inject(wake("x"))).outcome is Outcome.UNKNOWN
    os.kill(session.pid, signal.SIGKILL)
    soon(lambda: process.find(session.terminal.address.process) is None, "its end")
    assert (await session.terminal.inject(wake("x", 2, 1))).outcome is Outcome.GONE
    assert session.read == []


async def test_a_line_that_can_never_fit_is_a_failed_attempt(begin: Begin) -> None:
    session = await begin("prompt")
    long = wake("x" * 4095)
    assert (await session.terminal.readiness(long)).reason == "line_too_long"
    injection = await session.terminal.inject(long)
    assert (injection.outcome, injection.reason) == (Outcome.NOT_READY, "line_too_long")
    assert not injection.typed
    assert (await session.terminal.inject(wake("short"))).outcome is Outcome.INJECTED
    assert session.read == [render(wake("short"), one_line=True).text]
