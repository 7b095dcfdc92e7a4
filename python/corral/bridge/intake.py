"""What becomes of a transaction, given what the ledger knows. Pure: no I/O.

Replays are recognised by the exact bytes, and by the events: a homeserver serialises a retry anew,
and the same events may come with another age, redacted meanwhile, or be left out.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from corral.bridge import identities
from corral.bridge.domain import (
    ControlKind,
    Limits,
    Queue,
    Reason,
    State,
    control_fits,
    storable,
)
from corral.bridge.incoming import (
    Cancel,
    Conflict,
    Continuation,
    Incoming,
    Mention,
    Redaction,
    Refusal,
    Replay,
)


@dataclass(slots=True)
class OpenJob:
    """A job that has not ended, as far as the intake must know it."""

    job_id: str
    event_id: str
    room_id: str
    sender: str
    ghost: str
    state: State
    thread_root: str | None
    leased: bool
    input_generation: int
    ours: tuple[str, ...]  # events of ours that belong to it
    controls: int

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "OpenJob":
        return cls(
            job_id=fields["job_id"],
            event_id=fields["event_id"],
            room_id=fields["room_id"],
            sender=fields["sender"],
            ghost=fields["ghost"],
            state=State(fields["state"]),
            thread_root=fields["thread_root"],
            leased=fields["leased"],
            input_generation=fields["input_generation"],
            ours=tuple(event for event in fields["ours"] or () if event),
            controls=fields["controls"],
        )

    def answers_in(self, root: str | None) -> bool:
        """Whether its thread has this root: its own mention's, or one below an event of ours."""
        return root is not None and (root in self.ours or root in {self.thread_root, self.event_id})


@dataclass(slots=True)
class Known:
    """What the ledger has that bears on a transaction. `epoch` is None for a new id; `admissions`
    counts all that were admitted so far."""

    admissions: int
    epoch: int | None
    body_digest: bytes | None
    events: dict[str, bytes]
    seen: frozenset[bytes]
    processed: frozenset[str]
    total: int
    rooms: dict[str, int]
    jobs: list[OpenJob]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Known":
        jobs = json.loads(row["jobs"]) if row["jobs"] else []
        return cls(
            admissions=row["admissions"],
            epoch=row["epoch"],
            body_digest=row["body_digest"],
            events=dict(zip(row["event_ids"] or (), row["event_digests"] or (), strict=True)),
            seen=frozenset(row["seen"] or ()),
            processed=frozenset(row["processed"] or ()),
            total=row["total"],
            rooms=json.loads(row["rooms"]) if row["rooms"] else {},
            jobs=[OpenJob.of(one) for one in jobs],
        )


@dataclass(slots=True)
class NewJob:
    """A mention that becomes a row: pending, or denied at once with its reason."""

    job_id: str
    mention: Mention
    reason: Reason | None


@dataclass(slots=True)
class NewControl:
    control_id: str
    job_id: str
    kind: ControlKind
    source_event: str
    sender: str
    input_generation: int
    fingerprint: bytes
    payload: str | None
    message_id: str | None


@dataclass(slots=True)
class Plan:
    """What is to be written, in order."""

    jobs: list[NewJob] = field(default_factory=list)
    controls: list[NewControl] = field(default_factory=list)
    answered: list[bytes] = field(default_factory=list)  # mentions that answered a question
    # Of jobs that nobody has claimed: what becomes a control if somebody has, meanwhile.
    canceled: list[NewControl] = field(default_factory=list)
    redacted: list[str] = field(default_factory=list)  # events
    denied: int = 0
    ignored: int = 0

    @property
    def jobs_alone(self) -> bool:
        """Whether nothing is written but the transaction and its new jobs."""
        return not (self.controls or self.answered or self.canceled or self.redacted)

    def job_columns(self) -> list[list[Any]]:
        """The arrays of the statement `admit`, from the seventh parameter on."""
        rows = [
            (
                one.job_id, one.mention.event_id, one.mention.room_id, one.mention.ghost,
                one.mention.sender, one.mention.thread_root, one.mention.traceparent,
                storable(one.mention.text), identities.message(one.job_id),
                None if one.reason is None else one.reason.value,
                identities.seen(one.mention.event_id, one.mention.ghost),
            )
            for one in self.jobs
        ]  # fmt: skip
        return [list(column) for column in zip(*rows, strict=True)]

    def claimed(self, ended: Collection[str]) -> None:
        """Jobs to cancel that are not among those that ended were claimed since `look`."""
        self.controls += [one for one in self.canceled if one.job_id not in ended]
        self.canceled = [one for one in self.canceled if one.job_id in ended]

    def control_columns(self) -> list[list[Any]]:
        """The arrays of the statement `control`."""
        rows = [
            (
                one.control_id, one.job_id, one.kind.value, one.source_event, one.sender,
                one.input_generation, one.fingerprint, one.payload, one.message_id,
            )
            for one in self.controls
        ]  # fmt: skip
        return [list(column) for column in zip(*rows, strict=True)]


def question(incoming: Incoming) -> tuple[str, list[bytes], list[str], list[str], bool]:
    """The parameters of the statement `look`."""
    mentions = list(_mentions(incoming))
    refers = any(
        isinstance(one, Cancel | Continuation)
        or (isinstance(one, Mention) and one.thread_root is not None)
        for one in incoming.classified
    )
    rooms = {one.room_id for one in mentions}
    if refers:
        rooms |= {
            one.room_id for one in incoming.classified if isinstance(one, Cancel | Continuation)
        }
    return (
        incoming.txn_id,
        [identities.seen(one.event_id, one.ghost) for one in mentions],
        [one.event_id for one in mentions],
        list(rooms),
        refers,
    )


def _mentions(incoming: Incoming) -> Iterable[Mention]:
    for one in incoming.classified:
        if isinstance(one, Mention):
            yield one
        elif isinstance(one, Refusal):
            yield one.mention


def compare(incoming: Incoming, known: Known) -> Replay | Conflict | None:
    """Whether the transaction's id is new (None), came with the same events, or with others."""
    if known.epoch is None:
        return None
    if known.body_digest == incoming.body_digest:
        return Replay(exact=True)
    for event in incoming.events:
        stored = known.events.get(event.event_id)
        if stored is None or (stored != event.digest and not event.redacted):
            return Conflict()
    return Replay(exact=False)


def redacted_since(incoming: Incoming, known: Known) -> list[str]:
    """The events that a replay brings in their redacted form, which they did not have before."""
    return [
        event.event_id
        for event in incoming.events
        if event.redacted and known.events.get(event.event_id) != event.digest
    ]


def plan(incoming: Incoming, known: Known, limits: Limits, *, by_power: bool = False) -> Plan:
    """Decides about each event in order; capacities are those of the moment."""
    return _Planner(known, limits, by_power).run(incoming)


class _Planner:
    def __init__(self, known: Known, limits: Limits, by_power: bool) -> None:
        self._known = known
        self._limits = limits
        self._by_power = by_power
        self._queue = Queue(limits, known.rooms, known.total)
        self._taken: set[bytes] = set(known.seen)
        self._plan = Plan()

    def run(self, incoming: Incoming) -> Plan:
        for one in incoming.classified:
            match one:
                case Mention():
                    self._mention(one, None)
                case Refusal():
                    self._mention(one.mention, Reason(one.reason))
                case Continuation():
                    taken = self._continue(one, one.thread_root, one.text, None)
                    self._plan.ignored += not taken
                case Cancel():
                    self._cancel(one)
                case Redaction():
                    self._redact(one)
                case _:
                    self._plan.ignored += 1
        return self._plan

    def _mention(self, mention: Mention, refused: Reason | None) -> None:
        mark = identities.seen(mention.event_id, mention.ghost)
        if mark in self._taken or mention.event_id in self._known.processed:
            self._plan.ignored += 1
            return
        self._taken.add(mark)
        # Only what is new may be an answer: the prompt itself may come again, in its own thread.
        if refused is None and self._continue(
            mention, mention.thread_root, mention.text, mention.ghost
        ):
            self._plan.answered.append(mark)
            return
        reason = refused or self._queue.admit(mention.room_id)
        self._plan.denied += reason is not None
        job_id = identities.job(mention.event_id, mention.ghost)
        self._plan.jobs.append(NewJob(job_id, mention, reason))

    def _continue(
        self, event: Mention | Continuation, root: str | None, text: str, ghost: str | None
    ) -> bool:
        """Whether it answers an open question of its sender, who alone may answer it."""
        for job in self._known.jobs:
            if (
                job.state is State.AWAITING_INPUT
                and job.room_id == event.room_id
                and job.sender == event.sender
                and job.answers_in(root)
                and ghost in {None, job.ghost}
            ):
                return self._control(job, ControlKind.CONTINUATION, event, storable(text))
        return False

    def _cancel(self, cancel: Cancel) -> None:
        """Whatever it names: a mention of several agents is several jobs."""
        done = False
        for new in self._plan.jobs:  # admitted by this very transaction
            mention = new.mention
            named = (mention.event_id, mention.sender) == (cancel.target, cancel.sender)
            if named and new.reason is None:
                self._plan.canceled.append(_control(new.job_id, 0, ControlKind.CANCEL, cancel, ""))
                done = True
        for job in self._known.jobs:
            named = cancel.target == job.event_id or cancel.target in job.ours
            allowed = job.sender == cancel.sender or (cancel.by_power and self._by_power)
            if named and allowed and job.room_id == cancel.room_id:
                done |= self._cancel_job(job, cancel)
        self._plan.ignored += not done

    def _cancel_job(self, job: OpenJob, cancel: Cancel) -> bool:
        if job.state is State.PENDING and not job.leased:
            generation = job.input_generation
            new = _control(job.job_id, generation, ControlKind.CANCEL, cancel, "")
            self._plan.canceled.append(new)
            return True
        if job.state is State.REPLY_PENDING:
            return False
        return self._control(job, ControlKind.CANCEL, cancel, "")

    def _control(
        self, job: OpenJob, kind: ControlKind, event: Mention | Continuation | Cancel, text: str
    ) -> bool:
        if not control_fits(kind, job.controls, self._limits):
            return False
        job.controls += 1
        self._plan.controls.append(_control(job.job_id, job.input_generation, kind, event, text))
        return True

    def _redact(self, redaction: Redaction) -> None:
        """Of an event in this very transaction, too: it is admitted, then taken back."""
        self._plan.redacted.append(redaction.target)


def _control(
    job_id: str,
    input_generation: int,
    kind: ControlKind,
    event: Mention | Continuation | Cancel,
    text: str,
) -> NewControl:
    control_id = identities.control(job_id, kind, event.event_id, 0)
    answer = kind is ControlKind.CONTINUATION
    return NewControl(
        control_id,
        job_id,
        kind,
        event.event_id,
        event.sender,
        input_generation,
        identities.fingerprint(kind, event.event_id, event.sender, input_generation, text),
        text if answer else None,
        identities.control_message(control_id) if answer else None,
    )
