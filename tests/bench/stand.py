"""A private server with one source: filled with messages, and read for what came out and when.

The times are the server's own: the id of an outbox entry says in which millisecond it was added,
and `in_reply_to` names the inbox entry, whose id says the same. No clock of a client is in them.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from corral.core.errors import UnavailableError
from corral.local.servers import RedisServer, find_server
from corral.local.topology import Topology, load_rendered, private_base

AGENT = "scout"
SOURCE = "echo"
READ_COUNT = 100
BACKLOG_MAX = 1000
CONTENT_BYTES = 256
CHANNELS = 100
FILL_STEP = 1000
LOOK_EVERY_S = 0.02

Fields = dict[str, str | bytes]


@dataclass(frozen=True)
class Usage:
    """What a process's threads have used: CPU seconds (user and system), and resident bytes."""

    cpu_s: float
    resident_bytes: int
    peak_bytes: int


def usage(pid: int) -> Usage:
    """Read from /proc. FileNotFoundError when the process has ended."""
    proc = Path("/proc") / str(pid)
    # Nanoseconds of each thread; the process's own counters are in steps of a clock tick.
    spent_ns = sum(
        int((task / "schedstat").read_text().split()[0]) for task in (proc / "task").iterdir()
    )
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    return Usage(
        spent_ns / 1e9,
        int(status["VmRSS"].split()[0]) * 1024,
        int(status["VmHWM"].split()[0]) * 1024,
    )


def message(number: int, *, channels: int = CHANNELS, named: bool = False) -> Fields:
    """One message of 256 bytes; `named` gives it the producer's own id."""
    content = (b"message %d " % number).ljust(CONTENT_BYTES, b".")
    fields: Fields = {"content": content, "channel": f"c{number % channels}"}
    if named:
        fields["message_id"] = f"m{time.time_ns()}-{number}"
    return fields


class Stand:
    """One private server and the files of one agent that has the source `echo` alone."""

    def __init__(self, *, kind: str | None = None) -> None:
        self.base = private_base("corral-bench-")
        self.topology = Topology.materialise(load_rendered(), self.base, edits={AGENT: _one_source})
        self.kind, binary = find_server(kind)
        self.server = RedisServer(
            self.base / "redis",
            binary,
            acl=self.topology.acl(),
            settings=self.topology.redis_settings,
            socket=self.topology.redis_socket,
        )
        source = self.topology.sources[AGENT]["sources"][SOURCE]
        self.inbox: str = source["stream"]
        self.outbox: str = source["outbox"]
        self._client: redis.Redis | None = None

    def __enter__(self) -> Self:
        self.server.start()
        self._client = self.server.client()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            self._client.close()
        self.server.stop()
        self.topology.remove()

    @property
    def client(self) -> "redis.Redis":
        if self._client is None:
            raise UnavailableError("the server of the stand is not running")
        return self._client

    # ------------------------------------------------------------ in

    def fill(self, messages: Sequence[Fields], *, encode: Any = None) -> None:
        """Add messages; `encode` makes of one's fields what a contender wants to read."""
        for at in range(0, len(messages), FILL_STEP):
            with self.client.pipeline(transaction=False) as pipe:
                for fields in messages[at : at + FILL_STEP]:
                    pipe.xadd(self.inbox, encode(fields) if encode else fields)  # type: ignore[arg-type]
                pipe.execute()

    # ------------------------------------------------------------ out

    def length(self) -> int:
        """Answers so far."""
        return int(self.client.xlen(self.outbox))

    def answers(self) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """All answers in order."""
        found: list[tuple[bytes, dict[bytes, bytes]]] = []
        start = "-"
        while True:
            page: Any = self.client.xrange(self.outbox, start, "+", FILL_STEP)
            if not page:
                return found
            found += page
            start = f"({page[-1][0].decode()}"

    def await_length(self, wanted: int, timeout_s: float) -> None:
        """Wait for so many answers; UnavailableError when they do not come."""
        until = time.monotonic() + timeout_s
        while (here := self.length()) < wanted:
            if time.monotonic() > until:
                raise UnavailableError(f"{here} of {wanted} answers after {timeout_s:.0f} s")
            pause()


def milliseconds(entry_id: bytes) -> int:
    """When the server made this id."""
    return int(entry_id.partition(b"-")[0])


def pause(seconds: float = LOOK_EVERY_S) -> None:
    """Let the measured ones work before looking again."""
    threading.Event().wait(seconds)


def _one_source(sources: dict[str, Any]) -> None:
    kept = sources["sources"][SOURCE]
    kept |= {"read_count": READ_COUNT, "backlog_max": BACKLOG_MAX}
    sources["sources"] = {SOURCE: kept}
