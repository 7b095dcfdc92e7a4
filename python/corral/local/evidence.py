"""What a run leaves for the model to judge: plain data, kept as JSON when a run fails.

Bytes of entries are kept as text with surrogate escapes where they are names, and as SHA-256 where
they are content. Times are wall-clock milliseconds of this machine, which Redis shares.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

Label = Literal[
    "normal",  # a message that the agent answers as `action` says
    "duplicate",  # the same message_id and the same words as an earlier send
    "conflict",  # the same message_id with other words
    "empty",  # no usable content
    "large",  # more content than the source takes
    "metadata",  # a field that is no text, or too long
    "unknown",  # a kind that nobody knows
    "cancel",  # asks to cancel another entry
]


def text(value: bytes | None) -> str | None:
    """A field's bytes as text that can be compared and written as JSON."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


def sha(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


@dataclass(frozen=True)
class Binding:
    """The fields that an answer gives back."""

    sender: str | None = None
    channel: str | None = None
    thread: str | None = None
    message_id: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True)
class Sent:
    """One message that a sender put into an inbox.

    `entry_id` is the one whose `XADD` was answered; `lost_answers` counts the tries before it whose
    answer was lost: each of them may have added an entry of its own. `said` is a digest of all that
    makes two sends the same message; `content` is the content's SHA-256.
    """

    key: int
    source: str
    entry_id: str
    label: Label
    binding: Binding
    said: str
    content: str
    at_ms: int
    action: str = "answer"
    cancels: str | None = None
    lost_answers: int = 0
    while_down: bool = False  # sent while neither daemon nor runner was running


@dataclass(frozen=True)
class Seen:
    """One outbox entry as the source read it."""

    source: str
    outbox_id: str
    in_reply_to: str
    turn_id: str
    outcome: str
    slot: str
    content: str  # at most 120 characters of it
    content_sha: str
    binding: Binding
    seen_at_ms: int

    @property
    def added_ms(self) -> int:
        """When Redis added it."""
        return int(self.outbox_id.split("-")[0])


@dataclass(frozen=True)
class Effect:
    """One line of the agents' effect log: what really happened, whoever remembers it."""

    ev: str  # start, beat, end
    turn: str
    run: int  # the process that leads the run
    at_ms: float
    entry_id: str | None = None
    sender: str | None = None
    channel: str | None = None
    session_id: str | None = None
    resumed: str | None = None


@dataclass(frozen=True)
class TurnRow:
    """One row of the ledger, as far as the model needs it."""

    source: str
    turn_id: str
    entry_id: str
    kind: str
    state: str
    outcome: str | None
    ack: str
    starts: int
    scrubbed: bool  # neither the sender's content nor the agent's answer is left
    message_id: str | None = None
    channel: str | None = None


@dataclass(frozen=True)
class Note:
    """An event that the ledger recorded for an entry that has no turn of its own."""

    source: str
    kind: str
    entry_id: str | None


@dataclass(frozen=True)
class Policy:
    """What the operator chose for a source."""

    ack: str = "dispatch"
    on_interrupt: str = "notify"
    runner: str = "exec"
    dispatch_attempts_max: int = 3


@dataclass(frozen=True)
class Leftovers:
    """What is still in Redis and on the machine after everything came to rest."""

    pending: dict[str, int] = field(default_factory=dict)  # source -> pending inbox entries
    undelivered: dict[str, int] = field(default_factory=dict)  # source -> never read
    markers: dict[str, int] = field(default_factory=dict)  # source -> outbox markers not yet swept
    acl_log: list[str] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)  # runs that outlived everything
    words_in_logs: list[str] = field(default_factory=list)  # files that contain content or secrets
    ledger_faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Happening:
    """A kill, or another end of a process."""

    at_ms: int
    process: str
    what: str
    cause: str
    code: int | None
    in_flight: int
    lethal: bool


@dataclass
class Evidence:
    """Everything the model looks at."""

    policies: dict[str, Policy] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    rows: list[TurnRow] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    leftovers: Leftovers = field(default_factory=Leftovers)
    removed: list[str] = field(default_factory=list)  # source/entry id that the test itself removed
    released: dict[str, int] = field(default_factory=dict)  # turn id -> by the operator, how often
    abandoned: list[str] = field(default_factory=list)  # turn ids, by the operator
    blocked_loop: bool = False  # the watcher saw a blocking call in the daemon's event loop
    quiet: bool = True  # everything came to rest within the bound
    trouble: list[str] = field(default_factory=list)  # what the harness itself found wrong

    def save(self, path: Path) -> None:
        path.write_bytes(_adapter.dump_json(self, indent=1))

    @staticmethod
    def load(path: Path) -> "Evidence":
        return _adapter.validate_json(path.read_bytes())


_adapter = TypeAdapter(Evidence)


def entry_order(entry_id: str) -> tuple[int, int]:
    """A sort key for entry ids."""
    ms, _, seq = entry_id.partition("-")
    return int(ms), int(seq or 0)
