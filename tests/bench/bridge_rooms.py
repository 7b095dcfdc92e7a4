"""With a real Synapse: ten rooms with ten mentions each, and the wait for one answer at a time.

The load is the one that the bridge in Go published: an agent that works for two seconds, ten jobs
at once. As a room has one job in work at a time, nobody can do it in less than twenty seconds.
"""

import asyncio
import shutil
import time
from collections.abc import Callable
from typing import Any

from corral.local.bridge_stack import BridgeStack, Options
from corral.local.matrix import Person, shown
from corral.local.topology import passable_base
from tests.bench.figures import percentiles

Progress = Callable[[str], None]

ROOMS = 10
MENTIONS = 10
WORKS_S = 2.0
ANSWER_S = 300.0
SETTINGS = {"concurrency": 10, "sender_rate_per_min": 0}


async def measure(alone: int, progress: Progress, *, mentions: int = MENTIONS) -> dict[str, Any]:
    """Seconds for the load; milliseconds for a mention that is alone."""
    base = passable_base("corral-bench-")
    try:
        async with BridgeStack(Options(base, settings=SETTINGS)) as stack:
            await stack.start()
            person = await stack.person()
            async with person:
                progress("Synapse and the bridge run")
                rooms = [await _room(stack, person) for _ in range(ROOMS)]
                await _answers(person, stack, rooms, ["warm up"])
                waited = [
                    await _answers(person, stack, rooms[:1], [f"alone {number}"])
                    for number in range(alone)
                ]
                texts = [f"slow {WORKS_S:g} answer {number}" for number in range(mentions)]
                load_s = await _answers(person, stack, rooms, texts)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return {
        "load_s": load_s,
        "jobs": ROOMS * mentions,
        "alone_ms": percentiles([one * 1000 for one in waited]),
    }


async def _room(stack: BridgeStack, person: Person) -> str:
    room_id = await person.create_room("load", [stack.ghost])
    await stack.joined(person, room_id)
    return room_id


async def _answers(person: Person, stack: BridgeStack, rooms: list[str], texts: list[str]) -> float:
    """Seconds from the first mention until the person has seen every answer, each in its room."""
    began = time.perf_counter()
    wanted = {(room_id, answer_to(text)) for room_id in rooms for text in texts}

    async def ask(room_id: str) -> None:
        for text in texts:
            await person.say(room_id, f"{stack.ghost} {text}", mention=[stack.ghost])

    asking = asyncio.gather(*(ask(room_id) for room_id in rooms))
    seen: set[tuple[str, str]] = set()
    try:
        async with asyncio.timeout(ANSWER_S):
            while not wanted <= seen:
                await person.sync()
                seen |= {
                    (room_id, shown(event))
                    for room_id in rooms
                    for event in person.timeline.get(room_id, [])
                    if event["sender"] == stack.ghost
                }
        await asking
    finally:
        asking.cancel()
    return time.perf_counter() - began


def answer_to(text: str) -> str:
    """What the agent answers."""
    return text.split(" ", 2)[2] if text.startswith("slow ") else text
