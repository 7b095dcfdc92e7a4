"""Everything between a person and an agent, each process armed when a test wants it.

A real Synapse, PostgreSQL and Redis; the bridge, the gateway, cowboy's daemon and runner, as
processes that kill themselves where they are told to. One stack serves many messages.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from corral.bridge.database import Target, connection
from corral.local import wait
from corral.local.bridge_stack import BRIDGE, POSTGRES, SYNAPSE, BridgeStack, ghost_of
from corral.local.bridge_stack import Options as BridgeOptions
from corral.local.deployment import DAEMON, RUNNER, Deployment, Options
from corral.local.front import GATEWAY, SOURCE, Front
from corral.local.supervisor import Supervisor
from corral.local.topology import passable_base
from corral.local.up import leave_only, operator_variables
from tests.harness import chain_agent
from tests.harness.armed import read_hits
from tests.harness.warm import Warm
from tests.harness.zygote import PRELOADED, Zygote

AGENT: Final = "scout"
PATIENCE_S: Final = 120.0
VERBS: Final = {
    BRIDGE: ("bridge", "run"),
    GATEWAY: ("gateway", "run"),
    DAEMON: ("cowboy", "run", AGENT),
    RUNNER: ("cowboy", "runner", AGENT),
}
FORKED: Final = (
    *PRELOADED, "corral.bridge.main", "corral.bridge.service", "corral.gateway.main",
    "corral.gateway.daemon",
)  # fmt: skip
# Nothing is given up while a process is down, and what waits for it is quick to go on.
SETTINGS: Final[Mapping[str, Any]] = {
    "attempts_max": 100,
    "retry_initial_s": 0.1,
    "retry_max_s": 0.5,
    "placeholder_after_s": 0.3,
    "pin_placeholders": True,
}
QUICK: Final[Mapping[str, Any]] = {
    "reclaim_idle_ms": 1_500, "block_ms": 300, "trim_interval_ms": 50,
}  # fmt: skip


class ChainStack:
    """Use it as an async context manager: everything runs, and `person` is in `room_id`.

    `runner`: how the agent is run, in place of the one of the tests; `more`: where further services
    are, for `corral trace`.
    """

    def __init__(
        self,
        runner: Mapping[str, object] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.runner = runner
        self.more = dict(more or {})
        self.base = passable_base("corral-chain-")
        self.hits = self.base / "hits"
        self.hits.mkdir()
        self.gate = self.base / "gate"
        os.mkfifo(self.gate)
        self.log = self.base / "starts"
        options = Options(agent=AGENT, base=self._folder("far"), edit=self._edit, sweep=False)
        self.deployment = Deployment(options)
        self.deployment.keep = True  # all of `base` is removed
        leave_only(AGENT, self.deployment.topology)
        self.front = Front(self.deployment, self.base, {AGENT: "Answers in capitals."})
        agents = self.front.agent_entries()
        self.bridge = BridgeStack(
            BridgeOptions(self.base / "near", settings=SETTINGS, agents=agents)
        )
        self.bridge.supervisor.add(self.front.service())
        self.arms: dict[str, tuple[str, ...]] = {}
        for name in VERBS:
            self.supervisor(name).services[name].command = self._command(name)
        self.environment: dict[str, str] = {}
        self.broken = ""
        self._closing = contextlib.AsyncExitStack()

    def _folder(self, name: str) -> Path:
        made = self.base / name
        made.mkdir(mode=0o700)
        return made

    def _edit(self, sources: dict[str, Any]) -> None:
        code = str(Path(chain_agent.__file__))
        ours = sources["sources"][SOURCE]
        ours.update(QUICK)
        ours["runner"] = self.runner or {
            "kind": "exec",
            "command": [sys.executable, "-S", "-E", "-I", code],
            "output": "json",
            "turn_timeout_s": 600,
            "environment": {chain_agent.STARTS: str(self.log)},
        }
        sources["sources"] = {SOURCE: ours}

    def supervisor(self, name: str) -> Supervisor:
        near = name in self.bridge.supervisor.services
        return self.bridge.supervisor if near else self.deployment.supervisor

    def _command(self, name: str) -> Callable[[int], Sequence[str]]:
        program, *words = VERBS[name]

        def command(_start: int) -> Sequence[str]:
            arms = self.arms.pop(name, ())
            hits = ("--hits", str(self.hits / f"{name}.hits"), "--orders", str(self._orders(name)))
            own = ("--program", program, *hits, *arms)
            return [sys.executable, "-m", "tests.harness.armed", *own, "--", *words]

        return command

    def _orders(self, name: str) -> Path:
        return self.base / f"{name}.orders"

    # ------------------------------------------------------------ life

    async def __aenter__(self) -> Self:
        try:
            await self._enter()
        except BaseException:
            await self._closing.aclose()
            raise
        return self

    async def _enter(self) -> None:
        self._closing.callback(shutil.rmtree, self.base, ignore_errors=True)
        warm = self._closing.enter_context(Warm(self.base / "warm"))
        forks = Zygote(FORKED)
        self._closing.callback(forks.close)
        forks.attach()
        self._closing.callback(forks.detach)
        for one in (self.bridge.supervisor, self.deployment.supervisor):
            one.spawner = forks.spawn
        await self._closing.enter_async_context(self.bridge)
        await self._closing.enter_async_context(self.deployment)
        await asyncio.gather(
            self.bridge.start(POSTGRES), self.bridge.start(SYNAPSE), self.bridge.start(GATEWAY),
            self.deployment.start(timeout_s=PATIENCE_S),
        )  # fmt: skip
        self.person = await self.bridge.person()
        await self._closing.enter_async_context(self.person)
        await self.bridge.start(BRIDGE)
        pins = {"events": {"m.room.pinned_events": 0}}
        ghost = ghost_of(AGENT)
        self.room_id = await self.person.create_room(
            "chain", [ghost], power_level_content_override=pins
        )
        await self.bridge.joined(self.person, self.room_id, ghost)
        self.environment = {
            **os.environ,
            "PATH": f"{warm.commands}{os.pathsep}{os.environ['PATH']}",
            **self.bridge.environment(),
            **self.front.variables(),
            **operator_variables(self.deployment),
            **self.more,
        }

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._closing.aclose()

    @contextlib.contextmanager
    def trial(self, name: str) -> Iterator[None]:
        """A failed one leaves the stack as it was then, so the others fail at once."""
        assert not self.broken, f"{self.broken} failed before, and left something open"
        try:
            yield
        except BaseException:
            self.broken = name
            raise

    # ------------------------------------------------------------ kills

    async def arm(self, name: str, *arms: str) -> None:
        """The process that runs gets points, as `POINT:N`; N counts from now. It is the last one
        until `start`."""
        self.supervisor(name).let_end(name)
        process = self.supervisor(name).services[name].process
        assert process is not None
        orders = self._orders(name)
        orders.with_suffix(".new").write_text("\n".join(arms), encoding="utf-8")
        orders.with_suffix(".new").rename(orders)
        os.kill(process.pid, signal.SIGUSR2)
        await wait.until_true(lambda: not orders.exists(), PATIENCE_S, f"{name} to be armed")

    async def kill(self, name: str) -> None:
        """Now; it stays down until `start`."""
        self.supervisor(name).let_end(name)
        self.supervisor(name).kill(name)
        await self.killed(name)

    async def stop(self, name: str) -> None:
        """In good order; it stays down until `start`."""
        await self.supervisor(name).stop(name)

    async def killed(self, name: str) -> None:
        """Waits until it has killed itself where it was armed."""
        code = await self.supervisor(name).ended(name, PATIENCE_S)
        assert code == -signal.SIGKILL, f"{name} ended with {code}: {self.log_of(name)}"

    async def start(self, name: str, *arms: str) -> None:
        """Again; perhaps armed from its beginning, and then it need not become ready."""
        if not arms:
            await self.supervisor(name).start(name, timeout_s=PATIENCE_S)
            return
        self.arms[name] = arms
        supervisor = self.supervisor(name)
        service = supervisor.services[name]
        former = service.process
        starting = asyncio.create_task(supervisor.start(name, timeout_s=PATIENCE_S))
        begun = f"{name} to be started"
        await wait.until_true(lambda: service.process is not former, PATIENCE_S, begun)
        supervisor.let_end(name)
        starting.cancel()

    def kills(self) -> list[str]:
        return [point for point, _ in read_hits(self.hits)[1]]

    def log_of(self, name: str) -> str:
        return self.supervisor(name).log_file(name).read_text(errors="replace")[-2_000:]

    async def open_gate(self) -> None:
        """Lets the agent go on that waits at the gate."""

        def opened() -> bool:
            with contextlib.suppress(OSError):  # nobody waits there yet
                os.close(os.open(self.gate, os.O_WRONLY | os.O_NONBLOCK))
                return True
            return False

        await wait.until_true(opened, PATIENCE_S, "the agent to wait at the gate")

    # ------------------------------------------------------------ questions

    async def run(self, program: str, *words: str, status: int = 0) -> Any:
        """What a program of ours answers, as JSON."""
        command = Path(self.environment["PATH"].split(os.pathsep)[0]) / program
        process = await asyncio.create_subprocess_exec(
            str(command), *words, "--json", env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate()
        assert process.returncode == status, (out, err)
        return json.loads(out)

    async def trace(self, any_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.run("corral", "trace", any_id)
        return found

    def starts(self) -> list[str]:
        """The turns of which the agent was started, each time."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    @property
    def ledger(self) -> Target:
        """The bridge's."""
        return Target(self.bridge.postgres.dsn("bridge"))

    async def jobs(self, event_id: str) -> list[Mapping[str, Any]]:
        """The bridge's rows of a mention."""
        query = "SELECT * FROM bridge_delegations WHERE event_id = $1"
        async with connection(self.ledger) as made:
            return [dict(row) for row in await made.fetch(query, event_id)]

    def tasks(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """From the gateway's tasks, which are only read."""
        return _read(self.front.folder / "gateway.db", query, values)

    def turns(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """From cowboy's ledger, which is only read."""
        return _read(self.deployment.topology.ledger(AGENT), query, values)


def _read(file: Path, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as conn:
        return conn.execute(query, values).fetchall()
