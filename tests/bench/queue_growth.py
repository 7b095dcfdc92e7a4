"""Whether a send and a claim cost more with many stored messages than with few."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corral.core.clock import wall_ms
from corral.core.sqlfiles import load_sql
from corral.core.sqlite import SqliteWriter
from corral.tamq import admission, roster, rows, store
from corral.tamq.domain import Times
from corral.tamq.requests import Register, Send
from corral.tamq.rows import Endpoint
from corral.tamq.store import Peer
from tests.bench.queue_stand import TamqStand

Progress = Callable[[str], None]

SMALL = 1_000
CLIENTS = 8
SQL = load_sql("tests.bench", "queue_growth.sql")
BODY = "b" * 256
PEER = Peer(0, 0)
TIMES = Times()


async def _register(writer: SqliteWriter) -> Endpoint:
    request = Register.parse({
        "repos": ["claims"], "terminal": {"kind": "nowhere"}, "profile": "plain",
    })  # fmt: skip
    return (await writer.submit(lambda conn: roster.register(conn, request, wall_ms())))[0]


async def _fill(path: Path, count: int) -> None:
    """Messages that were acknowledged long ago, with their attempts."""
    async with store.open_writer(path) as writer:
        await writer.submit(lambda conn: store.instance(conn, wall_ms()))
        endpoint = await _register(writer)
        values = {
            "count": count, "endpoint": endpoint.row, "now_ms": wall_ms(), "body": BODY,
            "digest": rows.digest_of("local", "shop", BODY),
        }  # fmt: skip
        for name in ("messages", "attempts"):
            await writer.submit(
                lambda conn, name=name: conn.execute(SQL[name], values).rowcount  # type: ignore[misc]
            )
        await _gone(writer, endpoint)


async def _gone(writer: SqliteWriter, endpoint: Endpoint) -> None:
    await writer.submit(
        lambda conn: roster.gone(conn, endpoint.endpoint_id, "done", TIMES, wall_ms())
    )


async def _claim(path: Path, count: int, name: str) -> float:
    """CPU time of one lease, each in a commit of its own, in microseconds."""
    async with store.open_writer(path) as writer:
        endpoint = await _register(writer)
        sends = [
            Send.parse({
                "client_id": name, "idempotency_key": str(number), "sender_repo": "local",
                "target_repo": "claims", "body": BODY,
            })
            for number in range(count)
        ]  # fmt: skip
        done = await asyncio.gather(*(
            writer.submit(
                lambda conn, one=one: admission.send(  # type: ignore[misc]
                    conn, one, PEER, TIMES, wall_ms(), lambda: None
                )
            )
            for one in sends
        ))  # fmt: skip
        began = time.process_time()
        for one in done:
            await writer.submit(
                lambda conn, one=one: store.lease(  # type: ignore[misc]
                    conn, one.message.id, endpoint, TIMES, wall_ms()
                )
            )
        took = time.process_time() - began
        await _gone(writer, endpoint)
    return took / count * 1e6


def compare(
    messages: int, operations: int, rounds: int, progress: Progress, *, small: int = SMALL
) -> dict[str, Any]:
    """The middle of the ratios within rounds, by CPU time; and for a send by time, too."""
    with tempfile.TemporaryDirectory(prefix="corral-bench-") as folder:
        queues = [Path(folder) / str(count) / "queue.db" for count in (small, messages)]
        for path, count in zip(queues, (small, messages), strict=True):
            path.parent.mkdir(mode=0o700)
            asyncio.run(_fill(path, count))
        progress(f"queues of {small:,} and {messages:,} messages are made")
        claims: list[list[float]] = []
        sends: list[list[tuple[float, float]]] = []
        for number in range(1, rounds + 1):
            name = f"round-{number}-{time.monotonic_ns()}"
            claims.append([asyncio.run(_claim(path, operations // 10, name)) for path in queues])
            sends.append([_send(path, operations, name) for path in queues])
            progress(
                f"round {number}: a send {sends[-1][0][0]:.0f} and {sends[-1][1][0]:.0f} µs, "
                f"a claim {claims[-1][0]:.0f} and {claims[-1][1]:.0f} µs"
            )
        mib = queues[1].stat().st_size / 1024**2
    return {
        "messages": messages,
        "file_mib": mib,
        "send_ratio": statistics.median(b[0] / a[0] for a, b in sends),
        "send_ratio_of_time": statistics.median(a[1] / b[1] for a, b in sends),
        "claim_ratio": statistics.median(b / a for a, b in claims),
    }


def _send(path: Path, operations: int, name: str) -> tuple[float, float]:
    """CPU time of a send, in microseconds, and sends per second."""
    with TamqStand(path) as stand:
        stand.server.load(CLIENTS, operations // 4, f"{name}-warm")
        sent = stand.server.load(CLIENTS, operations, name)
    return sent.cpu_us, sent.per_s
