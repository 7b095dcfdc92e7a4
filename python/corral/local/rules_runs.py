"""The rules about runs, judged by the agents' own effect log, and about what is left at the end."""

import signal
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from corral.local.evidence import Effect, TurnRow, entry_order
from corral.local.rules import (
    CERTAINLY_RAN,
    CLOCK_TOLERANCE_MS,
    NEVER_RAN,
    TERMINAL,
    Case,
    Rule,
    Violation,
    nothing_invented,
    one_answer,
    one_fate,
    right_answer,
    terminal,
)


@dataclass
class Run:
    """One start of the agent, with the times of its first and last sign of life."""

    row: TurnRow
    start: Effect
    last_ms: float


def runs_of(case: Case) -> list[Run]:
    """Every run that the effect log shows, in the order of their starts."""
    runs: dict[tuple[str, int], Run] = {}
    for effect in sorted(case.evidence.effects, key=lambda effect: effect.at_ms):
        row = case.by_turn.get(effect.turn)
        if row is None:
            continue
        run = runs.setdefault((effect.turn, effect.run), Run(row, effect, effect.at_ms))
        run.last_ms = max(run.last_ms, effect.at_ms)
    return list(runs.values())


def starts_bounded(case: Case) -> Iterator[Violation]:
    """An entry starts the agent at most once, unless the operator chose to resume."""
    for turn_id, effects in case.effects.items():
        row = case.by_turn.get(turn_id)
        starts = sum(effect.ev == "start" for effect in effects)
        if row is None:
            yield Violation("invented_run", (turn_id,), "a run of a turn that the ledger lacks")
            continue
        policy = case.policy(row.source)
        most = policy.dispatch_attempts_max if policy.on_interrupt == "resume" else 1
        if policy.on_interrupt == "hold":
            most += case.evidence.released.get(turn_id, 0)
        if starts > most:
            yield Violation("started_again", (turn_id,), f"{starts} starts, at most {most} allowed")
        if starts > row.starts:
            message = f"{starts} starts, the ledger committed {row.starts}"
            yield Violation("start_not_recorded", (turn_id,), message)
        if row.outcome in NEVER_RAN and starts:
            yield Violation("ran_although", (turn_id,), f"{row.outcome}, but it was started")
    for row in case.evidence.rows:
        policy = case.policy(row.source)
        if policy.runner != "exec" or row.outcome not in CERTAINLY_RAN:
            continue
        if not case.starts(row.turn_id):
            yield Violation("no_run", (row.turn_id,), f"{row.outcome} without any run")


def resumed_flag(case: Case) -> Iterator[Violation]:
    """A run after the first is told that it is resumed; each run is told what was sent."""
    for row in case.evidence.rows:
        starts = case.starts(row.turn_id)
        group = case.group_of.get(row.turn_id)
        if len(starts) > 1 and not case.runner_died_during(row):
            message = f"{len(starts)} starts, although no runner died meanwhile"
            yield Violation("started_again", (row.turn_id,), message)
        for number, start in enumerate(starts):
            if number > 0 and start.resumed != "1":
                yield Violation("resumed_wrong", (row.turn_id,), f"CORRAL_RESUMED={start.resumed}")
            if start.entry_id != row.entry_id:
                yield Violation("binding_wrong", (row.turn_id,), f"ran for {start.entry_id}")
            if group is not None:
                told = (start.sender, start.channel)
                sent = (group.first.binding.sender, group.first.binding.channel)
                if told != sent:
                    yield Violation("binding_wrong", (row.turn_id,), f"told {told}, sent {sent}")


def in_order(case: Case) -> Iterator[Violation]:
    """Within a channel runs start in the order of their entries and never overlap."""
    channels: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs_of(case):
        channels[run.row.source, run.row.channel or ""].append(run)
    for runs in channels.values():
        # A held turn that an operator releases starts out of its order, by design.
        ordered = [run for run in runs if run.row.turn_id not in case.evidence.released]
        for earlier, later in pairwise(ordered):
            if entry_order(later.row.entry_id) < entry_order(earlier.row.entry_id):
                ids = (earlier.row.turn_id, later.row.turn_id)
                yield Violation("order", ids, "a later entry of the channel started first")
        for earlier, later in pairwise(runs):
            if earlier.last_ms > later.start.at_ms:
                ids = (earlier.row.turn_id, later.row.turn_id)
                late_ms = earlier.last_ms - later.start.at_ms
                message = f"the first still worked {late_ms:.0f} ms into the second"
                yield Violation("overlap", ids, message)


def over_when_told(case: Case) -> Iterator[Violation]:
    """When the sender is told how a turn ended, its run is over, children included."""
    last: dict[str, float] = {}
    for effect in case.evidence.effects:
        last[effect.turn] = max(last.get(effect.turn, 0.0), effect.at_ms)
    for turn_id, last_ms in last.items():
        for entry in case.finals(turn_id)[:1]:
            late_ms = last_ms - (entry.added_ms + 1)
            if late_ms > CLOCK_TOLERANCE_MS:
                message = f"a process of the run was at work {late_ms:.0f} ms after the answer"
                yield Violation("still_working", (turn_id, entry.outbox_id), message)


def scrubbed(case: Case) -> Iterator[Violation]:
    """A terminal row keeps no content; no log has content or secrets."""
    for row in case.evidence.rows:
        if row.state in TERMINAL and not row.scrubbed:
            yield Violation("content_kept", (row.turn_id,), f"{row.state}, content still there")
    for where in case.evidence.leftovers.words_in_logs:
        yield Violation("words_in_log", (where,), "content or a secret is in a log")


def _held(case: Case, source: str) -> int:
    """Entries that stay pending: of held turns, under the policy that acknowledges at the end."""
    if case.policy(source).ack != "reply":
        return 0
    return sum(row.source == source and row.state == "held" for row in case.evidence.rows)


def nothing_left(case: Case) -> Iterator[Violation]:
    """After the faults everything comes to rest, and leaves nothing behind."""
    left = case.evidence.leftovers
    if not case.evidence.quiet:
        yield Violation("not_quiet", (), "did not come to rest within the bound")
    for what, counts in (
        ("pending", left.pending),
        ("undelivered", left.undelivered),
        ("outbox markers", left.markers),
    ):
        for source, count in counts.items():
            if count > (_held(case, source) if what == "pending" else 0):
                yield Violation("left_behind", (source,), f"{count} {what}")
    for line in left.acl_log:
        yield Violation("acl_log", (), line)
    for line in left.processes:
        yield Violation("left_behind", (line,), "a process outlived its runner")
    for line in left.ledger_faults:
        yield Violation("ledger_fault", (), line)


ENDED = (None, 0, -signal.SIGTERM)


def processes_fine(case: Case) -> Iterator[Violation]:
    """No process ended by itself with an error, and each ended when it was asked to."""
    for happening in case.evidence.happenings:
        ids = (happening.process,)
        if happening.what == "overdue":
            yield Violation("process_failed", ids, "did not end when asked")
        # A process that was asked to end while it still started had no handler yet: fine, too.
        elif happening.what == "ended" and not happening.lethal and happening.code not in ENDED:
            yield Violation("process_failed", ids, f"exit status {happening.code}")
    if case.evidence.blocked_loop:
        yield Violation("blocked_loop", ("daemon",), "a blocking call in the event loop")
    for line in case.evidence.trouble:
        yield Violation("harness", (), line)


RULES: tuple[Rule, ...] = (
    one_fate,
    terminal,
    one_answer,
    nothing_invented,
    right_answer,
    starts_bounded,
    resumed_flag,
    in_order,
    over_when_told,
    scrubbed,
    nothing_left,
    processes_fine,
)
