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
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import redis
import redis.asyncio

from corral.core.settings import load
from corral.cowboy.config import SourceConfig, parse_sources
from corral.cowboy.daemon import Daemon
from corral.cowboy.redisconn import Wire, connection_to
from corral.cowboy.settings import CowboySettings
from corral.local import wait
from corral.local.client import client, command
from corral.local.deployment import DAEMON, RUNNER, Deployment, Options
from corral.local.ledger import copy_ledger, read_effects
from corral.local.servers import Login
from tests.harness.armed import read_hits
from tests.harness.trial import QUICK, Trial, launch_for

T = TypeVar("T")

AGENT = "scout"
TIMEOUT_S = 20.0
LOG_TAIL_BYTES = 4_000
CAT: Mapping[str, object] = {"kind": "exec", "command": ["/bin/cat"], "turn_timeout_s": 60}
GHOST = "ghost"  # a consumer of the group that is nobody any more

Words = str | bytes | int


@dataclass(frozen=True)
class Backend:
    """A kind of server and the protocol that the daemon speaks with it."""

    server: str
    protocol: int

    def __str__(self) -> str:
        return f"{self.server}-resp{self.protocol}"


# Each server and each protocol once; the other two pairs where shapes or ACLs matter.
PAIRS = (Backend("redis", 2), Backend("valkey", 3))
EVERY = (*PAIRS, Backend("redis", 3), Backend("valkey", 2))


@dataclass(frozen=True)
class Answer:
    """An outbox entry. `fields` has all of it."""

    outbox_id: str
    in_reply_to: str
    outcome: str
    slot: str
    content: bytes
    turn_id: str
    fields: Mapping[bytes, bytes] = field(repr=False)

    @classmethod
    def of(cls, outbox_id: bytes, fields: Mapping[bytes, bytes]) -> Self:
        def text(name: bytes) -> str:
            return fields.get(name, b"").decode()

        return cls(
            outbox_id.decode(),
            text(b"in_reply_to"),
            text(b"outcome"),
            text(b"slot"),
            fields.get(b"content", b""),
            text(b"turn_id"),
            fields,
        )


@dataclass(frozen=True)
class Ended:
    """A command that has ended: exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class House:
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
        settings: Mapping[str, str] | None = None,
        arms: Mapping[str, Mapping[int, tuple[str, ...]]] | None = None,
        base: Path | None = None,
    ) -> None:
        self.backend = backend
        self._only = only
        self._changes = changes or {}
        trial = Trial("contract", 0, arms=arms or {})
        armed = (lambda where: launch_for(trial, where)) if arms else None
        self.deployment = Deployment(
            Options(
                agent=AGENT,
                server=backend.server,
                protocol=backend.protocol,
                edit=self._edit,
                settings=settings or {},
                launch=armed,
                base=base,
            )
        )
        self.base = self.deployment.base
        self.server = self.deployment.server
        self.topology = self.deployment.topology
        self.supervisor = self.deployment.supervisor
        self._clients: dict[str, redis.asyncio.Redis] = {}
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
        for connection in self._clients.values():
            with suppress(redis.RedisError, OSError):
                await connection.aclose()
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
        self, *arguments: str, identity: str = f"agent-{AGENT}", stdin: bytes = b""
    ) -> "Ended":
        """Runs the command line to its end, as an operator would, with an identity's credential."""
        environment = self.topology.environment(AGENT, redis=True, protocol=self.backend.protocol)
        credential = self.topology.rendered["identities"][identity]["credential"]
        environment["COWBOY_REDIS_PASSWORD_FILE"] = str(self.topology.credential_file(credential))
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

    def settings(self, socket: Path | None = None) -> CowboySettings:
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
        )

    @asynccontextmanager
    async def inside(self, socket: Path | None = None) -> AsyncIterator[Daemon]:
        """The daemon, in this process, once it serves its control socket."""
        # It reads its files before it serves, which blocks: a service may, a test's loop must not.
        daemon = await asyncio.to_thread(lambda: Daemon(self.settings(socket), AGENT))
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

    # ------------------------------------------------------------ Redis

    async def admin(self, *words: Words) -> Any:
        """One command as the test-only admin."""
        return await self.deployment.ask(*(str(w) if isinstance(w, int) else w for w in words))

    def client(self, login: Login, *, socket: Path | None = None) -> "redis.asyncio.Redis":
        return client(
            socket or self.topology.redis_socket,
            login.username,
            login.password,
            protocol=self.backend.protocol,
        )

    async def as_identity(self, identity: str, *words: Words) -> Any:
        """One command as an identity of the topology."""
        if identity not in self._clients:
            self._clients[identity] = self.client(self.topology.login(identity))
        return await command(self._clients[identity], *words)

    async def send(
        self, source: str, content: str | bytes | None = None, **fields: str | bytes
    ) -> str:
        """Adds an entry as its source would; the entry id."""
        words: list[Words] = [] if content is None else ["content", content]
        for name, value in fields.items():
            words += (name, value)
        inbox = f"{AGENT}:{source}:inbox"
        added = await self.as_identity(f"source.{AGENT}.{source}", "XADD", inbox, "*", *words)
        return bytes(added).decode()

    async def outbox(self, source: str) -> list[Answer]:
        rows = await self.admin("XRANGE", f"{AGENT}:{source}:outbox", "-", "+")
        return [Answer.of(*row) for row in rows]

    async def by_entry(self, source: str) -> dict[str, list[Answer]]:
        found: dict[str, list[Answer]] = {}
        for answer in await self.outbox(source):
            found.setdefault(answer.in_reply_to, []).append(answer)
        return found

    async def dead(self, source: str) -> list[dict[bytes, bytes]]:
        rows = await self.admin("XRANGE", f"{AGENT}:{source}:inbox:dead", "-", "+")
        return [fields for _, fields in rows]

    async def pending(self, source: str) -> int:
        return (await self.deployment.state_of(source))[0]

    async def deliveries(self, source: str) -> list[int]:
        """How often each pending entry was delivered."""
        admin = await self.deployment.admin()
        rows = await admin.xpending_range(f"{AGENT}:{source}:inbox", "cowboy", "-", "+", 100)
        return [int(row["times_delivered"]) for row in rows]

    async def make_pending(self, source: str, entries: int, consumer: str = GHOST) -> list[str]:
        """Adds entries and reads them as a consumer that then forgets them; their ids."""
        inbox = f"{AGENT}:{source}:inbox"
        with suppress(redis.ResponseError):
            await self.admin("XGROUP", "CREATE", inbox, "cowboy", "0", "MKSTREAM")
        ids = [await self.send(source, f"pending {n}", channel=f"p{n}") for n in range(entries)]
        await self.admin(
            "XREADGROUP", "GROUP", "cowboy", consumer, "COUNT", entries, "STREAMS", inbox, ">"
        )
        return ids

    async def claim_for(
        self, consumer: str, source: str, entries: Sequence[str], *, idle_ms: int
    ) -> None:
        """Makes pending entries be a consumer's, idle for so long."""
        inbox = f"{AGENT}:{source}:inbox"
        await self.admin("XCLAIM", inbox, "cowboy", consumer, 0, *entries, "IDLE", idle_ms)

    async def has_group(self, source: str) -> bool:
        groups = await self.admin("XINFO", "GROUPS", f"{AGENT}:{source}:inbox")
        return bool(groups)

    async def denials(self) -> list[dict[str, str]]:
        """`ACL LOG`: what was refused to whom, and how often."""
        return [
            {_text(key): _text(value) for key, value in entry.items()}
            for entry in await self.admin("ACL", "LOG")
        ]

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

    async def blocked_clients(self) -> int:
        """Connections that wait in a blocking read."""
        return int((await self.admin("INFO", "clients"))["blocked_clients"])

    async def calls(self, name: str) -> int:
        """How often the server has run a command, refused calls included."""
        facts = await self.admin("INFO", "commandstats")
        found = facts.get(f"cmdstat_{name}", {})
        return int(found.get("calls", 0)) + int(found.get("rejected_calls", 0))

    async def errors(self, code: str) -> int:
        """How often the server has answered an error code since its start."""
        facts = await self.admin("INFO", "errorstats")
        return int(facts.get(f"errorstat_{code}", {}).get("count", 0))

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

    def starts(self) -> list[str]:
        """The turn ids of the demo agent's starts, from its own log, in order."""
        effects = read_effects(self.deployment.effects_file)
        return [effect.turn for effect in effects if effect.ev == "start"]

    def ledger_rows(self, statement: str) -> list[tuple[Any, ...]]:
        """A query on a copy of the ledger: the daemon's own files are not touched."""
        ledger = copy_ledger(self.topology.ledger(AGENT), self.base / "looked-at")
        with closing(sqlite3.connect(ledger)) as connection:
            return connection.execute(statement).fetchall()

    def kills(self) -> list[str]:
        """The crash points at which an armed process has killed itself."""
        return [point for point, _ in read_hits(self.base / "hits")[1]]


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def only_answer(found: Mapping[str, list[Answer]], entry: str) -> Answer:
    """The answer to an entry that has exactly one."""
    answers = found.get(entry, [])
    assert len(answers) == 1, f"{entry}: {answers}"
    return answers[0]
