"""`./corral say TEXT [--agent NAME] [--dir DIR] [--answer TEXT] [--cancel]`: a person who asks.

In the room of `./corral up --bridge`: mentions the agent, prints what comes back, and ends with the
answer or the notice. A question is answered in its thread with `--answer`; `--cancel` reacts to the
placeholder with a cross.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corral.bridge.matrix.contents import HOW_TO_ANSWER, PLACEHOLDER
from corral.core.errors import CorralError, UnavailableError
from corral.local.bridge_stack import AGENT_NAME, PERSON, SERVER_NAME
from corral.local.bridge_up import DEFAULT_DIR
from corral.local.matrix import Event, Person, replies_to, shown
from corral.local.synapse import LOOPBACK

ROOM_ALIAS = f"#{AGENT_NAME}-{PERSON}:{SERVER_NAME}"


@dataclass
class Conversation:
    """What is said to the agent, and what belongs to it of what the agent says."""

    person: Person
    room_id: str
    answer: str | None
    cancel: bool
    timeout_s: float
    agent: str = AGENT_NAME

    @property
    def ghost(self) -> str:
        return f"@{self.agent}:{SERVER_NAME}"

    async def hold(self, text: str) -> str:
        """Prints as it comes; the last text."""
        asked = await self.person.say(self.room_id, f"@{self.agent} {text}", mention=[self.ghost])
        ours, told = {asked}, set[str]()
        while True:
            event = await self._next(ours, told)
            told.add(event["event_id"])
            ours.add(event["event_id"])
            body = shown(event)
            print(f"{label(event)}: {body}", flush=True)
            if body == PLACEHOLDER:
                if self.cancel:
                    await self.person.react(self.room_id, event["event_id"], "\N{CROSS MARK}")
            elif body.endswith(HOW_TO_ANSWER):
                if self.answer is None:
                    return body
                root = event["content"]["m.relates_to"]["event_id"]
                await self.person.say(self.room_id, self.answer, thread=root)
            elif label(event) != "thread":
                return body

    async def _next(self, ours: set[str], told: set[str]) -> Event:
        """The agent's next event that belongs to one of ours."""

        def wanted(event: Event) -> bool:
            fresh = event["sender"] == self.ghost and event["event_id"] not in told
            return fresh and bool(related(event) & ours)

        return await self.person.until(self.room_id, wanted, "an answer", self.timeout_s)


def related(event: Event) -> set[str]:
    """The events that it is about."""
    relation = event.get("content", {}).get("m.relates_to", {})
    return {one for one in (relation.get("event_id"), replies_to(event)) if one}


def label(event: Event) -> str:
    kind = event["content"]["m.relates_to"].get("rel_type")
    return {"m.replace": "edit", "m.thread": "thread"}.get(str(kind), "reply")


async def say(given: argparse.Namespace) -> None:
    facts_file: Path = given.dir.resolve() / "facts.json"
    try:
        facts = json.loads(await asyncio.to_thread(facts_file.read_text, encoding="utf-8"))
    except OSError as error:
        raise UnavailableError(
            f"{facts_file}: {error.strerror}", hint="start it with: ./corral up --bridge"
        ) from None
    async with Person(f"http://{LOOPBACK}:{facts['synapse_port']}", PERSON) as person:
        await person.login(facts["password"])
        await person.sync()
        alias = ROOM_ALIAS.replace("#", "%23")
        room_id = (await person.call("GET", f"/directory/room/{alias}"))["room_id"]
        talk = Conversation(
            person, room_id, given.answer, given.cancel, given.timeout_s, given.agent
        )
        await talk.hold(given.text)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./corral say", allow_abbrev=False)
    parser.add_argument("text", help="what the agent is told")
    parser.add_argument("--dir", type=Path, default=DEFAULT_DIR, help="of ./corral up --bridge")
    parser.add_argument("--agent", default=AGENT_NAME, help="whom; default: %(default)s")
    parser.add_argument("--answer", help="to the agent's question")
    parser.add_argument("--cancel", action="store_true", help="when the placeholder is there")
    parser.add_argument("--timeout-s", type=float, default=120.0, help="for each answer")
    try:
        given = parser.parse_args(argv)
    except SystemExit as error:
        return 64 if error.code else 0
    try:
        asyncio.run(say(given))
    except (CorralError, OSError) as error:
        print(f"say: {error}", file=sys.stderr)
        return getattr(error, "exit_code", UnavailableError.exit_code)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
