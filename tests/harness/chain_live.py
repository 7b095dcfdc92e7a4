"""The whole chain with a live session at its end, which is answered for by the test."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from corral.bridge.database import connection
from corral.local import wait
from corral.local.front import SOURCE
from tests.contract.live import Live
from tests.harness.chain_cases import CROSS, Case, Talk, beside
from tests.harness.chain_judge import quiet
from tests.harness.chain_stack import PATIENCE_S, ChainStack

KINDS: Final = (
    "event", "transaction", "job", "message", "task", "entry", "turn", "wake", "answer", "reply",
)  # fmt: skip
LEASE_MS: Final = "3000"  # what a killed TAMQ had begun goes on after that
HELLO: Final = Case("hello", ("done",))


class World:
    """The chain, and a session that says nothing by itself."""

    def __init__(self, chain: ChainStack, live: Live) -> None:
        self.chain = chain
        self.live = live
        self._known: set[str] = set()

    @contextlib.asynccontextmanager
    async def talk(self) -> AsyncIterator[Talk]:
        """Somebody asks, and it is over and forgotten by all when this is left."""
        self._known = {one["turn"] for one in self.live.shown}
        with self.chain.trial("an earlier message"):
            async with beside(self.chain, HELLO) as talk:
                yield talk
                await quiet(talk)

    async def shown(self) -> str:
        """The turn, when the session was shown it."""
        known = self._known

        def fresh() -> str | None:
            return next((o["turn"] for o in self.live.shown if o["turn"] not in known), None)

        found = await wait.until_true(fresh, PATIENCE_S, "the session to be shown it")
        assert found is not None
        return found

    async def _admitted(self, talk: Talk) -> bool:
        return bool(await self.chain.jobs(talk.asked))

    async def answer(self, turn: str) -> None:
        """As the session would: until it is told that its answer was taken."""
        await self.chain.run("cowboy", "reply", turn, "done", "--wait", str(int(PATIENCE_S)))

    async def answers(self) -> None:
        """What the session is shown next."""
        await self.answer(await self.shown())

    async def registered(self) -> None:
        """Waits until the session has told a new TAMQ that it is there."""
        tamq, what = self.live.tamq, "the session to register"
        await asyncio.to_thread(wait.until, lambda: tamq.endpoints, PATIENCE_S, what)

    async def withdrawn(self) -> None:
        """Waits until no session is shown anything any more."""
        await self.live.until_withdrawn(len(await self.live.receipts()))

    async def until(self, talk: Talk, gap: str) -> dict[str, Any]:
        """The trace, when the gap is that one: what is on its way has come there."""
        last: dict[str, Any] = {}

        async def there() -> bool:
            last.clear()
            if await self._admitted(talk):
                last.update(await self.chain.trace(talk.asked))
            return gap in (last.get("gap") or "")

        await wait.until_async(there, PATIENCE_S, f"the gap {gap!r}")
        assert last["next"]
        assert last["certain"]
        return last

    async def trimmed(self, talk: Talk) -> dict[str, Any]:
        """The trace, when nothing of it changes any more."""
        last: dict[str, Any] = {}

        async def gone() -> bool:
            last.update(await self.chain.trace(talk.asked))
            return any(hop["state"] == "trimmed from the inbox" for hop in last["hops"])

        await wait.until_async(gone, PATIENCE_S, "the entry to be trimmed")
        return last

    async def cancel(self, talk: Talk) -> None:
        await self.chain.person.react(self.chain.room_id, talk.asked, CROSS)
        await talk.over()

    def forget_tasks(self) -> None:
        """The gateway's database loses all of them."""
        tables = ("late", "deliveries", "messages", "tasks")
        file = self.chain.front.folder / "gateway.db"
        with contextlib.closing(sqlite3.connect(file)) as conn:
            for table in tables:
                conn.execute(f"DELETE FROM {table}")
            conn.commit()

    async def execute(self, statement: str, *values: object) -> None:
        """In the bridge's ledger."""
        async with connection(self.chain.ledger) as made:
            await made.execute(statement, *values)


@contextlib.asynccontextmanager
async def live_world(folder: Path) -> AsyncIterator[World]:
    """Everything runs until this is left."""
    with Live(folder) as live:
        live.tamq.environ["TAMQ_LEASE_MS"] = LEASE_MS
        await asyncio.to_thread(live.tamq.start)
        runner = live.source()[SOURCE]["runner"]
        assert isinstance(runner, dict)
        async with ChainStack(runner, {"TAMQ_SOCKET": str(live.tamq.socket)}) as chain:
            await live.open(chain.deployment, "silent")
            yield World(chain, live)
