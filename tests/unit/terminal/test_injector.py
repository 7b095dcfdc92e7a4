"""The injector against everything that can happen between its steps.

The session is a model here: real programs (the contract tests) cannot be made to change between
any two steps. What happens, happens before a look; what lies between a look and a write is the
window that the documentation names, and that `tamq run` closes.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corral.core.clock import ManualClock
from corral.tamq.terminal.base import Injection, Outcome, Readiness, Ready, Wake
from corral.tamq.terminal.injector import ENTERS_MAX, Injector, NotWrittenError, Port, Sight
from corral.tamq.terminal.process import LineMode
from corral.tamq.terminal.profiles import CLAUDE_CODE, PLAIN
from corral.tamq.terminal.screen import from_rows
from corral.tamq.terminal.text import Paste, render

RULE = "─" * 80
WAKE = Wake("7-" + "0f" * 16, 2, "local", "hello\nthere", (1,))
OURS = render(WAKE).text
BEFORE = render(WAKE, attempt=1).text
EVENTS = ["", "", "", "type", "enter", "dialog", "answer", "work", "rest", "exit", "copy", "slow"]


@dataclass
class Agent(Port):
    """An agent's composer, and a person at it whose deeds are the events, one before each look."""

    events: list[str]
    swallow: int = 0
    text: str = ""
    dialog: bool = False
    working: bool = False
    copy_mode: bool = False
    alive: bool = True
    slow: int = 0  # looks that still show what was before
    submitted: list[str] = field(default_factory=list)
    answered_by_us: int = 0
    pasted: int = 0
    pasted_wrongly: bool = False
    shown: Sight | None = None

    def happen(self, event: str) -> None:
        match event:
            case "type" if not self.dialog:
                self.text += "x"
            case "enter" if self.dialog:
                self.dialog = False
            case "enter" if self.text:
                self.submit()
            case "dialog":
                self.dialog = True
            case "answer":
                self.dialog = False
            case "work":
                self.working = True
            case "rest":
                self.working = False
            case "copy":
                self.copy_mode = not self.copy_mode
            case "exit":
                self.alive = False
            case "slow":
                self.slow = 3

    def submit(self) -> None:
        self.submitted.append(self.text)
        self.text = ""

    async def sight(self) -> Sight:
        self.happen(self.events.pop(0) if self.events else "")
        # A slow program shows its own text late; a person's question is there when it is seen.
        if self.slow and self.shown is not None and self.alive and not self.dialog:
            self.slow -= 1
            return self.shown
        self.shown = self.frame()
        return self.shown

    def frame(self) -> Sight:
        if not self.alive:
            return Sight(hindrance=Readiness(Ready.GONE, "process_gone"))
        if self.copy_mode:
            return Sight(hindrance=Readiness(Ready.COPY_MODE, "copy_mode"))
        if self.dialog:
            rows = [RULE, " Do you want to proceed?", " ❯ 1. Yes", "   2. No"]
        else:
            above = ["✻ Pondering… (esc to interrupt)"] if self.working else []
            lines = self.text.split("\n")
            rows = [*above, RULE, f"❯ {lines[0]}", *(f"  {one}" for one in lines[1:]), RULE]
        return Sight(screen=from_rows(rows, 0, 0), bracketed=True)

    async def paste(self, paste: Paste, *, bracketed: bool) -> None:
        if not self.alive:
            raise NotWrittenError("process_gone")
        self.pasted += 1
        self.pasted_wrongly |= bool(self.text or self.dialog or self.working or not bracketed)
        self.text += paste.text

    async def enter(self) -> None:
        if not self.alive:
            raise NotWrittenError("process_gone")
        if self.dialog:
            self.answered_by_us += 1
        elif self.swallow:
            self.swallow -= 1
        elif self.text:
            self.submit()

    @contextlib.asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        yield


class QuickClock(ManualClock):
    """Time passes as soon as somebody waits for it."""

    async def sleep(self, seconds: float) -> None:
        self.advance(max(0.0, seconds))
        await asyncio.sleep(0)


def inject(agent: Agent, wake: Wake = WAKE) -> Injection:
    return asyncio.run(Injector(agent, CLAUDE_CODE, QuickClock()).inject(wake))


@given(
    st.lists(st.sampled_from(EVENTS), max_size=25),
    st.integers(0, 5),
    st.sampled_from(["", "draft", BEFORE, BEFORE + "x"]),
    st.booleans(),
)
@example(["enter"], 0, BEFORE, False)
def test_whatever_happens_the_evidence_is_honest(
    events: list[str], swallow: int, text: str, dialog: bool
) -> None:
    agent = Agent(list(events), swallow, text, dialog)
    injection = inject(agent)
    ours = [one for one in agent.submitted if one in {OURS, BEFORE}]
    assert agent.answered_by_us == 0
    assert not agent.pasted_wrongly or "slow" in events
    assert agent.pasted <= 1
    assert injection.enters <= ENTERS_MAX
    assert all(one in {OURS, BEFORE} or "enter" in events for one in agent.submitted)
    match injection.outcome:
        case Outcome.INJECTED:
            # A person's Enter may send what an earlier attempt left, just before ours is typed.
            by_both = "enter" in events and text == BEFORE and ours == [BEFORE, OURS]
            assert len(ours) == 1 or by_both or "type" in events
        case Outcome.NOT_READY | Outcome.GONE:
            assert (agent.pasted, injection.typed, injection.enters) == (0, False, 0)
        case Outcome.NOT_SUBMITTED:
            assert injection.typed
            assert not ours or "enter" in events
        case Outcome.UNKNOWN:
            assert injection.typed


@pytest.mark.parametrize("swallow", range(ENTERS_MAX + 1))
def test_enter_is_retried_alone_and_bounded(swallow: int) -> None:
    agent = Agent([], swallow)
    injection = inject(agent)
    if swallow < ENTERS_MAX:
        assert injection == Injection(Outcome.INJECTED, "drained", True, swallow + 1)
        assert agent.submitted == [OURS]
    else:
        assert injection == Injection(Outcome.NOT_SUBMITTED, "enter_ignored", True, ENTERS_MAX)
        assert agent.submitted == []


@pytest.mark.parametrize(
    ("events", "outcome", "reason"),
    [
        (["dialog"], Outcome.NOT_READY, "dialog"),
        (["type"], Outcome.NOT_READY, "draft"),
        (["work"], Outcome.NOT_READY, "working"),
        (["copy"], Outcome.NOT_READY, "copy_mode"),
        (["exit"], Outcome.GONE, "process_gone"),
        (["", "type"], Outcome.NOT_SUBMITTED, "draft_mixed"),
        (["", "dialog"], Outcome.UNKNOWN, "paste_not_seen"),
        (["", "", "dialog"], Outcome.UNKNOWN, "text_vanished"),
        (["", "", "enter"], Outcome.UNKNOWN, "text_vanished"),
        (["", "", "type"], Outcome.NOT_SUBMITTED, "draft_mixed"),
        (["", "exit"], Outcome.UNKNOWN, "gone_after_paste"),
        (["", "", "", "exit"], Outcome.UNKNOWN, "gone_after_enter"),
        (["", "", "", "dialog"], Outcome.UNKNOWN, "not_seen_to_drain"),
        (["", "", "", "work"], Outcome.INJECTED, "drained"),
        (["", "copy", "", "copy"], Outcome.INJECTED, "drained"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else str(value),
)
def test_what_happens_at_each_step(events: list[str], outcome: Outcome, reason: str) -> None:
    injection = inject(Agent(list(events)))
    assert (injection.outcome, injection.reason) == (outcome, reason)


def test_a_text_of_an_earlier_attempt_gets_only_enter_unless_the_agent_works() -> None:
    agent = Agent([], text=BEFORE)
    assert inject(agent) == Injection(Outcome.INJECTED, "drained", True, 1)
    assert (agent.pasted, agent.submitted) == (0, [BEFORE])
    assert inject(Agent([], text=BEFORE, working=True)).reason == "working"


def test_what_the_program_has_not_read_yet_is_waited_for() -> None:
    class Behind(Agent):
        def frame(self) -> Sight:
            return dataclasses.replace(super().frame(), unread=1)

    assert inject(Behind([])) == Injection(Outcome.NOT_READY, "unread_input")


def test_without_an_earlier_attempt_the_same_text_is_somebody_elses() -> None:
    agent = Agent([], text=OURS)
    assert inject(agent, Wake(WAKE.message_id, 2, "local", WAKE.body)).reason == "draft"


# ---- a program that reads whole lines, which the kernel echoes ---------------------------------


@dataclass
class Reader(Port):
    """Input that the kernel echoes at once and that the program reads when it is `awake`."""

    awake: bool = False
    line: str = ""
    entered: list[str] = field(default_factory=list)
    pasted: int = 0

    async def sight(self) -> Sight:
        unread = 0 if self.awake else sum(map(len, self.entered))
        rows = [*self.entered, self.line]
        at = (len(rows) - 1, len(self.line))
        screen = from_rows(rows, *at, columns=1_000)
        return Sight(screen=screen, mode=LineMode(canonical=True, echo=True), unread=unread)

    async def paste(self, paste: Paste, *, bracketed: bool) -> None:
        assert not bracketed
        self.pasted += 1
        self.line += paste.text

    async def enter(self) -> None:
        self.entered.append(self.line)
        self.line = ""

    @contextlib.asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        yield


def test_an_echo_is_no_evidence_and_what_is_read_late_is_not_written_again() -> None:
    async def main() -> None:
        session = Reader()
        injector = Injector(session, PLAIN, QuickClock())
        first, second = (Wake(WAKE.message_id, n, "local", "x", (1,)[: n - 1]) for n in (1, 2))
        missed = await injector.inject(first)
        assert missed == Injection(Outcome.UNKNOWN, "not_read", True, 1)
        assert await injector.readiness(second) == Readiness(Ready.BUSY, "unread_input")
        session.awake = True
        assert await injector.readiness(second) == Readiness(Ready.READY, "read_late", pasted=True)
        assert await injector.inject(second) == Injection(Outcome.INJECTED, "read_late", True, 0)
        # Another daemon knows it from the queue.
        told = dataclasses.replace(second, unread=True)
        other = Injector(session, PLAIN, QuickClock())
        assert await other.inject(told) == Injection(Outcome.INJECTED, "read_late", True, 0)
        assert session.pasted == 1
        # A redelivery knows of no such attempt, and another injector by itself of none.
        for injecting in (injector, Injector(session, PLAIN, QuickClock())):
            again = Wake(WAKE.message_id, 3, "local", "x")
            assert (await injecting.inject(again)).reason == "drained"
        assert session.pasted == 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("held", "answer", "injection"),
    [
        (None, "> ", Injection(Outcome.INJECTED, "drained", True, 1)),
        (None, "> half", Injection(Outcome.NOT_SUBMITTED, "draft_mixed", True, 0)),
        (None, "Continue? [y/N] ", Injection(Outcome.UNKNOWN, "paste_not_seen", True, 0)),
        ("", "> ", Injection(Outcome.UNKNOWN, "paste_not_seen", True, 0)),  # known to be gone
    ],
)
def test_a_line_that_was_just_printed_over_is_entered_where_nobody_could_know(
    held: str | None, answer: str, injection: Injection
) -> None:
    class Over(Reader):
        async def sight(self) -> Sight:
            shown = [*self.entered, self.line, answer] if self.line else [*self.entered, ""]
            at = (len(shown) - 1, len(shown[-1]))
            sight = await super().sight()
            return dataclasses.replace(
                sight, screen=from_rows(shown, *at, columns=1_000), held=held
            )

    session = Over(awake=True)
    asked = Wake(WAKE.message_id, 1, "local", "x")
    assert asyncio.run(Injector(session, PLAIN, QuickClock()).inject(asked)) == injection
    assert len(session.entered) == injection.enters


@pytest.mark.parametrize(
    ("line", "body", "injection"),
    [
        ("{ours} and I", "x", Injection(Outcome.NOT_SUBMITTED, "draft_mixed", True, 0)),
        ("{ours}> ", "x", Injection(Outcome.INJECTED, "drained", True, 1)),
        ("and I", "x", Injection(Outcome.NOT_READY, "draft")),
        ("", "x" * 4_095, Injection(Outcome.NOT_READY, "line_too_long")),
    ],
)
def test_what_cannot_pass_is_a_failed_attempt(line: str, body: str, injection: Injection) -> None:
    wake = Wake(WAKE.message_id, 2, "local", body, (1,))
    ours = render(wake, attempt=1, one_line=True).text
    session = Reader(awake=True, line=line.format(ours=ours))
    ready = asyncio.run(Injector(session, PLAIN, QuickClock()).readiness(wake))
    assert asyncio.run(Injector(session, PLAIN, QuickClock()).inject(wake)) == injection
    assert (ready.state is Ready.READY) is (injection.reason != "draft")
    assert ready.pasted is injection.typed
    assert session.pasted == 0
