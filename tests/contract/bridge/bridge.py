"""A bridge in this loop: the real ledger and machine, the other sides by `bridge_world`."""

import asyncio
import contextlib
import random
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from corral.bridge.admission import LedgerAdmission
from corral.bridge.coordinator import Coordinator, Sides
from corral.bridge.database import Ledger, Target
from corral.bridge.incoming import Admitted, Classified
from corral.bridge.machine import AgentPolicy, Policy
from corral.bridge.session import Session
from corral.local.wait import until_async
from tests.contract.bridge.kit import incoming
from tests.harness.bridge_world import Contents, World

PATIENCE_S = 60.0
QUICK: Mapping[str, Any] = {
    "retry_initial_s": 0.05,
    "retry_max_s": 0.2,
    "placeholder_after_s": 30.0,
    "reconcile_timeout_s": 1.0,
    "lease_s": 20.0,
}


class Bridge:
    """`world` may be shared by several; `policy` changes the quick defaults."""

    def __init__(
        self,
        target: Target,
        world: World | None = None,
        *,
        agent: AgentPolicy | None = None,
        concurrency: int = 8,
        ghosts: tuple[str, ...] = ("scout", "other"),
        **policy: Any,
    ) -> None:
        self.world = world or World()
        self.target = target
        self.policy = Policy(dict.fromkeys(ghosts, agent or AgentPolicy()), **{**QUICK, **policy})
        self.admission = LedgerAdmission(target, self.policy.limits)
        self.pool = Ledger(target, 8)
        self.coordinator = Coordinator(
            self.pool,
            lambda heard: Session(target, heard),
            Sides(self.world.agent, self.world.rooms, Contents()),
            self.policy,
            concurrency=concurrency,
            claim_interval_s=0.2,
            rng=random.Random(0),
        )
        self._task: asyncio.Task[None] | None = None
        self._txn = 0

    async def __aenter__(self) -> Self:
        await self.pool.__aenter__()
        self.start()
        return self

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self.coordinator.run())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
        await self.admission.close()
        await self.pool.__aexit__(None, None, None)

    async def stop(self) -> None:
        """Stops it as a kill would: nothing is given back."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for one in list(self.coordinator._running.values()):
            one.task.cancel()
            await asyncio.wait({one.task})

    async def receive(self, *classified: Classified) -> Admitted:
        self._txn += 1
        return await self.admission.admit(incoming(f"t{id(self)}-{self._txn}", *classified))

    async def rows(self) -> list[Any]:
        rows: list[Any] = await self.pool.fetch("SELECT * FROM bridge_delegations ORDER BY seq")
        return rows

    async def controls(self) -> list[tuple[str, str, str | None]]:
        rows = await self.pool.fetch(
            "SELECT kind, state, error_code FROM bridge_delegation_controls ORDER BY seq"
        )
        return [tuple(row) for row in rows]

    async def states(self) -> list[tuple[str, str | None]]:
        return [(row["state"], row["reason"]) for row in await self.rows()]

    async def quiet(self, count: int = 1) -> list[tuple[str, str | None]]:
        """The states, once `count` jobs are there and all have ended and the room was told."""

        async def over() -> bool:
            rows = await self.rows()
            return len(rows) >= count and all(
                row["terminal_at"] is not None and row["notice_pending"] is None for row in rows
            )

        await until_async(over, PATIENCE_S, "every job to end")
        return await self.states()

    async def reaches(self, state: str) -> None:
        async def there() -> bool:
            return state in [row["state"] for row in await self.rows()]

        await until_async(there, PATIENCE_S, f"a job in {state}")
