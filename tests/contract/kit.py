"""What the contract tests of cowboy share: one private deployment per test, and how to ask it.

The daemon runs inside the test's own process where nothing has to be killed (blocking calls are
then seen by `blockbuster`), and as a process of its own where something has.
"""

import asyncio
import json
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from corral.core.settings import load
from corral.cowboy.config import SourceConfig, parse_sources
from corral.cowboy.daemon import Daemon
from corral.cowboy.redisconn import Wire, connection_to
from corral.cowboy.settings import CowboySettings
from corral.local import wait
from corral.local.deployment import DAEMON, RUNNER, Deployment, Options
from corral.local.evidence import Effect
from corral.local.ledger import copy_ledger, read_effects
from tests.contract.streams import (
    AGENT,
    EVERY,
    GHOST,
    PAIRS,
    Answer,
    Backend,
    Streams,
    each_completed,
    only_answer,
)
from tests.harness.armed import read_hits
from tests.harness.trial import QUICK, Trial, launch_for

__all__ = [
    "AGENT",
    "CAT",
    "EVERY",
    "GHOST",
    "PAIRS",
    "TIMEOUT_S",
    "Answer",
    "Backend",
    "Ended",
    "House",
    "each_completed",
    "only_answer",
]

T = TypeVar("T")

TIMEOUT_S = 20.0
LOG_TAIL_BYTES = 4_000
CAT: Mapping[str, object] = {"kind": "exec", "command": ["/bin/cat"], "turn_timeout_s": 60}


@dataclass(frozen=True)
class Ended:
    """A command that has ended: exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class House(Streams):
    """A server with the demo's topology; the daemon and the runner when they are started.

    `changes` are settings by source, laid over the demo's and over quick intervals; `only` keeps
    these sources alone. `arms` are crash points by process and number of its start.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        only: Sequence[str] = (),
        changes: Mapping[str, Mapping[str, object]] | None = None,
        arms: Mapping[str, Mapping[int, tuple[str, ...]]] | None = None,
    ) -> None:
        self._only = only
        self._changes = changes or {}
        trial = Trial("contract", 0, arms=arms or {})
        armed = (lambda where: launch_for(trial, where)) if arms else None
        deployment = Deployment(
            Options(
                agent=AGENT,
                server=backend.server,
                protocol=backend.protocol,
                edit=self._edit,
                launch=armed,
            )
        )
        super().__init__(deployment, backend)
        self.base = deployment.base
        self.server = deployment.server
        self.supervisor = deployment.supervisor
        self._inside: asyncio.Task[None] | None = None

    def _edit(self, sources: dict[str, Any]) -> None:
        table = sources["sources"]
        for name in list(table):
            if self._only and name not in self._only:
                del table[name]
                continue
            table[name].update(QUICK)
            table[name].update(self._changes.get(name, {}))

    # ------------------------------------------------------------ life

    async def __aenter__(self) -> Self:
        await self.deployment.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
        if error is not None:
            error.add_note(self.log_tails())
        await self.deployment.__aexit__(kind, error, trace)

    def log_tails(self) -> str:
        """The ends of the logs, for a test that failed."""
        files = [*sorted(self.supervisor.logs.glob("*.log")), self.server.log_file]
        tails = [
            f"--- {file.name}\n{file.read_bytes()[-LOG_TAIL_BYTES:].decode(errors='replace')}"
            for file in files
            if file.exists()
        ]
        return "\n".join(tails)

    def log(self, name: str = DAEMON) -> str:
        """All that a process has logged so far."""
        file = self.supervisor.log_file(name)
        return file.read_text(encoding="utf-8") if file.exists() else ""

    async def start(self, *names: str) -> None:
        """Starts processes, by default runner and daemon, and waits until they are ready."""
        await self.deployment.start(*names)

    async def stop(self, *names: str) -> None:
        await self.supervisor.stop(*(names or (DAEMON, RUNNER)))

    async def slay(self, *names: str) -> None:
        """SIGKILL, without another start, and waits until they are gone."""
        for name in names:
            self.supervisor.services[name].wanted = False
            self.supervisor.kill(name)
        for name in names:
            keeper = self.supervisor.services[name].keeper
            if keeper is not None:
                await keeper

    async def cowboy(
        self,
        *arguments: str,
        identity: str = f"agent-{AGENT}",
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
    ) -> "Ended":
        """Runs the command line to its end, as an operator would, with an identity's credential.

        `environment` is laid over what it would be.
        """
        laid_over = environment or {}
        protocol = self.backend.protocol
        environment = {**self.topology.environment(AGENT, redis=True, protocol=protocol)}
        credential = self.topology.rendered["identities"][identity]["credential"]
        environment["COWBOY_REDIS_PASSWORD_FILE"] = str(self.topology.credential_file(credential))
        environment |= laid_over
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "corral.cowboy.main", *arguments),
            cwd=self.base,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                out, err = await process.communicate(stdin)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Ended(process.returncode or 0, out.decode(), err.decode())

    def settings(
        self, socket: Path | None = None, metrics_dir: Path | None = None
    ) -> CowboySettings:
        """The daemon's settings; `socket` stands in for the server's."""
        login = self.topology.login(f"agent-{AGENT}")
        return load(
            CowboySettings,
            config_dir=self.topology.config_dir,
            state_dir=self.topology.state_dir,
            runtime_dir=self.topology.runtime_dir,
            redis_url=f"unix://{socket or self.topology.redis_socket}",
            redis_password=login.password,
            redis_protocol=self.backend.protocol,
            metrics_dir=metrics_dir,
        )

    @asynccontextmanager
    async def inside(
        self, socket: Path | None = None, *, metrics_dir: Path | None = None
    ) -> AsyncIterator[Daemon]:
        """The daemon, in this process, once it serves its control socket."""
        # It reads its files before it serves, which blocks: a service may, a test's loop must not.
        daemon = await asyncio.to_thread(lambda: Daemon(self.settings(socket, metrics_dir), AGENT))
        self._inside = asyncio.create_task(daemon.run())
        try:
            await self.until_async(self._serves, "the daemon to serve its control socket")
            yield daemon
            self._check_inside()
        finally:
            self._inside.cancel()
            with suppress(asyncio.CancelledError):
                await self._inside
            self._inside = None
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().remove_signal_handler(number)

    def _check_inside(self) -> None:
        if self._inside is not None and self._inside.done():
            self._inside.result()
            raise AssertionError("the daemon has ended")

    async def _serves(self) -> bool:
        with suppress(OSError):
            return bool((await self.deployment.control({"op": "status"}))["ok"])
        return False

    def config(self, source: str) -> SourceConfig:
        return parse_sources(json.dumps(self.topology.sources[AGENT])).sources[source]

    @asynccontextmanager
    async def wire(self, socket: Path | None = None, timeout_s: float = 5.0) -> AsyncIterator[Wire]:
        """A connection as the daemon makes them, with its identity."""
        settings = await asyncio.to_thread(self.settings, socket)
        wire = Wire(connection_to(settings.redis_endpoint(f"agent-{AGENT}"), timeout_s))
        await wire.connect()
        try:
            yield wire
        finally:
            await wire.close()

    # ------------------------------------------------------------ waiting

    async def until_async(
        self, condition: Callable[[], Awaitable[T]], what: str, timeout_s: float = TIMEOUT_S
    ) -> T:
        async def ask() -> T:
            self._check_inside()
            return await condition()

        return await wait.until_async(ask, timeout_s, what)

    async def until(self, condition: Callable[[], T], what: str, timeout_s: float = TIMEOUT_S) -> T:
        async def ask() -> T:
            return condition()

        return await self.until_async(ask, what, timeout_s)

    async def until_state(
        self, source: str, *states: str, timeout_s: float = TIMEOUT_S
    ) -> dict[str, Any]:
        """Waits until `status` says that the source is in one of the states; its part of it."""

        async def reached() -> dict[str, Any] | None:
            found = await self.source(source)
            return found if found["state"] in states else None

        found = await self.until_async(reached, f"{source} to be {states}", timeout_s)
        assert found is not None
        return found

    async def until_answered(
        self, source: str, entries: Iterable[str], timeout_s: float = TIMEOUT_S
    ) -> dict[str, list[Answer]]:
        """Waits until each entry has an answer or a notice; all of the outbox, by entry."""
        wanted = set(entries)

        async def answered() -> dict[str, list[Answer]] | None:
            found = await self.by_entry(source)
            missing = wanted - set(found)
            return None if missing else found

        found = await self.until_async(answered, f"answers of {source}", timeout_s)
        assert found is not None
        return found

    async def until_quiet(self, source: str, timeout_s: float = TIMEOUT_S) -> None:
        """Waits until nothing of a source is pending, unread, or on its way to the outbox."""

        async def quiet() -> bool:
            return await self.deployment.state_of(source) == (0, 0, 0)

        await self.until_async(quiet, f"{source} to be quiet", timeout_s)

    # ------------------------------------------------------------ the daemon

    async def ask(self, op: str, **fields: object) -> dict[str, Any]:
        """The daemon's answer to one control request, `ok` included."""
        return await self.deployment.control({"op": op, **fields})

    async def source(self, name: str) -> dict[str, Any]:
        """A source's part of `status`."""
        answer = await self.ask("status")
        assert answer["ok"], answer
        found: dict[str, Any] = {s["source"]: s for s in answer["sources"]}[name]
        return found

    async def events(self, source: str) -> list[str]:
        """The kinds of the last anomalies, newest first."""
        return [event["kind"] for event in (await self.source(source))["events"]]

    async def counters(self, source: str) -> dict[str, int]:
        counters: dict[str, int] = (await self.source(source))["counters"]
        return counters

    # ------------------------------------------------------------ evidence

    def effects(self) -> list[Effect]:
        """What the demo agent's runs did, from their own log, in order."""
        return read_effects(self.deployment.effects_file)

    def starts(self) -> list[str]:
        """The turn ids of the demo agent's starts, in order."""
        return [effect.turn for effect in self.effects() if effect.ev == "start"]

    def ledger_rows(self, statement: str) -> list[tuple[Any, ...]]:
        """A query on a copy of the ledger: the daemon's own files are not touched."""
        ledger = copy_ledger(self.topology.ledger(AGENT), self.base / "looked-at")
        with closing(sqlite3.connect(ledger)) as connection:
            return connection.execute(statement).fetchall()

    def kills(self) -> list[str]:
        """The crash points at which an armed process has killed itself."""
        return [point for point, _ in read_hits(self.base / "hits")[1]]
