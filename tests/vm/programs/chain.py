"""Reconciles mentions over the whole way: rooms, bridge, gateway, Redis, cowboy, agent.

By the rules of the local deployment: each mention has one answer or one notice, the agent began it
at most once, a room's order was kept, no job ended uncertain. Beside them nothing is left on the
way: no open task, no open turn, no entry that waits. The daemon has been stopped.

Where the agents are on another machine, what is known there is exported to a file and judged where
rooms and bridge are.
"""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from corral.bridge.domain import State
from corral.gateway.domain import ENDED
from corral.local.evidence import Evidence, Happening, Leftovers
from corral.local.mentions_model import Asked, MentionEvidence, add_jobs, judge, told_in
from tests.vm.programs import mentions, place, record
from tests.vm.programs.judge import EVIDENCE

KEPT: Final = record.FOLDER / "mentions.json"
EXPORT: Final = record.FOLDER / "export.json"
TASKS_MAX: Final = "10000"


@dataclass(frozen=True)
class Behind:
    """What is known where the agents are: to cowboy, and of the gateway's tasks."""

    inbound: Evidence
    tasks: list[dict[str, Any]]


_behind: Final = TypeAdapter(Behind)


def export(agent: str) -> int:
    """Writes what is known on this machine to the file that it prints."""
    EXPORT.write_bytes(_behind.dump_json(behind(agent)))
    sys.stdout.write(f"{EXPORT}\n")
    return 0


def behind(agent: str) -> Behind:
    """What is known on this machine."""
    # What Redis and the ledger say is asked where Redis is: in its namespace.
    inside = [sys.executable, "-I", "-m", "tests.vm.programs.main", "left", "--agent", agent]
    subprocess.run(inside, check=True)
    return Behind(Evidence.load(EVIDENCE), _tasks())


def run(agent: str, exported: Path | None) -> int:
    """Prints the report; 0 when no rule was broken. `exported`: by the agents' machine."""
    known = _exported(exported) if exported else behind(agent)
    evidence = collect(agent, known)
    evidence.save(KEPT)
    report = judge(evidence)
    sys.stdout.write(json.dumps(report.as_dict(), indent=1) + "\n")
    return 0 if report.ok else 1


def _exported(file: Path) -> Behind:
    """What that machine knows, beside the kills of this one."""
    known = _behind.validate_json(file.read_bytes())
    known.inbound.happenings += [Happening(**fact) for fact in record.lines(record.HAPPENED)]
    return known


def collect(agent: str, known: Behind) -> MentionEvidence:
    """What rooms and bridge know, beside what gateway and cowboy know."""
    inbound = known.inbound
    evidence = MentionEvidence(
        asked=_asked(agent),
        turns=inbound.rows,
        effects=inbound.effects,
        kills=dict(Counter(one.process for one in inbound.happenings)),
    )
    evidence.planned = len(evidence.asked)
    ghosts = {agent: place.bridge().ghosts[0]}
    for events in asyncio.run(mentions.looked()).values():
        evidence.told += told_in(events, ghosts)
    states = [word for state in State for word in ("--state", state.value)]
    jobs = _said("a2a-bridge", "jobs", "list", "--json", "--limit", "1000", *states)
    add_jobs(evidence, jobs["jobs"])
    evidence.trouble += left_over(inbound.leftovers)
    evidence.trouble += unfinished(known.tasks, len(evidence.asked))
    return evidence


def left_over(leftovers: Leftovers) -> list[str]:
    """What is still in Redis, and what is wrong with the ledger. Pure."""
    found: list[str] = []
    for what, counts in (("pending", leftovers.pending), ("unread", leftovers.undelivered)):
        found += [f"{count} entries of {one} are {what}" for one, count in counts.items() if count]
    return [*found, *leftovers.ledger_faults]


def unfinished(tasks: list[dict[str, Any]], asked: int) -> list[str]:
    """Tasks of the gateway that have not ended, or that are too many. Pure."""
    found = [
        f"task {one['task_id']} is {one['state']}" for one in tasks if one["state"] not in ENDED
    ]
    if len(tasks) != asked:
        found.append(f"{len(tasks)} tasks, {asked} mentions")
    return found


def _asked(agent: str) -> list[Asked]:
    return [
        Asked(key, agent, "", fact["room_id"], fact["text"], fact["event_id"], 0, 0)
        for key, fact in enumerate(record.lines(mentions.MENTIONED))
    ]


def _tasks() -> list[dict[str, Any]]:
    command = ("corral-gateway", "tasks", "--all", "--json", "--limit", TASKS_MAX)
    tasks: list[dict[str, Any]] = _said(*command)["tasks"]
    return tasks


def _said(*command: str) -> dict[str, Any]:
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
