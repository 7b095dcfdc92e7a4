"""The bridge is SIGKILLed around what passes between it and a real Synapse, and starts again.

The kills at every boundary, with doubles for the other sides, are in test_bridge_kills.py. Here a
real homeserver sends transactions again and recognises ours, and what counts is what people see
and how often the agent began.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from corral.bridge import points
from corral.bridge.domain import Reason
from corral.bridge.matrix.contents import NOTICES
from corral.local import wait
from corral.local.bridge_stack import AGENT as AGENT_PROCESS
from corral.local.bridge_stack import BRIDGE, POSTGRES, SYNAPSE, BridgeStack, Options
from corral.local.matrix import Person, shown
from corral.local.say import Conversation, label
from corral.local.topology import passable_base
from tests.harness.armed import read_hits
from tests.harness.homeserver import ready_to_start

TIMEOUT_S = 120.0
LONG = "word " * 6_000  # two events


@dataclass(frozen=True)
class Kill:
    """`seen`: label and text of what the room has in the end, less how far a task is."""

    point: str
    says: str
    seen: tuple[str, ...]
    answer: str | None = None
    cancel: bool = False
    starts: int = 1


WORKING = "reply: Working on it …"
KILLS = (
    Kill(points.INTAKE, "hello", ("reply: hello",)),
    Kill(points.REPLY_SENT, "hello", ("reply: hello",)),
    Kill(points.PART_SENT, LONG, ("reply: word", "reply: word")),
    Kill(points.CALLED, "hello", (f"reply: {NOTICES[Reason.CALL_UNCERTAIN]}",)),
    Kill(points.PLACEHOLDER_SENT, "slow 3 done", (WORKING, "edit: done")),
    Kill(points.EDIT_SENT, "slow 3 done", (WORKING, "edit: done")),
    Kill(points.PROGRESS_SENT, "slow 4 done", (WORKING, "edit: done")),
    Kill(points.QUESTION_SENT, "ask which?", (WORKING, "thread: which?", "edit: You said: a"), "a"),
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """PostgreSQL's user must reach it."""
    made = passable_base("corral-kills-")
    yield made
    shutil.rmtree(made, ignore_errors=True)


class Killed:
    """A stack whose bridge is started with what is armed next."""

    def __init__(self, stack: BridgeStack) -> None:
        self.stack = stack
        self.hits = stack.base / "hits"
        self.hits.mkdir(exist_ok=True)
        self.armed: list[str] = []
        stack.supervisor.services[BRIDGE].command = self._command

    def _command(self, start: int) -> list[str]:
        arms = [self.armed.pop()] if self.armed else []
        program = [sys.executable, "-P", "-m", "tests.harness.armed", "--program", "bridge"]
        return [*program, "--hits", str(self.hits / f"{start}.hits"), *arms, "--", "run"]

    async def arm(self, point: str) -> None:
        """The next start has it; this one ends now."""
        self.armed.append(f"{point}:1")
        self.stack.supervisor.kill(BRIDGE)
        await wait.until_true(lambda: not self.armed, TIMEOUT_S, "the armed start")
        await self.stack.supervisor.ready(BRIDGE, TIMEOUT_S)

    def kills(self) -> list[str]:
        return [point for point, _ in read_hits(self.hits)[1]]

    def starts(self) -> int:
        """How often the agent began anything."""
        log = self.stack.effects
        return len(log.read_text().splitlines()) if log.exists() else 0


async def of_ghost(person: Person, room_id: str, ghost: str) -> list[dict[str, Any]]:
    return [one for one in await person.history(room_id) if one["sender"] == ghost]


@pytest.mark.timeout(900)
async def test_what_people_see_is_whole_and_never_twice(folder: Path) -> None:
    ready_to_start()
    async with BridgeStack(Options(folder / "stack")) as stack:
        killed = Killed(stack)
        await stack.start(POSTGRES, SYNAPSE, AGENT_PROCESS, BRIDGE)
        person = await stack.person()
        async with person:
            room_id = await stack.room(person)
            for kill in KILLS:
                await one_kill(killed, kill, person, room_id)
            everything = await of_ghost(person, room_id, stack.ghost)
    ids = [one["content"]["corral.id"] for one in everything]
    assert len(set(ids)) == len(ids)
    assert sorted(killed.kills()) == sorted(kill.point for kill in KILLS)


async def one_kill(killed: Killed, kill: Kill, person: Person, room_id: str) -> None:
    stack = killed.stack
    await killed.arm(kill.point)
    before = len(await of_ghost(person, room_id, stack.ghost))
    began = killed.starts()
    talk = Conversation(person, room_id, kill.answer, kill.cancel, TIMEOUT_S)
    await talk.hold(kill.says)

    async def seen() -> list[str]:
        events = (await of_ghost(person, room_id, stack.ghost))[before:]
        lines = [f"{label(one)}: {shown(one)}" for one in events]
        return [line for line in lines if not re.fullmatch(r"thread: \d+ % done", line)]

    async def whole() -> bool:
        return len(await seen()) >= len(kill.seen) and kill.point in killed.kills()

    await wait.until_async(whole, TIMEOUT_S, f"what {kill.point} leaves in the room")
    await stack.supervisor.ready(BRIDGE, TIMEOUT_S)
    found = await seen()
    assert [line[: len(want)] for line, want in zip(found, kill.seen, strict=True)] == list(
        kill.seen
    )
    assert killed.starts() - began == kill.starts
