"""The demo's rooms: people mention two agents, and everything on its way is killed meanwhile.

A real Synapse and PostgreSQL, the bridge, and the gateway in front of a deployment's agent and of
the one whose turns a live session answers. Three people ask in six rooms and repeat what was not
answered, with the same transaction id, as any client does. Bridge, gateway, PostgreSQL, Synapse,
the session and its cowboy are killed by a seeded schedule; Redis, the other cowboy and TAMQ by
whoever owns them.
"""

import asyncio
import contextlib
import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from corral.bridge.domain import State
from corral.local import wait
from corral.local.agent import prompt_for
from corral.local.bridge_stack import BRIDGE, POSTGRES, SYNAPSE, BridgeStack, Options, ghost_of
from corral.local.deployment import Deployment
from corral.local.evidence import Evidence
from corral.local.front import GATEWAY, SOURCE, Front
from corral.local.matrix import Person, unless_down
from corral.local.mentions_model import LIVE, Asked, MentionEvidence, add_jobs, told_in
from corral.local.pilot import PILOT_DAEMON, PILOT_RUNNER, PILOT_SESSION, Pilot
from corral.local.pilot import PROCESSES as PILOTS
from corral.local.plan import SECRET_WORD
from corral.local.topology import passable_base

AGENT: Final = "scout"
AGENTS: Final = {AGENT: "Works for a while.", LIVE: "Sits in a terminal."}
GHOSTS: Final = {agent: ghost_of(agent) for agent in AGENTS}
PEOPLE: Final = ("ada", "grace", "edsger")
ROOMS: Final = 6
MENTIONS: Final = 60
# A session works on one turn after the other, and a room's later mentions wait for it: in turn one
# of these rooms asks it, each room's others ask the program.
LIVE_ROOMS: Final = 3
SENDING_S: Final = 12.0
WORK_S: Final[Mapping[str, tuple[float, float]]] = {AGENT: (0.05, 0.4), LIVE: (0.05, 0.3)}
# Each at least twice; Synapse needs seconds to come back, and everything waits for it.
KILLS: Final = (BRIDGE, GATEWAY, POSTGRES, SYNAPSE) * 2
PILOT_KILLS: Final = (PILOT_DAEMON, PILOT_RUNNER) * 2
# A session is its user's and no service: it is killed once, from then on as soon as it is at work.
SESSION_KILL_S: Final = (2.0, 6.0)
KILLS_FROM_S: Final = 1.0
QUIET_S: Final = 90.0
LOOK_S: Final = 0.1


@dataclass(frozen=True)
class Planned:
    key: int
    at_s: float
    agent: str
    person: int
    room: int
    text: str


def plan(rng: random.Random, count: int = MENTIONS) -> list[Planned]:
    """Who says what in which room, and when. Pure."""
    times = sorted(rng.uniform(0.0, SENDING_S) for _ in range(count))
    planned = []
    for key, at_s in enumerate(times):
        turn, room = divmod(key, ROOMS)
        agent = LIVE if room == turn % LIVE_ROOMS else AGENT
        words = f"{SECRET_WORD} mention {key}".encode()
        text = prompt_for(words, work_s=rng.uniform(*WORK_S[agent])).decode()
        planned.append(Planned(key, at_s, agent, rng.randrange(len(PEOPLE)), room, text))
    return planned


def plan_kills(rng: random.Random, processes: Sequence[str]) -> list[tuple[float, str]]:
    """When which process is killed, in a drawn order. Pure."""
    order = list(processes)
    rng.shuffle(order)
    step_s = (SENDING_S - KILLS_FROM_S) / len(order)
    return [
        (KILLS_FROM_S + step_s * (number + rng.uniform(0.0, 0.6)), name)
        for number, name in enumerate(order)
    ]


class Mentions:
    """Use it as an async context manager: entering starts everything and lets people into rooms."""

    def __init__(
        self, deployment: Deployment, pilot: Pilot, rng: random.Random, count: int = MENTIONS
    ) -> None:
        self.base = passable_base("corral-rooms-")
        self.pilot = pilot
        self.front = Front(deployment, self.base, AGENTS)
        self.stack = BridgeStack(Options(self.base / "rooms", agents=self.front.agent_entries()))
        self.supervisor = self.stack.supervisor
        self.supervisor.in_flight = self._in_flight
        for service in (self.front.service(), *pilot.services()):
            self.supervisor.add(service)
        self.planned = plan(rng, count)
        self.kills = [*plan_kills(rng, KILLS), *plan_kills(rng, PILOT_KILLS)]
        self.kills.append((rng.uniform(*SESSION_KILL_S), PILOT_SESSION))
        self.trouble: list[str] = []
        self.asked: dict[int, Asked] = {}
        self.ended: set[str] = set()
        self._people: list[Person] = []
        self._rooms: list[str] = []
        self._closing = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._closing.enter_async_context(self.pilot)
            await self._closing.enter_async_context(self.stack)
            await asyncio.gather(
                self.supervisor.start(GATEWAY, *PILOTS),
                self.stack.start(POSTGRES),
                self.stack.start(SYNAPSE),
            )
            for name in PEOPLE:
                person = await self.stack.person(name)
                self._people.append(await self._closing.enter_async_context(person))
            await self.stack.start(BRIDGE)
            self._rooms = await asyncio.gather(*map(self._room, range(ROOMS)))
        except BaseException:
            await self._closing.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._closing.aclose()
        shutil.rmtree(self.base, ignore_errors=True)

    async def _room(self, number: int) -> str:
        owner = self._people[number % len(PEOPLE)]
        others = [one for one in self._people if one is not owner]
        ghosts = [GHOSTS[agent] for agent in AGENTS if agent != LIVE or number < LIVE_ROOMS]
        invited = [*ghosts, *(one.user_id for one in others)]
        room_id = await owner.create_room(f"room {number}", invited)
        for other in others:
            await other.join(room_id)
        await self.stack.joined(owner, room_id, *ghosts)
        return room_id

    # ------------------------------------------------------------ the run

    async def play(self) -> None:
        """Asks, kills, and waits until every mention has its end, or too long for that."""
        start_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._look())
            work = [group.create_task(self._ask(one, start_s)) for one in self.planned]
            work += [group.create_task(self._kill(start_s + at_s, n)) for at_s, n in self.kills]
            try:
                await asyncio.wait(work)
                await wait.until_true(self._all_over, QUIET_S, "every mention to have its end")
            except wait.WaitTimeoutError as error:
                self.trouble.append(str(error))
            finally:
                looking.cancel()

    async def _ask(self, planned: Planned, start_s: float) -> None:
        """Until it is answered, under one transaction id: as any client does."""
        await wait.at(start_s + planned.at_s)
        person, room_id = self._people[planned.person], self._rooms[planned.room]
        mention, txn = [ghost_of(planned.agent)], f"mention-{planned.key}"

        async def said() -> str | None:
            return await unless_down(person.say(room_id, planned.text, mention=mention, txn=txn))

        event_id = await wait.until_async(said, QUIET_S, f"the mention {planned.key} to be sent")
        if event_id is not None:
            who = (planned.agent, person.localpart)
            asked = Asked(planned.key, *who, room_id, planned.text, event_id, 0, 0)
            self.asked[planned.key] = asked

    async def _kill(self, at_s: float, name: str) -> None:
        await wait.at(at_s)

        async def killed() -> bool:
            await self.supervisor.ready(name, QUIET_S)  # so that each kill ends a process at work
            if name == PILOT_SESSION and not self.pilot.at_work():
                return False
            return self.supervisor.kill(name)  # another kill may have come first

        await wait.until_async(killed, QUIET_S, f"{name} to be killed")

    async def _look(self) -> None:
        """One of the people, who is in all rooms, sees what is told there."""
        person = self._people[0]
        seen = 0
        while True:
            await unless_down(person.sync())
            events = [one for room in person.timeline.values() for one in room]
            if len(events) > seen:
                seen = len(events)
                self.ended = {one.reply_to for one in told_in(events, GHOSTS) if one.final}
            else:
                await wait.at(time.monotonic() + LOOK_S)

    def _all_over(self) -> bool:
        return all(asked.event_id in self.ended for asked in self.asked.values())

    def _in_flight(self) -> int:
        return sum(asked.event_id not in self.ended for asked in self.asked.values())

    def counts(self) -> str:
        """For whoever watches."""
        return f"mentions sent {len(self.asked)} of {len(self.planned)}, ended {len(self.ended)}"

    # ------------------------------------------------------------ what became of it

    async def evidence(self) -> MentionEvidence:
        """For the model, but for what the deployment behind the gateway knows (see `add_turns`)."""
        left = await self.pilot.left(self.supervisor)
        evidence = MentionEvidence(
            planned=len(self.planned),
            turns=left.turns,
            effects=left.effects,
            trouble=[*self.trouble, *left.trouble],
        )
        times: dict[str, int] = {}
        for room_id in self._rooms:
            events = await self._people[0].history(room_id)
            times |= {one["event_id"]: int(one["origin_server_ts"]) for one in events}
            evidence.told += told_in(events, GHOSTS)
        for asked in self.asked.values():
            evidence.asked.append(replace(asked, at_ms=times.get(asked.event_id, 0)))
        add_jobs(evidence, await self._jobs())
        happened = [one for one in self.supervisor.timeline if one.lethal]
        evidence.kills = dict(Counter(one.process for one in happened))
        missing = Counter(name for _, name in self.kills) - Counter(evidence.kills)
        evidence.trouble += [f"{name} was killed too seldom" for name in missing]
        evidence.kills_in_flight = sum(one.in_flight > 0 for one in happened)
        sessions = [one for one in happened if one.process == PILOT_SESSION]
        evidence.session_ends_ms = [one.at_ms for one in sessions]
        return evidence

    async def _jobs(self) -> list[dict[str, Any]]:
        """What the bridge itself says of all its jobs, the newest first."""
        states = [word for state in State for word in ("--state", state.value)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "corral.bridge.main", "jobs", "list", "--json",
            "--limit", "1000", *states,
            env=dict(self.supervisor.services[BRIDGE].environment),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        printed, _ = await process.communicate()
        answer: dict[str, Any] = json.loads(printed)
        return list(answer["jobs"])

    def keep_logs(self, folder: Path) -> None:
        """Beside the logs of the deployment, where they are searched and kept. Blocks."""
        terminal = self.supervisor.log_file(PILOT_SESSION)  # it shows what it was sent
        for log in {*self.supervisor.logs.iterdir()} - {terminal}:
            shutil.copyfile(log, folder / log.name)


def add_turns(mentions: MentionEvidence, inbound: Evidence) -> None:
    """Moves what the deployment knows of the gateway's source to where it is judged."""
    turns = [row for row in inbound.rows if row.source == SOURCE]
    ours = {row.turn_id for row in turns}
    mentions.turns += turns
    mentions.effects += [one for one in inbound.effects if one.turn in ours]
    inbound.rows = [row for row in inbound.rows if row.source != SOURCE]
    inbound.effects = [one for one in inbound.effects if one.turn not in ours]
    inbound.notes = [one for one in inbound.notes if one.source != SOURCE]
