"""What `doctor` looked at: plain facts, gathered by `examination`, judged by `diagnosis`. Pure.

A field that could not be found out is None, and a text beside it says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class Result(StrEnum):
    """What a check came to. Only `ok` and `absent` are green."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"  # it could not run
    ABSENT = "absent"  # it does not apply to this host, or was not asked for


@dataclass(frozen=True, slots=True)
class Finding:
    """One check with its result, what was found, and the fix in one line."""

    check: str
    result: Result
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file or folder, and the permission bits that it must not have."""

    path: str
    forbidden: int
    mode: int | None  # permission bits; None: see `error`
    error: str = ""
    optional: bool = True  # it need not exist
    missing: bool = False


@dataclass(frozen=True, slots=True)
class DiskFact:
    """Room on the file system of a folder."""

    path: str
    free_bytes: int | None
    free_inodes: int | None  # None: the file system has no such limit
    error: str = ""


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """The ledger's file as it is on the disk, whoever runs."""

    exists: bool
    application_id: int | None = None
    schema: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """The daemon's own word; `error` when it could not be asked."""

    error: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)
    integrity: str | None = None
    integrity_error: str = ""
    anomalies: Mapping[str, list[Mapping[str, Any]]] | None = None
    anomalies_error: str = ""


@dataclass(frozen=True, slots=True)
class Consumer:
    name: str
    pending: int


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """One source in Redis. `skipped` are unread entries that the group has gone past."""

    has_group: bool | None
    has_stream: bool
    consumers: tuple[Consumer, ...] | None
    newest_id: str | None  # of its streams
    ledger_uuid: str | None
    ledger_sequence: int | None
    skipped: tuple[str, ...] | None
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """Redis as the operator; `error` says why it was not read.

    `down`: it was asked, and does not answer or refuses the credential.
    """

    error: str = ""
    down: bool = False
    server: str = ""
    version: str = ""
    anonymous: str = ""  # "refused", "admitted", or empty: see `anonymous_error`
    anonymous_error: str = ""
    sources: Mapping[str, StreamFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """The namespace that is configured, and the one that the daemon is in."""

    name: str | None = None
    missing: bool = False
    same: bool | None = None
    error: str = ""
    egress: tuple[tuple[str, str], ...] = ()  # target, problem or empty
    egress_error: str = ""


class TamqFacts(NamedTuple):
    """The TAMQ of a source that wakes a live session; `error` when it does not answer."""

    source: str
    socket: str
    repo: str
    error: str = ""
    hidden: bool = False  # this user may not ask
    foreign: bool = False  # it is another user's than the runner's, and will not serve that
    live: int | None = None  # sessions that serve the repository; None: only its user may see


@dataclass(frozen=True, slots=True)
class Examined:
    """All facts about one agent."""

    agent: str
    now_ms: int
    config_error: str
    files: tuple[FileFact, ...]
    disks: tuple[DiskFact, ...]
    ledger: LedgerFile
    daemon: DaemonFacts
    redis: RedisFacts
    namespace: NamespaceFacts
    consumers: Mapping[str, str]  # source -> the consumer that may be there
    schema: int
    application_id: int
    version: str
    sessions: tuple[TamqFacts, ...] = ()
