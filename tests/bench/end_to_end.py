"""`./corral bench end-to-end`: a mention in a room, through every service, and its answer.

    python -m tests.bench.end_to_end [--mentions N] [--quick] [--check] [--json]

A real Synapse (SQLite), PostgreSQL, the bridge, the gateway, Redis and cowboy on this machine; the
agent answers at once (`echo`). First one mention at a time, with pauses, so that whoever polled
would be found waiting; then all at once in six rooms. Times are of this machine's one clock: the
client's, the homeserver's and Redis's. Exit status: 0; 1 when `--check` was given and a figure is
past its bound; 69 when something could not be run.
"""

import argparse
import asyncio
import random
import shutil
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

from corral.core.errors import CorralError, UnavailableError
from corral.local import wait
from corral.local.bridge_stack import BridgeStack, ghost_of
from corral.local.bridge_stack import Options as BridgeOptions
from corral.local.deployment import Deployment, Options
from corral.local.front import GATEWAY, SOURCE, Front
from corral.local.ledger import copy_ledger
from corral.local.matrix import Event, Person, replies_to
from corral.local.topology import passable_base
from tests.bench.figures import disk, percentiles
from tests.bench.report import Bounds, finish, judged, listed, show_bounds, show_disk

AGENT = "scout"
ROOMS = 6
PAUSE_S = (0.2, 0.7)
ANSWER_S = 60.0
ALL_S = 300.0
WARM_UP = 5
TOGETHER = 60
BOUNDS: Bounds = {
    "mention to answer, p50 ms": (("alone_ms", "mention to answer", "p50"), 150.0, 250.0, False),
}
ENTRIES = "SELECT entry, outbox_id FROM turns ORDER BY entry"


@dataclass
class Way:
    """Everything up, one person in every room."""

    deployment: Deployment
    person: Person
    rooms: list[str]

    async def ask(self, room_id: str, text: str) -> tuple[float, Event, float]:
        """When it was sent, the answer, and when that was seen; in ms of the wall clock."""
        sent_ms = time.time() * 1000
        event_id = await self.person.say(room_id, text, mention=[ghost_of(AGENT)])

        answer = await self.person.until(
            room_id, lambda event: replies_to(event) == event_id, "the answer", ANSWER_S
        )
        return sent_ms, answer, time.time() * 1000

    def told(self, room_id: str, event_id: str) -> int:
        """The homeserver's time of an event that was seen."""
        found = (one for one in self.person.timeline[room_id] if one["event_id"] == event_id)
        return int(next(found)["origin_server_ts"])


@asynccontextmanager
async def everything() -> AsyncIterator[Way]:
    """Started in a private directory, and removed at the end."""
    base = passable_base("corral-way-")
    try:
        async with AsyncExitStack() as stack:
            deployment = await stack.enter_async_context(Deployment(Options(edit=_echo)))
            front = Front(deployment, base, {AGENT: "Says it again."})
            options = BridgeOptions(
                base / "rooms", agents=front.agent_entries(), settings={"concurrency": 16}
            )
            bridge = await stack.enter_async_context(BridgeStack(options))
            bridge.supervisor.add(front.service())
            await deployment.start()
            await bridge.supervisor.start(GATEWAY)
            await bridge.start()
            person = await stack.enter_async_context(await bridge.person())
            rooms = []
            for number in range(ROOMS):
                rooms.append(await person.create_room(f"room {number}", [ghost_of(AGENT)]))
                await bridge.joined(person, rooms[-1])
            yield Way(deployment, person, rooms)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _echo(sources: dict[str, Any]) -> None:
    sources["sources"][SOURCE]["runner"] = {"kind": "echo"}


async def alone(way: Way, count: int) -> dict[str, dict[str, float]]:
    """One at a time, with pauses: percentiles in ms, for each hop and the whole."""
    rng = random.Random("end-to-end")
    took: dict[str, list[float]] = defaultdict(list)
    times: list[tuple[float, float, float, float]] = []
    for number in range(WARM_UP + count):
        await wait.at(time.monotonic() + rng.uniform(*PAUSE_S))
        sent_ms, answer, seen_ms = await way.ask(way.rooms[0], f"mention {number}")
        heard_ms = float(way.told(way.rooms[0], replies_to(answer)))
        times.append((sent_ms, heard_ms, float(answer["origin_server_ts"]), seen_ms))
    entries = await asyncio.to_thread(_entries, way.deployment)
    pairs = list(zip(times, entries, strict=True))[WARM_UP:]
    for (sent_ms, heard_ms, told_ms, seen_ms), (inbox_ms, outbox_ms) in pairs:
        took["person to homeserver"].append(heard_ms - sent_ms)
        took["homeserver, bridge, gateway to inbox"].append(inbox_ms - heard_ms)
        took["cowboy: inbox to outbox"].append(outbox_ms - inbox_ms)
        took["outbox, gateway, bridge to homeserver"].append(told_ms - outbox_ms)
        took["homeserver to person"].append(seen_ms - told_ms)
        took["mention to answer"].append(seen_ms - sent_ms)
    return {name: percentiles(values) for name, values in took.items()}


def _entries(deployment: Deployment) -> list[tuple[int, int]]:
    """When each turn's entry came, and its answer was added; ms of the server's clock. Blocks."""
    ledger = deployment.topology.ledger(deployment.agent)
    copy = copy_ledger(ledger, deployment.base / "copy")
    with closing(sqlite3.connect(copy)) as conn:
        found = conn.execute(ENTRIES).fetchall()
    return [
        (int.from_bytes(entry[:8], "big"), int(outbox.partition(b"-")[0]))
        for entry, outbox in found
    ]


async def together(way: Way, count: int) -> dict[str, float]:
    """All at once, spread over the rooms: from the first word to the last answer."""
    began = time.monotonic()
    sent = {}

    async def say(number: int) -> None:
        room_id = way.rooms[number % ROOMS]
        asked_ms = time.time() * 1000
        event_id = await way.person.say(room_id, f"all {number}", mention=[ghost_of(AGENT)])
        sent[event_id] = asked_ms

    await asyncio.gather(*(say(number) for number in range(count)))
    waits: dict[str, float] = {}
    while len(waits) < count:
        if time.monotonic() - began > ALL_S:
            raise UnavailableError(f"{count - len(waits)} mentions have no answer")
        await way.person.sync()
        now_ms = time.time() * 1000
        for event in (one for room in way.person.timeline.values() for one in room):
            asked = replies_to(event)
            if asked in sent:
                waits.setdefault(asked, now_ms - sent[asked])
    took_s = time.monotonic() - began
    return {"per_s": count / took_s, "seconds": took_s, **percentiles(list(waits.values()))}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    async with everything() as way:
        print("bench: one mention at a time …", file=sys.stderr, flush=True)
        figures: dict[str, Any] = {"alone_ms": await alone(way, options.mentions)}
        if not options.quick:
            print(f"bench: {TOGETHER} at once …", file=sys.stderr, flush=True)
            figures["together"] = await together(way, TOGETHER)
    return figures


def show(figures: Mapping[str, Any]) -> None:
    """For a person."""
    show_disk(figures)
    print(f"{'one at a time, ms':<40}{'p50':>9}{'p95':>9}{'p99':>9}{'max':>9}")
    for name, values in figures["alone_ms"].items():
        print(f"{name:<40}" + "".join(f"{value:>9.1f}" for value in values.values()))
    if "together" in figures:
        print(f"\n{TOGETHER} at once in {ROOMS} rooms: {listed(figures['together'])}")
    show_bounds(figures["bounds"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./corral bench end-to-end", allow_abbrev=False)
    parser.add_argument("--mentions", type=int, default=100, help="one at a time")
    parser.add_argument("--quick", action="store_true", help="one at a time alone")
    parser.add_argument("--check", action="store_true", help="exit 1 past a bound")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.mentions < 2:
        parser.error("--mentions is too small")
    try:
        figures = {"disk": disk(), **asyncio.run(measure(options))}
    except CorralError as error:
        print(f"bench: {error}", file=sys.stderr)
        return error.exit_code
    figures["bounds"] = judged(figures, BOUNDS)
    return finish(options, figures, show)


if __name__ == "__main__":
    sys.exit(main())
