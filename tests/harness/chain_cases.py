"""What is asked across the whole chain, and the person's part in it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from corral.bridge.matrix.contents import HOW_TO_ANSWER, PLACEHOLDER
from corral.local import wait
from corral.local.bridge_stack import ghost_of
from corral.local.matrix import Event, shown, unless_down
from corral.local.mentions import GHOSTS
from corral.local.mentions_model import Told, told_in
from corral.local.say import label, related
from tests.harness.chain_stack import AGENT, PATIENCE_S, ChainStack

CROSS: Final = "\N{CROSS MARK}"


@dataclass(frozen=True)
class Case:
    """`answers`: how each event of the answer begins. `entries`: how many the agent gets."""

    says: str
    answers: tuple[str, ...]
    reply: str = ""  # to the agent's question
    cancels: bool = False
    entries: int = 1

    def answered(self, told: Sequence[Told]) -> bool:
        """Whether the room has the agent's answer; else it has a notice, or nothing."""
        return bool(self.answers and told) and told[0].text.startswith(self.answers[0])

    def parts(self, told: Sequence[Told]) -> int:
        """Of how many events its end is, when it is all there."""
        return len(self.answers) if self.answered(told) else 1

    @property
    def waits(self) -> bool:
        """At the gate, which is opened when the room has a placeholder."""
        return self.says.startswith("gate ")


PLAIN: Final = Case("hello", ("HELLO",))
GATE: Final = Case("gate {gate} done", ("DONE",))
LONG: Final = Case("long 8000 word", ("WORD", "WORD"))
ASK: Final = Case("ask which color?", ("BLUE",), reply="blue", entries=2)
CANCEL: Final = Case("gate {gate} never", (), cancels=True)


@dataclass
class Talk:
    """A person who asks, looks, answers or cancels; `run` beside the test."""

    chain: ChainStack
    case: Case
    asked: str = ""
    ours: set[str] = field(default_factory=set)
    acted: set[str] = field(default_factory=set)

    async def begin(self) -> None:
        chain = self.chain
        text = self.case.says.format(gate=chain.gate)
        mention = [ghost_of(AGENT)]
        self.asked = await chain.person.say(chain.room_id, f"@{AGENT} {text}", mention=mention)
        self.ours.add(self.asked)

    async def run(self) -> None:
        while True:
            await unless_down(self.chain.person.sync())
            for event in self.events():
                if event["event_id"] not in self.acted:
                    self.acted.add(event["event_id"])
                    await self._act(event)

    def events(self) -> list[Event]:
        """What the agent said that belongs to this."""
        found = []
        for event in self.chain.person.timeline.get(self.chain.room_id, []):
            fresh = event["sender"] == ghost_of(AGENT) and event["type"] == "m.room.message"
            if fresh and related(event) & self.ours:
                self.ours.add(event["event_id"])
                found.append(event)
        return found

    async def _act(self, event: Event) -> None:
        person, room_id = self.chain.person, self.chain.room_id
        text = shown(event)
        if text == PLACEHOLDER and self.case.cancels:
            await person.react(room_id, event["event_id"], CROSS)
        elif text == PLACEHOLDER and self.case.waits:
            await self.chain.open_gate()
        elif text.endswith(HOW_TO_ANSWER):
            root = event["content"]["m.relates_to"]["event_id"]
            await person.say(room_id, self.case.reply, thread=root)

    def told(self) -> list[Told]:
        """The ends that the room has of it: answers with their parts, or notices."""
        replies = [one for one in self.events() if label(one) != "thread"]
        return [one for one in told_in(replies, GHOSTS) if one.final]

    async def over(self) -> None:
        """Waits until the room has an end, all of it."""

        def whole() -> bool:
            told = self.told()
            return len(told) >= self.case.parts(told)

        await wait.until_true(whole, PATIENCE_S, f"the end of {self.case.says!r} in the room")


@contextlib.asynccontextmanager
async def beside(chain: ChainStack, case: Case) -> AsyncIterator[Talk]:
    """The person asks, and goes on beside the test until this is left."""
    talk = Talk(chain, case)
    await talk.begin()
    person = asyncio.create_task(talk.run())
    try:
        yield talk
    finally:
        person.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await person
