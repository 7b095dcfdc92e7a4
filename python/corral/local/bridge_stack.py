"""PostgreSQL, Synapse, an agent and the bridge on this machine, supervised, in one directory.

With `gateway` there is a second agent, which is reached through a gateway, Redis and cowboy.

Nothing listens beyond loopback and the directory's sockets. What is kept there is found again at
the next start: accounts, rooms, jobs.
"""

import asyncio
import contextlib
import json
import os
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp
import asyncpg

from corral.bridge import registration
from corral.bridge.settings import BridgeSettings
from corral.core.settings import load
from corral.local import synapse, wait
from corral.local.gateway_side import GatewaySide
from corral.local.matrix import MatrixError, Person
from corral.local.postgres import PostgresServer, choose_postgres
from corral.local.servers import write_private
from corral.local.supervisor import Service, Supervisor
from corral.local.synapse import LOOPBACK, Synapse, free_port

POSTGRES: Final = "postgres"
SYNAPSE: Final = "synapse"
AGENT: Final = "agent"
BRIDGE: Final = "bridge"
PROCESSES: Final = (POSTGRES, SYNAPSE, AGENT, BRIDGE)
AGENT_NAME: Final = "echo"
SERVER_NAME: Final = "corral.test"
PERSON: Final = "you"
START_TIMEOUT_S: Final = 180.0
# For somebody who tries things out, or a test: nobody is too fast, and what a killed database left
# behind goes on after five seconds.
AT_EASE: Final = {
    "sender_rate_per_min": 600,
    "sender_burst": 100,
    "room_rate_per_min": 0,
    "lease_s": 5,
    "catch_up_interval_s": 1,
}
KEPT: Final = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL")


@dataclass(frozen=True)
class Options:
    """`synapse_database`: `sqlite` or `postgres`. `settings` are added to the bridge's file.
    `agents`: those of the bridge's file, which run elsewhere; None: one that echoes runs here.
    `gateway`: with another agent, behind a gateway."""

    directory: Path
    synapse_database: str = "sqlite"
    settings: Mapping[str, Any] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, Any]] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    gateway: bool = False


class BridgeStack:
    """Use it as a context manager; `start` starts what is named, all by default."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.processes = tuple(one for one in PROCESSES if one != AGENT or options.agents is None)
        self.base = options.directory
        # PostgreSQL may run as another user, who must reach its folder; what is secret is 0600.
        self.base.mkdir(parents=True, exist_ok=True, mode=0o711)
        self.facts = self._remembered()
        self.postgres = PostgresServer(self.base / "pg", choose_postgres())
        self.config_file = self.base / "bridge.json"
        self.effects = self.base / "agent-starts.log"
        self.side = GatewaySide(self.base / "agents") if options.gateway else None
        self._write_config()
        self.settings = self._settings()
        self.homeserver = Synapse(self.base / SYNAPSE, self._synapse_options())
        self.supervisor = Supervisor(self.base)
        self._add_services()

    # ------------------------------------------------------------ files

    def _remembered(self) -> dict[str, Any]:
        """Ports, tokens and the password of `you`: chosen once for a directory."""
        path = self.base / "facts.json"
        if path.exists():
            facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return facts
        names = ("as_token", "hs_token", "password")
        facts = {name: secrets.token_urlsafe(24) for name in names}
        facts |= {f"{name}_port": free_port() for name in (SYNAPSE, AGENT, BRIDGE)}
        write_private(path, json.dumps(facts, indent=1))
        return facts

    def _write_config(self) -> None:
        echo = {
            "url": f"http://{LOOPBACK}:{self.facts['agent_port']}/",
            "display_name": "Echo",
        }
        agents = dict({AGENT_NAME: echo} if self.options.agents is None else self.options.agents)
        if self.side is not None:
            agents |= self.side.front.agent_entries()
        epoch = "epoch" if self.options.synapse_database == "sqlite" else "reject"
        config = {
            "homeserver_url": f"http://{LOOPBACK}:{self.facts['synapse_port']}",
            "server_name": SERVER_NAME,
            "listen_port": self.facts["bridge_port"],
            "txn_conflict": epoch,
            "agents": agents,
            **AT_EASE,
            **self.options.settings,
        }
        write_private(self.config_file, json.dumps(config, indent=1))
        for name in ("as_token", "hs_token"):
            write_private(self.base / name, self.facts[name])
        write_private(self.base / "database", self.postgres.dsn("bridge"))
        exported = self.environment() | (self.side.variables() if self.side is not None else {})
        lines = [f"export {key}={shlex.quote(one)}\n" for key, one in exported.items()]
        write_private(self.base / "env", "".join(lines))

    def environment(self) -> dict[str, str]:
        """For `a2a-bridge` with this stack's settings."""
        return {
            "BRIDGE_CONFIG": str(self.config_file),
            "BRIDGE_AS_TOKEN_FILE": str(self.base / "as_token"),
            "BRIDGE_HS_TOKEN_FILE": str(self.base / "hs_token"),
            "BRIDGE_DATABASE_FILE": str(self.base / "database"),
        }

    def _settings(self) -> BridgeSettings:
        given: dict[str, Any] = json.loads(self.config_file.read_text(encoding="utf-8"))
        secret = {name: self.facts[name] for name in ("as_token", "hs_token")}
        return load(BridgeSettings, **given, **secret, database=self.postgres.dsn("bridge"))

    def _synapse_options(self) -> synapse.Options:
        database = None
        if self.options.synapse_database == "postgres":
            arguments = {"host": str(self.postgres.socket_dir), "user": "corral"}
            database = {
                "name": "psycopg2",
                "allow_unsafe_locale": True,
                "args": {**arguments, "dbname": SYNAPSE, "cp_min": 1, "cp_max": 5},
            }
        return synapse.Options(
            server_name=SERVER_NAME,
            port=self.facts["synapse_port"],
            database=database,
            registrations=[registration.document(registration.of(self.settings))],
        )

    # ------------------------------------------------------------ processes

    def _add_services(self) -> None:
        module = [sys.executable, "-P", "-m"]
        agent = [*module, "corral.local.echo_agent", str(self.facts["agent_port"])]
        lines: dict[str, Callable[[int], Sequence[str]]] = {
            POSTGRES: lambda _: self.postgres.argv(),
            SYNAPSE: lambda _: self.homeserver.argv(),
            AGENT: lambda _: [*agent, str(self.effects)],
            BRIDGE: lambda _: [*module, "corral.bridge.main", "run"],
        }
        ours = {name: os.environ[name] for name in KEPT if name in os.environ}
        ours["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self.homeserver.write()
        environments = {
            POSTGRES: ours,
            SYNAPSE: self.homeserver.environment(),
            AGENT: ours,
            BRIDGE: ours | self.environment() | dict(self.options.environment),
        }
        ready = {
            POSTGRES: self._postgres_ready,
            SYNAPSE: self._synapse_ready,
            AGENT: self._agent_ready,
            BRIDGE: self._bridge_ready,
        }
        for name in self.processes:
            one = Service(name, lines[name], environments[name], self.base, ready[name])
            self.supervisor.add(one)

    async def start(self, *names: str) -> None:
        """In order, each when the one before is ready; the far side, if there is one, first."""
        if self.side is not None and not names:
            await self.side.start(START_TIMEOUT_S)
        for name in names or self.processes:
            if name == POSTGRES:
                await asyncio.to_thread(self.postgres.prepare)
            await self.supervisor.start(name, timeout_s=START_TIMEOUT_S)
            if name == POSTGRES:
                await self._databases()

    async def _databases(self) -> None:
        made = await asyncpg.connect(self.postgres.dsn())
        try:
            for name in ("bridge", SYNAPSE):
                # Synapse insists on this order of characters.
                with contextlib.suppress(asyncpg.DuplicateDatabaseError):
                    await made.execute(
                        f"CREATE DATABASE {name} ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' "
                        "TEMPLATE template0"
                    )
        finally:
            await made.close()

    async def _postgres_ready(self) -> bool:
        try:
            made = await asyncpg.connect(self.postgres.dsn())
        except (OSError, asyncpg.PostgresError):
            return False
        await made.close()
        return True

    async def _synapse_ready(self) -> bool:
        return await _answers(f"{self.homeserver.url}/_matrix/client/versions")

    async def _agent_ready(self) -> bool:
        url = f"http://{LOOPBACK}:{self.facts['agent_port']}/.well-known/agent-card.json"
        return await _answers(url)

    async def _bridge_ready(self) -> bool:
        return await _answers(f"http://{LOOPBACK}:{self.facts['bridge_port']}/readyz")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.supervisor.stop(*reversed(self.processes))
        await self.supervisor.abandon()
        if self.side is not None:
            await self.side.stop()

    # ------------------------------------------------------------ people

    @property
    def ghost(self) -> str:
        """Of the first agent."""
        return self.ghosts[0]

    @property
    def ghosts(self) -> list[str]:
        return [ghost_of(agent) for agent in self.settings.agents]

    async def person(self, localpart: str = PERSON) -> Person:
        """An account with the directory's password, made at the first time; enter it before use."""
        made = Person(self.homeserver.url, localpart)
        async with made:
            try:
                await made.register(self.facts["password"])
            except MatrixError as error:
                if error.errcode != "M_USER_IN_USE":
                    raise
                await made.login(self.facts["password"])
        return made

    async def room(self, person: Person) -> str:
        """A room of the person's with the ghosts in it; the same one every time.

        What is said before a ghost has joined, no homeserver delivers to the bridge.
        """
        alias = f"#{AGENT_NAME}-{person.localpart}:{SERVER_NAME}"
        try:
            found = await person.call("GET", f"/directory/room/{quote(alias)}")
            room_id = str(found["room_id"])
            members = await person.members(room_id)
            for ghost in self.ghosts:
                if ghost not in members:  # of an agent that is new in this directory
                    await person.invite(room_id, ghost)
        except MatrixError as error:
            if error.status != 404:
                raise
            name = alias[1:].partition(":")[0]
            room_id = await person.create_room("Try the bridge", self.ghosts, room_alias_name=name)
        await self.joined(person, room_id)
        return room_id

    async def joined(self, person: Person, room_id: str, *ghosts: str) -> None:
        """Waits until the ghosts (all, when none is named) are in the room."""
        wanted = ghosts or self.ghosts

        async def there() -> bool:
            members = await person.members(room_id)
            return all(members.get(ghost) == "join" for ghost in wanted)

        await wait.until_async(there, START_TIMEOUT_S, f"{' and '.join(wanted)} to join")


def ghost_of(agent: str) -> str:
    """The user that stands for an agent."""
    return f"@{agent}:{SERVER_NAME}"


async def _answers(url: str) -> bool:
    try:
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=timeout) as http, http.get(url) as response:
            return response.status == 200
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False
