"""Gathers what each service's own program says of one message, by any id that it has anywhere.

The ids lead from one service to the next: a job knows its A2A message and task, a task the entries
that carry its messages, an entry its turn, a turn its task again (as the thread), and the wakes of
a turn name it. So asking goes on until nothing new is found.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corral.core.errors import UsageError
from corral.overview import ANSWER_S
from corral.overview.programs import Answer, Program, Question, ask

BRIDGE, GATEWAY, COWBOY, TAMQ = "a2a-bridge", "corral-gateway", "cowboy", "tamq"
ROUNDS_MAX: Final = 6
TURN: Final = re.compile(r"(?P<agent>[a-z][a-z0-9-]*)\.[a-z][a-z0-9-]*\.\d+\.\d+-\d+")
WAKE: Final = re.compile(r"\d+-[0-9a-f]{32}")
# What a program says of an id that it does not have, and of one that several jobs have.
UNKNOWN: Final = frozenset({"not_found", "no_such_task", "invalid_request", "usage"})
SEVERAL: Final = "invalid_state"
UNKNOWN_HINT: Final = (
    "is it whole, and of this host? ended ones go in time; an event that the homeserver has not "
    "handed over yet is known to nobody here: a2a-bridge doctor"
)

Data = Mapping[str, Any]


@dataclass
class Found:
    """All that is known. `here`: the services that could be asked; `troubles`: of those that did
    not answer, what came instead; of cowboy under `whose(agent)`, as each agent has a daemon."""

    here: frozenset[str] = frozenset()
    job: Data | None = None
    job_lines: tuple[str, ...] = ()
    tasks: dict[str, Data] = field(default_factory=dict)
    turns: dict[str, Data] = field(default_factory=dict)  # explanations, by entry
    wakes: dict[str, Data] = field(default_factory=dict)
    wakers: frozenset[str] = frozenset()  # sources that wake a session, as AGENT.SOURCE
    troubles: dict[str, str] = field(default_factory=dict)
    several: list[str] = field(default_factory=list)  # what of other messages has the same id

    @property
    def anything(self) -> bool:
        return bool(self.job or self.tasks or self.turns or self.wakes)


def whose(agent: str) -> str:
    """The part of cowboy that is an agent's own."""
    return f"{COWBOY} {agent}"


async def gather(
    any_id: str,
    here: Sequence[Program],
    variables: Mapping[str, str],
    within_s: float = ANSWER_S,
) -> Found:
    """Everything about the message that has this id.

    UsageError when no service knows it, or when it is an id of several messages.
    """
    agents = await asyncio.to_thread(_agents, here, variables)
    tracer = _Tracer(here, variables, agents, within_s)
    await tracer.begin(any_id)
    if tracer.found.several:
        raise UsageError(f"{any_id!r} is of several messages", hint="; ".join(tracer.found.several))
    for _ in range(ROUNDS_MAX):
        if not await tracer.go_on():
            break
    found = tracer.found
    if not found.anything:
        silent = [f"{name}: {trouble}" for name, trouble in found.troubles.items()]
        raise UsageError(
            f"no service that answers here knows {any_id!r}",
            hint="; ".join(silent) or UNKNOWN_HINT,
        )
    return found


class _Tracer:
    def __init__(
        self,
        here: Sequence[Program],
        variables: Mapping[str, str],
        agents: Mapping[str, Sequence[str]],
        within_s: float,
    ) -> None:
        self._within_s = within_s
        self._programs = {one.name: one for one in here}
        self._variables = variables
        self._asked: set[tuple[str, ...]] = set()
        self._agents = list(agents)
        wakers = (f"{agent}.{name}" for agent, names in agents.items() for name in names)
        self.found = Found(here=frozenset(self._programs), wakers=frozenset(wakers))

    async def begin(self, any_id: str) -> None:
        turn = TURN.fullmatch(any_id)
        agents = [turn["agent"]] if turn else self._agents
        await asyncio.gather(
            self._job(any_id),
            self._tasks(any_id),
            self._wake(any_id),
            *(self._turns(agent, any_id) for agent in agents),
        )
        found = self.found
        if found.job is not None and str(found.job.get("txn_id")) == any_id:
            # The number of a transaction is short: others may have the same, of their own.
            others = [*found.tasks, *found.turns]
            if others:
                found.several += [f"job {found.job['job_id']}", *others]

    async def go_on(self) -> bool:
        """Follows every id that was not followed yet; whether there was one."""
        known, found = len(self._asked), self.found
        asking = []
        if found.job is not None:
            wanted = found.job.get("task_id") or found.job.get("a2a_message_id")
            asking.append(self._tasks(str(wanted)))
        for task in list(found.tasks.values()):
            if found.job is None:
                asking.append(self._job(task["task_id"]))
            keys = [one["entry_key"] for one in task["messages"] if "entry_key" in one]
            asking += [self._turns(task["agent"], key) for key in keys]
        for case in list(found.turns.values()):
            turn = case["turn"]
            if turn and turn.get("thread"):
                asking.append(self._tasks(turn["thread"]))
                if found.job is None:  # of a task that no gateway has any more
                    asking.append(self._job(turn["thread"]))
            if turn:
                asking.append(self._wakes_of(turn["turn_id"]))
        for wake in list(found.wakes.values()):
            turn_id = wake.get("correlation_id")
            if wake.get("client_id") == COWBOY and turn_id and TURN.fullmatch(turn_id):
                asking.append(self._turns(turn_id.split(".")[0], turn_id))
        await asyncio.gather(*asking)
        return len(self._asked) > known

    async def _ask(self, name: str, *words: str, part: str = "") -> Data | None:
        """The answer; None when the service is not here, was asked before, or does not know.

        `part`: under what its trouble is noted, when it is not the whole service's.
        """
        program = self._programs.get(name)
        if program is None or (name, *words) in self._asked:
            return None
        self._asked.add((name, *words))
        asked = [Question("it", words)]
        answer: Answer = (await ask(program, asked, self._variables, self._within_s))[0]
        if answer.code == SEVERAL:
            self.found.several.append(answer.trouble)
        elif answer.data is None and answer.code not in UNKNOWN:
            self.found.troubles[part or name] = answer.trouble
        return answer.data

    async def _job(self, any_id: str) -> None:
        job = await self._ask(BRIDGE, "jobs", "show", any_id)
        if job is None:
            return
        told = await self._ask(BRIDGE, "jobs", "explain", str(job["job_id"]))
        self.found.job = job
        self.found.job_lines = tuple(told["lines"]) if told else ()

    async def _tasks(self, any_id: str) -> None:
        told = await self._ask(GATEWAY, "tasks", any_id)
        tasks = told["tasks"] if told is not None else []
        if len(tasks) > 1:  # a conversation's
            self.found.several += [f"task {task['task_id']}" for task in tasks]
        elif tasks:
            self.found.tasks[tasks[0]["task_id"]] = tasks[0]

    async def _turns(self, agent: str, any_id: str) -> None:
        told = await self._ask(COWBOY, "explain", agent, any_id, part=whose(agent))
        for case in told["explanations"] if told else ():
            in_redis = case["redis"]
            if case.get("daemon"):
                self.found.troubles[whose(agent)] = str(case["daemon"])
            if case["turn"] or case["notes"] or in_redis["in_stream"] or in_redis["outbox"]:
                self.found.turns[case["entry"]] = {**case, "agent": agent}

    async def _wake(self, any_id: str) -> None:
        if WAKE.fullmatch(any_id):
            told = await self._ask(TAMQ, "message", any_id)
            if told is not None:
                self.found.wakes[told["message_id"]] = told

    async def _wakes_of(self, turn_id: str) -> None:
        told = await self._ask(TAMQ, "history", "--client", COWBOY, "--correlation", turn_id)
        for wake in told["messages"] if told else ():
            self.found.wakes[wake["message_id"]] = wake


def _agents(here: Sequence[Program], variables: Mapping[str, str]) -> dict[str, list[str]]:
    """The agents of this host, with their sources that wake a session."""
    found: dict[str, list[str]] = {}
    if all(one.name != COWBOY for one in here):
        return found
    for file in sorted(Path(variables.get("COWBOY_CONFIG_DIR", "")).glob("*/sources.json")):
        try:
            sources = json.loads(file.read_text(encoding="utf-8"))["sources"]
            wakers = [name for name, one in sources.items() if one["runner"]["kind"] == TAMQ]
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            wakers = []  # its own doctor says so
        found[file.parent.name] = wakers
    return found
