"""Ends a deployment and gathers the evidence that the model judges."""

import asyncio
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import redis

from corral.local.deployment import Deployment
from corral.local.evidence import Evidence, Happening, Leftovers, text
from corral.local.ledger import copy_ledger, read_effects, read_ledger
from corral.local.supervisor import Event

EVIDENCE_FILE = "evidence.json"
KEPT_FILES_MAX_BYTES = 16 * 1024 * 1024


async def collect(deployment: Deployment, *, quiet: bool) -> Evidence:
    """Everything the model needs; stops daemon and runner first, the server answers to the end."""
    trouble: list[str] = []
    pending: dict[str, int] = {}
    undelivered: dict[str, int] = {}
    markers: dict[str, int] = {}
    acl_log: list[str] = []
    await deployment.stop()
    try:
        for source in deployment.sources:
            state = await deployment.state_of(source)
            pending[source], undelivered[source], markers[source] = state
        acl_log = [_denial(entry) for entry in await deployment.ask("ACL", "LOG")]
    except (redis.RedisError, OSError) as error:
        trouble.append(f"the server does not answer: {error}")
    copy = await asyncio.to_thread(
        copy_ledger, deployment.topology.ledger(deployment.agent), deployment.base / "copy"
    )
    faults = ["there is no ledger"]
    evidence = Evidence(policies=deployment.policies())
    if copy.exists():
        evidence.rows, evidence.notes, faults = await asyncio.to_thread(read_ledger, copy)
    evidence.sent = list(deployment.board.sent)
    evidence.seen = list(deployment.board.seen.values())
    evidence.effects = await asyncio.to_thread(read_effects, deployment.effects_file)
    evidence.happenings = [_happening(event) for event in deployment.supervisor.timeline]
    evidence.leftovers = Leftovers(
        pending=pending,
        undelivered=undelivered,
        markers=markers,
        acl_log=acl_log,
        processes=deployment.processes_left(),
        words_in_logs=deployment.words_in_logs(),
        ledger_faults=faults,
    )
    evidence.quiet = quiet
    evidence.trouble = trouble
    return evidence


def _happening(event: Event) -> Happening:
    return Happening(
        at_ms=event.at_ms,
        process=event.process,
        what=event.what,
        cause=event.cause,
        code=event.code,
        in_flight=event.in_flight,
        lethal=event.lethal,
    )


def _denial(entry: Any) -> str:
    """One entry of `ACL LOG`: who was denied what."""
    facts = entry if isinstance(entry, dict) else dict(zip(entry[::2], entry[1::2], strict=True))
    plain = {_plain(key): _plain(value) for key, value in facts.items()}
    return f"{plain.get('username')}: {plain.get('reason')} {plain.get('object')}"


def _plain(value: Any) -> str:
    return (text(value) or "") if isinstance(value, bytes) else str(value)


def keep(deployment: Deployment, evidence: Evidence, folder: Path, notes: Iterable[str]) -> Path:
    """Keeps what explains a failure: logs, configuration, ledger copy, evidence. Not secrets."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    evidence.save(folder / EVIDENCE_FILE)
    (folder / "notes.txt").write_text("".join(f"{note}\n" for note in notes), encoding="utf-8")
    timeline = "".join(f"{event}\n" for event in deployment.supervisor.timeline)
    (folder / "timeline.txt").write_text(timeline, encoding="utf-8")
    sources = json.dumps(deployment.topology.sources, indent=2)
    (folder / "sources.json").write_text(sources, encoding="utf-8")
    for part in ("logs", "copy", "hits"):
        if (deployment.base / part).is_dir():
            shutil.copytree(deployment.base / part, folder / part, dirs_exist_ok=True)
    for file in [deployment.effects_file, *sorted((deployment.base / "redis").glob("*.log"))]:
        if file.exists() and file.stat().st_size <= KEPT_FILES_MAX_BYTES:
            shutil.copyfile(file, folder / file.name)
    return folder
