"""One private deployment: a server, an agent's daemon and runner, and what watches them."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis
import redis.asyncio

from corral.core.errors import UnavailableError
from corral.local import wait
from corral.local.client import client, command
from corral.local.evidence import Policy, Seen
from corral.local.plan import SECRET_WORD
from corral.local.servers import RedisServer, find_server, write_private
from corral.local.supervisor import Service, Supervisor, left_behind
from corral.local.topology import (
    Rendered,
    SourcesEdit,
    Topology,
    base_environment,
    load_rendered,
    private_base,
)
from corral.local.workload import Board, Reader, Sender

REDIS, DAEMON, RUNNER = "redis", "daemon", "runner"
AGENT_PROGRAM = "corral-demo-agent"
CONTROL_TIMEOUT_S = 5.0
CONTROL_ANSWER_MAX_BYTES = 4 * 1024 * 1024

Launch = Callable[[str, int], Sequence[str]]  # process name, number of the start -> command line


@dataclass
class Options:
    """How a deployment runs. `edit` changes the copy of `sources_json` that is written.

    `others`: of other agents in the topology, what changes theirs, given the directory; what runs
    them is `cowboy`.
    """

    agent: str = "scout"
    server: str | None = None  # redis, valkey, or the first that is found
    protocol: int = 3
    rendered: Rendered | None = None
    edit: SourcesEdit | None = None
    others: Mapping[str, Callable[[Path, dict[str, Any]], None]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)  # server settings, for tests
    launch: Callable[[Path], Launch] | None = None  # from the deployment's directory
    base: Path | None = None
    through: str | None = None  # name of a socket in `base` by which the daemon reaches the server
    sweep: bool = True  # at the end, kill whatever has `base` in its environment


def plain_launch(agent: str) -> Launch:
    """The services as a user starts them."""
    verbs = {DAEMON: "run", RUNNER: "runner"}

    def command(name: str, start: int) -> Sequence[str]:
        del start
        return [sys.executable, "-m", "corral.cowboy.main", verbs[name], agent]

    return command


class Deployment:
    """Makes the private directory, then starts, watches and ends the processes in it.

    Use as an async context manager: entering starts nothing but the server. Leaving ends whatever
    still runs, and removes the directory unless `keep` was set.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.agent = options.agent
        self.base = options.base or private_base()
        self.keep = False
        self.effects_file = self.base / "effects.jsonl"
        others = {name: partial(edit, self.base) for name, edit in options.others.items()}
        self.topology = Topology.materialise(
            options.rendered or load_rendered(),
            self.base,
            edits={**others, self.agent: self._edit},
        )
        self.server_kind, binary = find_server(options.server)
        self.server = RedisServer(
            self.base / "redis",
            binary,
            acl=self.topology.acl(),
            settings={**self.topology.redis_settings, **options.settings},
            socket=self.topology.redis_socket,
        )
        self.board = Board()
        self.supervisor = Supervisor(self.base, in_flight=self.board.in_flight)
        make = options.launch
        self._add_services(make(self.base) if make is not None else plain_launch(self.agent))
        self._admin: redis.asyncio.Redis | None = None

    def _edit(self, sources: dict[str, Any]) -> None:
        program = self.base / "bin" / AGENT_PROGRAM
        program.parent.mkdir(exist_ok=True, mode=0o700)
        code = Path(__file__).with_name("agent.py")
        write_private(program, f'#!/bin/sh\nexec "{sys.executable}" -S -E -I "{code}" "$@"\n')
        program.chmod(0o700)
        for source in sources["sources"].values():
            runner = source["runner"]
            if runner["kind"] == "exec" and Path(runner["command"][0]).name == AGENT_PROGRAM:
                runner["command"] = [str(program), *runner["command"][1:]]
                runner.setdefault("environment", {})["DEMO_EFFECTS"] = str(self.effects_file)
        if self.options.edit is not None:
            self.options.edit(sources)

    def _add_services(self, launch: Launch) -> None:
        server = Service(
            REDIS, lambda _: self.server.argv(), base_environment(), self.base, self._redis_ready
        )
        for service in (server, *self.cowboy(self.agent, launch)):
            self.supervisor.add(service)

    def cowboy(self, agent: str, launch: Launch, prefix: str = "") -> list[Service]:
        """An agent's runner and daemon, for a supervisor; `prefix` goes before their names."""
        environment = {
            RUNNER: self.topology.environment(agent, redis=False),
            DAEMON: self.topology.environment(agent, redis=True, protocol=self.options.protocol),
        }
        if self.options.through is not None:
            environment[DAEMON]["COWBOY_REDIS_URL"] = f"unix://{self.base / self.options.through}"
        ready = {RUNNER: self._runner_ready, DAEMON: self._daemon_ready}
        return [
            Service(
                prefix + name,
                partial(launch, name),
                environment[name],
                self.base,
                ready=partial(ready[name], agent),
            )
            for name in (RUNNER, DAEMON)
        ]

    # ------------------------------------------------------------ life

    async def __aenter__(self) -> Self:
        self.server.write()
        await self.supervisor.start(REDIS)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._drop_admin()
        await self.supervisor.abandon()
        for pid in left_behind(str(self.base)) if self.options.sweep else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not self.keep:
            self.topology.remove()

    async def start(self, *names: str, timeout_s: float = 30.0) -> None:
        """Starts processes, by default runner and daemon, and waits until they are ready."""
        await self.supervisor.start(*(names or (RUNNER, DAEMON)), timeout_s=timeout_s)

    async def stop(self) -> None:
        """Ends daemon and runner in good order; the server stays for the questions that follow."""
        await self.supervisor.stop(DAEMON, RUNNER)

    def down(self) -> bool:
        """Whether neither daemon nor runner is running."""
        services = self.supervisor.services
        return not services[DAEMON].running and not services[RUNNER].running

    # ------------------------------------------------------------ clients

    def sender(self, source: str) -> Sender:
        """A client with the source's identity that sends and records."""
        return Sender(
            self.topology,
            self.agent,
            source,
            self.board,
            protocol=self.options.protocol,
            down=self.down,
        )

    def reader(
        self, source: str, *, trim: bool = False, on_seen: Callable[[Seen], None] = lambda _: None
    ) -> Reader:
        """A client with the source's identity that reads its outbox, records and tells."""
        return Reader(
            self.topology,
            self.agent,
            source,
            self.board,
            protocol=self.options.protocol,
            trim=trim,
            on_seen=on_seen,
        )

    # ------------------------------------------------------------ readiness

    async def _redis_ready(self) -> bool:
        with suppress(redis.RedisError, OSError):
            return bool(await (await self.admin()).ping())
        await self._drop_admin()
        return False

    async def _runner_ready(self, agent: str) -> bool:
        socket = self.topology.rendered["agents"][agent]["sockets"]["runner"]
        with suppress(OSError):
            _, writer = await asyncio.open_unix_connection(self.base / socket)
            writer.close()
            return True
        return False

    async def _daemon_ready(self, agent: str) -> bool:
        with suppress(OSError, ValueError, UnavailableError):
            return bool((await self.control({"op": "status"}, agent)).get("ok"))
        return False

    # ------------------------------------------------------------ questions

    async def admin(self) -> "redis.asyncio.Redis":
        """A client with the test-only admin identity; it is made anew after an error."""
        if self._admin is None:
            login = self.server.admin
            self._admin = client(self.topology.redis_socket, login.username, login.password)
        return self._admin

    async def _drop_admin(self) -> None:
        if self._admin is not None:
            with suppress(redis.RedisError, OSError):
                await self._admin.aclose()
        self._admin = None

    async def ask(self, *words: str | bytes) -> Any:
        """One question as the admin, asked again once when the connection turns out to be dead.

        Raises redis errors and OSError.
        """
        try:
            return await command(await self.admin(), *words)
        except (redis.ConnectionError, OSError):  # the server was restarted since the last one
            await self._drop_admin()
        try:
            return await command(await self.admin(), *words)
        except (redis.ConnectionError, redis.TimeoutError, OSError):
            await self._drop_admin()
            raise

    async def control(
        self, request: Mapping[str, object], agent: str | None = None
    ) -> dict[str, Any]:
        """One request on a daemon's control socket. Raises OSError when nobody answers."""
        socket = self.topology.control_socket(agent or self.agent)
        async with asyncio.timeout(CONTROL_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(
                socket, limit=CONTROL_ANSWER_MAX_BYTES
            )
            try:
                writer.write(json.dumps(request).encode() + b"\n")
                await writer.drain()
                line = await reader.readline()
            finally:
                writer.close()
        if not line:
            raise UnavailableError("the daemon closed its control socket without an answer")
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def sources(self) -> dict[str, dict[str, Any]]:
        """The agent's sources as written."""
        found: dict[str, dict[str, Any]] = self.topology.sources[self.agent]["sources"]
        return found

    def policies(self) -> dict[str, Policy]:
        return {
            name: Policy(
                ack=source["ack"],
                on_interrupt=source["on_interrupt"],
                runner=source["runner"]["kind"],
                dispatch_attempts_max=source.get("dispatch_attempts_max", 3),
            )
            for name, source in self.sources.items()
        }

    def processes_left(self) -> list[str]:
        """Runs that are still there although daemon and runner ended."""
        services = self.supervisor.services.values()
        ours = {service.process.pid for service in services if service.process is not None}
        found = left_behind(str(self.base))
        return [f"{pid} {command}" for pid, command in found.items() if pid not in ours]

    def words_in_logs(self) -> list[str]:
        """Log files that contain content of a message or a secret."""
        words = [SECRET_WORD, *self.topology.secret_words(), self.server.admin.password]
        needles = [word.encode() for word in words]
        found = []
        for path in sorted(self.supervisor.logs.iterdir()):
            data = path.read_bytes()
            found += [f"{path.name}: {index}" for index, n in enumerate(needles) if n in data]
        return found

    async def until_quiet(self, timeout_s: float, *, awaiting: bool = True) -> bool:
        """Waits until every answer is in and nothing is pending; False when it takes too long."""

        async def quiet() -> bool:
            if awaiting and self.board.waiting:
                return False
            with suppress(redis.RedisError, OSError):
                for name in self.sources:
                    pending, lag, markers = await self.state_of(name)
                    # Under `ack = reply` the entry of a held turn is acknowledged at its end.
                    waits = self.board.held(name) if self.sources[name]["ack"] == "reply" else 0
                    if pending > waits or lag or markers:
                        return False
                running = self.supervisor.services[DAEMON].running
                return not running or await self.no_open_turns(self.agent)
            return False

        try:
            return await wait.until_async(quiet, timeout_s, "everything to come to rest")
        except wait.WaitTimeoutError:
            return False

    async def no_open_turns(self, agent: str) -> bool:
        """What its daemon says; a turn that is held may stay. False when nobody says it."""
        try:
            answer = await self.control({"op": "status"}, agent)
        except (OSError, ValueError, TimeoutError, UnavailableError):
            return False
        return all(
            source["open"] <= source["turns"].get("held", 0) for source in answer.get("sources", ())
        )

    async def state_of(self, source: str, agent: str | None = None) -> tuple[int, int, int]:
        """Of a source in Redis: pending entries, entries never read, outbox markers."""
        keys = f"{agent or self.agent}:{source}"
        inbox = f"{keys}:inbox"
        pending = lag = 0
        try:
            group = (await self.ask("XINFO", "GROUPS", inbox))[0]
        except (redis.ResponseError, IndexError):
            group = None
        if group is not None:
            facts = _as_dict(group)
            pending = int(facts["pending"])
            after = b"(" + facts["last-delivered-id"]
            lag = len(await self.ask("XRANGE", inbox, after, "+", "COUNT", "100"))
        else:
            lag = int(await self.ask("XLEN", inbox))
        return pending, lag, int(await self.ask("HLEN", f"{keys}:replies"))


def _as_dict(group: Any) -> dict[str, Any]:
    pairs = group if isinstance(group, dict) else dict(zip(group[::2], group[1::2], strict=True))
    return {k.decode() if isinstance(k, bytes) else k: v for k, v in pairs.items()}
