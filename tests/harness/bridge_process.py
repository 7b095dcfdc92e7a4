"""The bridge as a process of its own, and the homeserver that delivers to it until it is heard."""

import asyncio
import contextlib
import dataclasses
import json
import pickle
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from corral.bridge.database import Ledger, Target
from corral.bridge.errors import LedgerError
from corral.bridge.incoming import Admitted, Classified
from corral.local.wait import at, until_async, until_true
from tests.contract.bridge.bridge import QUICK
from tests.contract.bridge.kit import incoming
from tests.harness.armed_process import PATIENCE_S, ArmedProcess


class BridgeProcess(ArmedProcess):
    """One worker. `name` tells several apart; each has an intake of its own.

    `agent` is its policy; with `http` (fields of `a2a.Target`) it is called over HTTP, else it
    is the world's.
    """

    def __init__(
        self,
        folder: Path,
        target: Target,
        world: Path,
        policy: Mapping[str, Any],
        *,
        name: str = "one",
        agent: Mapping[str, Any] | None = None,
        http: Mapping[str, Any] | None = None,
        concurrency: int = 8,
        plant: str = "",
    ) -> None:
        merged = {**QUICK, **policy}
        if "limits" in merged:
            merged["limits"] = dataclasses.asdict(merged["limits"])
        self.intake = folder / f"{name}.sock"
        config = json.dumps({
            "dsn": target.dsn,
            "world": str(world),
            "intake": str(self.intake),
            "policy": merged,
            "agent": dict(agent or {}),
            "http": dict(http) if http else None,
            "concurrency": concurrency,
            "plant": plant,
        })  # fmt: skip
        super().__init__(folder, name, "tests.crash.armed_bridge", [config])
        self._txn = 0

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """SIGSTOP; it goes on afterwards, unless it was killed meanwhile."""
        process = self.process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    async def deliver(self, *classified: Classified) -> Admitted:
        """As a homeserver does: until it is answered; each time with other bytes."""
        self._txn += 1
        txn_id, tries = f"{self.name}-{self._txn}", 0
        while True:
            tries += 1
            made = incoming(txn_id, *classified, age=str(tries))
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_unix_connection(str(self.intake))
                writer.write(pickle.dumps(made))
                writer.write_eof()
                answer = await reader.read()
                writer.close()
                if answer:
                    admitted: Admitted = pickle.loads(answer)  # noqa: S301  of our own process
                    return admitted
            await until_true(self.intake.exists, PATIENCE_S, "the intake")
            await at(time.monotonic() + 0.05)


async def ledger(target: Target) -> tuple[list[Any], list[Any]]:
    """All jobs and controls, in order."""
    async with Ledger(target, 1) as made:
        rows = await made.fetch("SELECT * FROM bridge_delegations ORDER BY seq")
        controls = await made.fetch("SELECT * FROM bridge_delegation_controls ORDER BY seq")
    return list(rows), list(controls)


async def over(target: Target, count: int) -> tuple[list[Any], list[Any]]:
    """Waits until `count` jobs have ended and the rooms were told."""

    async def ended() -> bool:
        try:
            rows, _ = await ledger(target)
        except LedgerError:
            return False
        return len(rows) >= count and all(
            row["terminal_at"] is not None and row["notice_pending"] is None for row in rows
        )

    await until_async(ended, PATIENCE_S, "every job to end")
    return await ledger(target)
