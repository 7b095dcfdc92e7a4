"""Sends a planned workload and reads the answers; what it knows outlives its own death.

Senders, readers and the plan are those of the local deployment. A message is recorded when its
`XADD` was answered, an answer before it is acknowledged. Started again after a power failure, the
client waits for the answers to what was recorded before.
"""

import asyncio
import random
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

import redis
from pydantic import TypeAdapter

from corral.local import wait
from corral.local.evidence import Seen, Sent
from corral.local.plan import Mix, Planned, Planner
from corral.local.workload import Board, Reader, Sender, send_all
from tests.vm.programs import place, record
from tests.vm.programs.place import Host
from tests.vm.programs.rest import left

ANSWERED = record.FOLDER / "answered"
LARGE_BYTES = 8 * 1024


@dataclass(frozen=True)
class Order:
    """What to send. Times are seconds."""

    agent: str
    sources: str
    seed: int
    count: int
    seconds: float
    plain: bool
    patience: float


class DurableBoard(Board):
    """A board whose facts are on disk before anything follows from them."""

    @classmethod
    def load(cls) -> "DurableBoard":
        board = cls()
        for fact in record.lines(record.SENT):
            Board.note_sent(board, TypeAdapter(Sent).validate_python(fact))
        for fact in record.lines(record.SEEN):
            Board.note_seen(board, TypeAdapter(Seen).validate_python(fact))
        return board

    def note_trying(self, sent: Sent) -> None:
        record.append(record.TRYING, asdict(sent))

    def note_sent(self, sent: Sent) -> None:
        record.append(record.SENT, asdict(sent))
        super().note_sent(sent)

    def note_seen(self, seen: Seen) -> bool:
        if (seen.source, seen.outbox_id) in self.seen:
            return False
        record.append(record.SEEN, asdict(seen))
        return super().note_seen(seen)


def run(order: Order) -> int:
    """0 when everything was answered and Redis holds nothing more; 1 when patience ended."""
    return asyncio.run(_run(order))


async def _run(order: Order) -> int:
    ANSWERED.unlink(missing_ok=True)
    board = DurableBoard.load()
    wanted = [name for name in order.sources.split(",") if name] or sorted(
        place.sources(order.agent)
    )
    readers = [Reader(Host(), order.agent, name, board) for name in wanted]
    tasks = [asyncio.create_task(reader.run()) for reader in readers]
    try:
        await _send(order, wanted, board)
        await wait.until_async(
            lambda: _at_rest(order.agent, wanted, board), order.patience, "every answer"
        )
    except wait.WaitTimeoutError as error:
        sys.stderr.write(f"{error}; unanswered: {sorted(board.waiting)[:20]}\n")
        return 1
    finally:
        for reader in readers:
            reader.stop()
        await asyncio.gather(*tasks)
    ANSWERED.touch()
    sys.stdout.write(f"{len(board.sent)} sent, {len(board.seen)} answers\n")
    return 0


async def _send(order: Order, wanted: list[str], board: Board) -> None:
    if not order.count:
        return
    mix = Mix(
        tuple(wanted),
        order.count,
        order.seconds,
        work_s=(0.05, 0.3),
        large_bytes=LARGE_BYTES,
        plain=order.plain,
    )
    prefix = f"s{order.seed}-{len(board.sent)}"
    planned = Planner(random.Random(order.seed), mix, prefix=prefix).plan()
    # A cancel names its target by key: what an earlier client sent has others.
    base = 1 + max((sent.key for sent in board.sent), default=-1)
    planned = [_moved(item, base) for item in planned]

    def sender(source: str) -> Sender:
        return Sender(Host(), order.agent, source, board)

    await send_all(sender, planned, time.monotonic())


def _moved(item: Planned, base: int) -> Planned:
    target = None if item.target is None else item.target + base
    return replace(item, key=item.key + base, target=target)


async def _at_rest(agent: str, wanted: list[str], board: Board) -> bool:
    if board.waiting:
        return False
    with suppress(redis.RedisError, OSError):
        return all([(await left(agent, source)).nothing for source in wanted])
    return False
