"""Who answers the messages of a stand, as a process of its own."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from corral.core.errors import UnavailableError
from corral.local.tether import tethered
from corral.local.topology import base_environment
from tests.bench.loops import GROUP
from tests.bench.stand import AGENT, READ_COUNT, Stand, message

PEERS_PYTHON = "CORRAL_BENCH_PYTHON"  # of the environment with the peers; set by the entry script
PEER_SAMPLE_TIMEOUT_S = 60
LAST_WORDS_BYTES = 600


@dataclass(frozen=True)
class Contender:
    """`name` is in the tables; `words` choose the program."""

    name: str
    words: tuple[str, ...]

    @property
    def is_peer(self) -> bool:
        return self.words[0] == "peers"

    @property
    def is_cowboy(self) -> bool:
        return self.words[0] == "cowboy"

    def command(self, action: str = "serve") -> list[str]:
        if self.is_cowboy:
            return [sys.executable, "-P", "-m", "corral.cowboy.main", "run", AGENT]
        python, more = (peers_python(), [action]) if self.is_peer else (sys.executable, [])
        return [python, "-P", "-m", f"tests.bench.{self.words[0]}", self.words[1], *more]

    def environment(self, stand: Stand) -> dict[str, str]:
        if self.is_cowboy:
            return stand.topology.environment(AGENT, redis=True)
        return base_environment() | {
            "BENCH_SOCKET": str(stand.server.socket),
            "BENCH_USERNAME": stand.server.admin.username,
            "BENCH_PASSWORD": stand.server.admin.password,
            "BENCH_INBOX": stand.inbox,
            "BENCH_OUTBOX": stand.outbox,
            "BENCH_READ_COUNT": str(READ_COUNT),
            "BENCH_LEDGER": str(stand.base / "naive.db"),
        }

    def fill(self, stand: Stand, count: int, *, channels: int) -> None:
        """Put messages into the inbox as this contender wants to read them."""
        if not self.is_peer:
            stand.fill([message(number, channels=channels) for number in range(count)])
            return
        subprocess.run(
            self.command("one"),
            env=self.environment(stand),
            check=True,
            timeout=PEER_SAMPLE_TIMEOUT_S,
        )
        found: Any = stand.client.xrange(stand.inbox)
        ((_, sample),) = found
        stand.fill([sample] * (count - 1))
        with contextlib.suppress(redis.ResponseError):  # one of the two made it itself
            stand.client.xgroup_create(stand.inbox, GROUP, "0")

    @contextlib.contextmanager
    def running(self, stand: Stand) -> Iterator["subprocess.Popen[bytes]"]:
        """The process, from its start to SIGKILL. An UnavailableError gets its last words."""
        log = stand.topology.log_dir / f"{self.name.replace(' ', '-')}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                tethered(self.command()),
                env=self.environment(stand),
                cwd=stand.base,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        try:
            yield process
        except UnavailableError as error:
            raise UnavailableError(f"{self.name}: {error.message}{_tail(log)}") from error
        finally:
            process.kill()
            process.wait()


BARE = Contender("bare loop", ("loops", "bare"))
NAIVE = Contender("naive ledger", ("loops", "naive"))
COWBOY = Contender("cowboy", ("cowboy",))
FASTSTREAM = Contender("FastStream", ("peers", "faststream"))
TASKIQ = Contender("taskiq-redis", ("peers", "taskiq"))
OWN = (BARE, NAIVE, COWBOY)
PEERS = (FASTSTREAM, TASKIQ)


def peers_python() -> str:
    """The interpreter of the environment with the peers. `UnavailableError` without one."""
    path = os.environ.get(PEERS_PYTHON, "")
    if not path:
        raise UnavailableError(
            "the environment of the peers is not there", hint="run ./corral bench"
        )
    return path


def _tail(log: Path) -> str:
    text = log.read_bytes()[-LAST_WORDS_BYTES:].decode(errors="replace").strip()
    return f"; its last words: {text}" if text else ""
