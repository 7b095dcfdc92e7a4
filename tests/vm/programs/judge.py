"""Reconciles a run in the machine with the rules of the local deployment."""

import asyncio
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from corral.local.evidence import (
    Effect,
    Evidence,
    Happening,
    Leftovers,
    Policy,
    Seen,
    Sent,
    TurnRow,
)
from corral.local.ledger import copy_ledger, read_ledger
from corral.local.model import reconcile
from tests.vm.programs import place, record
from tests.vm.programs.rest import left

COPY = record.FOLDER / "copy"
EVIDENCE = record.FOLDER / "evidence.json"


def run(agent: str) -> int:
    """Prints the report; 0 when no rule was broken."""
    report = reconcile(kept(agent))
    sys.stdout.write(json.dumps(report.as_dict(), indent=1) + "\n")
    return 0 if report.ok else 1


def kept(agent: str) -> Evidence:
    """What is known, also as a file."""
    evidence = collect(agent)
    evidence.save(EVIDENCE)
    return evidence


def collect(agent: str) -> Evidence:
    """What is known of an agent whose daemon and runner have ended."""
    evidence = Evidence(policies=policies(agent))
    evidence.sent = [TypeAdapter(Sent).validate_python(f) for f in record.lines(record.SENT)]
    evidence.seen = [TypeAdapter(Seen).validate_python(f) for f in record.lines(record.SEEN)]
    evidence.happenings = [Happening(**fact) for fact in record.lines(record.HAPPENED)]
    # An unfinished line is a sign of life that a power failure cut.
    evidence.effects = [Effect(**fact) for fact in record.readable(place.effects(agent))]
    evidence.rows, evidence.notes, faults = read_ledger(_copied(agent))
    tried = [TypeAdapter(Sent).validate_python(f) for f in record.lines(record.TRYING)]
    evidence.sent += unremembered(tried, evidence.sent, evidence.rows)
    found = {source: asyncio.run(left(agent, source)) for source in evidence.policies}
    evidence.leftovers = Leftovers(
        pending={source: one.pending for source, one in found.items()},
        undelivered={source: one.undelivered for source, one in found.items()},
        markers={source: one.markers for source, one in found.items()},
        ledger_faults=faults,
    )
    return evidence


def unremembered(tried: list[Sent], sent: list[Sent], rows: list[TurnRow]) -> list[Sent]:
    """Sends whose entry is there, but whose client lost power before it noted the answer. Pure."""

    def name(one: Sent) -> tuple[str, str | None, str]:
        return one.source, one.binding.message_id, one.said

    noted, entries = {name(one) for one in sent}, {(one.source, one.entry_id) for one in sent}
    found = []
    for one in tried:
        for row in rows:
            ours = (row.source, row.message_id) == (one.source, one.binding.message_id)
            if name(one) not in noted and ours and (row.source, row.entry_id) not in entries:
                found.append(replace(one, entry_id=row.entry_id))
                noted.add(name(one))
    return found


def policies(agent: str) -> dict[str, Policy]:
    return {
        name: Policy(
            ack=source["ack"],
            on_interrupt=source["on_interrupt"],
            runner=source["runner"]["kind"],
            dispatch_attempts_max=source.get("dispatch_attempts_max", 3),
        )
        for name, source in place.sources(agent).items()
    }


def show_ledgers() -> int:
    """The rows of every ledger: states and ids, no content."""
    for file in sorted(place.STATE.glob("*/ledger.db")):
        rows, notes, faults = read_ledger(_copied(file.parent.name))
        for row in (*rows, *notes, *faults):
            sys.stdout.write(f"{file.parent.name}: {row}\n")
    return 0


def _copied(agent: str) -> Path:
    shutil.rmtree(COPY, ignore_errors=True)
    return copy_ledger(place.ledger(agent), COPY)
