"""Mentions the agent in rooms, and waits for the answers; what it knows outlives its own death.

A mention is recorded when the homeserver answered for it. Until then it is sent again under the
same transaction id, as a client does. Started again, it goes on with the same person and rooms.
"""

import asyncio
import json
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from corral.local import wait
from corral.local.agent import prompt_for
from corral.local.matrix import TROUBLE, MatrixError, Person, unless_down
from corral.local.mentions_model import told_in
from tests.vm.programs import place, record, room_judge

ANSWERED = record.FOLDER / "answered"
MENTIONED = "mentioned"
ROOMS = "rooms"
PERSON = "person"
SETUP_TIMEOUT_S = 300.0

T = TypeVar("T")


@dataclass(frozen=True)
class Order:
    """What to send, within how many seconds; `words` is what the agent is told to do.

    `work`: the agent is the demo's, and works that many seconds on each.
    """

    seed: int
    count: int
    seconds: float
    rooms: int
    words: str
    work: float | None
    no_wait: bool
    patience: float

    def text(self, said: str) -> str:
        if self.work is None:
            return f"{self.words} {said}"
        return prompt_for(said.encode(), work_s=self.work).decode()


def run(order: Order) -> int:
    """0 when each has its end, an answer or a notice (or nobody waits); 1 when patience ended."""
    ANSWERED.unlink(missing_ok=True)
    return asyncio.run(_run(order))


async def _run(order: Order) -> int:
    homeserver = place.bridge()
    ghost = homeserver.ghosts[0]
    async with Person(homeserver.url, "") as person:
        await _log_in(person)
        rooms = await _rooms(person, ghost, order.rooms)
        await _send(person, ghost, rooms, order)
        if order.no_wait:
            return 0
        try:
            await wait.until_async(lambda: _all_ended(person, ghost), order.patience, "the answers")
        except wait.WaitTimeoutError:
            return 1
    ANSWERED.touch()
    return 0


async def _log_in(person: Person) -> None:
    """Once: a homeserver limits how often somebody may log in."""
    known = next(record.lines(PERSON), None)
    if known is not None:
        person.user_id, person.token = known["user_id"], known["token"]
        return

    async def ask() -> bool:
        # An answer that a killed homeserver did not give may have been a yes.
        person.localpart = f"somebody-{secrets.token_hex(4)}"
        await person.register()
        return True

    await _insist(ask, "to register")
    record.append(PERSON, {"user_id": person.user_id, "token": person.token})


async def _rooms(person: Person, ghost: str, count: int) -> list[str]:
    """What is said before the ghost has joined, no homeserver delivers to the bridge."""
    rooms: list[str] = [fact["room_id"] for fact in record.lines(ROOMS)]
    while len(rooms) < count:
        room_id = await _insist(lambda: person.create_room("", [ghost]), "to make a room")

        async def joined(room_id: str = room_id) -> bool:
            return (await person.members(room_id)).get(ghost) == "join"

        await _insist(joined, f"{ghost} to join")
        record.append(ROOMS, {"room_id": room_id})
        rooms.append(room_id)
    return rooms[:count]


async def _send(person: Person, ghost: str, rooms: list[str], order: Order) -> None:
    chance = random.Random(order.seed)
    begun = len(list(record.lines(MENTIONED)))
    began_s = time.monotonic()
    for number in range(begun, begun + order.count):
        await wait.at(began_s + (number - begun) * order.seconds / order.count)
        room_id, words = chance.choice(rooms), f"said-{number}"
        said, txn = order.text(words), f"mention-{number}"

        async def put(room_id: str = room_id, said: str = said, txn: str = txn) -> str:
            return await person.say(room_id, said, mention=[ghost], txn=txn)

        event_id = await _insist(put, "the homeserver to take a mention")
        fact = {"event_id": event_id, "room_id": room_id, "words": words, "text": said}
        record.append(MENTIONED, fact)


async def _all_ended(person: Person, ghost: str) -> bool:
    with suppress(*TROUBLE, MatrixError):
        said = await history(person)
        told = [one for events in said.values() for one in told_in(events, {"": ghost})]
        ended = {one.reply_to for one in told if one.final}
        return ended >= {fact["event_id"] for fact in record.lines(MENTIONED)}
    return False


async def history(person: Person) -> dict[str, list[dict[str, Any]]]:
    """All that was said, by room."""
    return {fact["room_id"]: await person.history(fact["room_id"]) for fact in record.lines(ROOMS)}


async def _insist(ask: Callable[[], Awaitable[T]], what: str) -> T:
    async def once() -> T | None:
        return await unless_down(ask())

    found = await wait.until_async(once, SETUP_TIMEOUT_S, what)
    assert found is not None
    return found


async def looked() -> dict[str, list[dict[str, Any]]]:
    """The history, by the person who mentioned."""
    async with Person(place.bridge().url, "") as person:
        await _log_in(person)
        return await _insist(lambda: history(person), "the rooms' history")


def judge() -> int:
    """Prints what was mentioned, answered and done; 0 when no rule was broken."""
    mentions = list(record.lines(MENTIONED))
    calls = list(record.readable(place.AGENT_CALLS))
    ghost = place.bridge().ghosts[0]
    report = room_judge.reconcile(mentions, asyncio.run(looked()), calls, ghost)
    print(json.dumps(report, indent=1))  # noqa: T201
    return 1 if report["violations"] else 0
