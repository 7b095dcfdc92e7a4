"""Sends that are admitted together come to the same as one after the other, on real SQLite."""

import asyncio
import json
import random
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from corral.core.errors import CorralError, StorageError
from corral.local.wait import until_true
from corral.tamq import intake, rows, store, wire
from corral.tamq.errors import BusyError
from corral.tamq.intake import STATEMENT_ROWS, TOGETHER_MAX, Intake
from corral.tamq.registry import Registry
from corral.tamq.requests import Send
from corral.tamq.terminal.base import Readiness, Ready
from tests.unit.tamq.queue import BOUND_S, PEER, Queue, send

ROWS = "SELECT * FROM messages ORDER BY client_id, idempotency_key"
# In the order of admission, at random, and what a lane notes meanwhile.
NOT_COMPARED = {
    "id", "token", "message_id", "waiting_reason", "waiting_since", "waiting_since_ms",
}  # fmt: skip


class Gate:
    """An intake on a queue; `send` gives the answer's fields, or raises what refuses."""

    def __init__(self, folder: Path, open_messages_max: int = 1_000) -> None:
        folder.mkdir()
        (folder / "repos.csv").write_text("/s/shop,shop,,\n/s/lib,lib,,\n/a,two,,\n/b,two,,\n")
        self.queue = Queue(folder / "queue.db", open_messages_max=open_messages_max)
        self.registry = Registry(folder / "repos.csv")
        self.intake: Intake

    async def start(self) -> None:
        await self.queue.start()
        await self.queue.register("a")
        await self.queue.register("b", repos=["lib"])
        for terminal in self.queue.terminals.values():
            terminal.looks = Readiness(Ready.BUSY, "busy")
        self.intake = Intake(
            self.queue.writer, self.queue.deliverer, self.registry, self.queue.clock
        )

    def ask(self, request: Send) -> "asyncio.Future[dict[str, Any]]":
        coming: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        def answered(answer: object, error: BaseException | None) -> None:
            if error is not None:
                coming.set_exception(error)
            elif isinstance(answer, bytes):
                coming.set_result(wire.answer(answer))
            else:
                assert isinstance(answer, dict)
                coming.set_result(answer)

        self.intake.send(request, PEER, answered)
        return coming

    async def outcome(self, request: Send) -> object:
        """The answer or the refusal."""
        try:
            return await self.ask(request)
        except CorralError as error:
            return error

    async def rows(self) -> list[dict[str, Any]]:
        def read(conn: sqlite3.Connection) -> list[dict[str, Any]]:
            cursor = conn.execute(ROWS)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

        return await self.queue.writer.submit(read)


@pytest.fixture
async def gates(tmp_path: Path) -> AsyncIterator[tuple[Gate, Gate]]:
    made = Gate(tmp_path / "together"), Gate(tmp_path / "alone")
    for gate in made:
        await gate.start()
    yield made
    for gate in made:
        await gate.queue.stop()


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Gate]:
    made = Gate(tmp_path / "gate")
    await made.start()
    yield made
    await made.queue.stop()


def requests(rng: random.Random, endpoints: list[str]) -> list[Send]:
    """Of all kinds: new, repeated, in conflict, to what is not there."""
    return [
        send(
            idempotency_key=f"k{rng.randint(0, 40)}",
            target_repo=rng.choice(["shop", "shop", "shop", "lib", "two", "none"]),
            sender_repo=rng.choice(["local", "local", "shop", "none"]),
            body=rng.choice(["one", "one", "one", "two é \x01"]),
            endpoint_id=rng.choice([None, None, None, "gone", *endpoints]),
            correlation_id=rng.choice([None, "c"]),
            metadata=rng.choice([None, {"a": ['"', 1]}]),
        )
        for _ in range(90)
    ]


def shown(outcome: object) -> object:
    """An answer or a refusal, without the ids that are made at random."""
    if isinstance(outcome, CorralError):
        return outcome.code, outcome.message
    assert isinstance(outcome, dict), outcome
    return _compared(outcome)


def is_new(outcome: object) -> bool:
    return isinstance(outcome, dict) and not outcome["deduplicated"]


async def test_together_is_as_one_after_the_other(
    gates: tuple[Gate, Gate], rng: random.Random
) -> None:
    together, alone = gates
    names = [lane.endpoint.endpoint_id for lane in together.queue.deliverer.lanes.values()]
    theirs = [lane.endpoint.endpoint_id for lane in alone.queue.deliverer.lanes.values()]
    for _ in range(3):
        state = rng.getstate()
        batch = requests(rng, names)
        rng.setstate(state)
        same = requests(rng, theirs)
        told = await asyncio.gather(*map(together.ask, batch), return_exceptions=True)
        # They came at once, so any order of them is right: the new ones are before the rest.
        in_order = sorted(zip(told, same, strict=True), key=lambda pair: not is_new(pair[0]))
        for outcome, request in in_order:
            single = await alone.outcome(request)
            ours_shown = _translated(json.dumps(shown(outcome)), names, theirs)
            assert json.loads(ours_shown) == json.loads(json.dumps(shown(single)))
    ours, others = await together.rows(), await alone.rows()
    assert [_compared(row) for row in ours] == [_compared(row) for row in others]
    assert len(ours) > len(STATEMENT_ROWS)


def _translated(text: str, names: list[str], theirs: list[str]) -> str:
    for name, other in zip(names, theirs, strict=True):
        text = text.replace(name, other)
    return text


def _compared(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in NOT_COMPARED}


@pytest.mark.parametrize("count", [1, 3, 64, 85, TOGETHER_MAX, TOGETHER_MAX + 1])
async def test_a_crowd_is_a_few_commits(gate: Gate, count: int) -> None:
    before = gate.queue.writer.commits
    answers = await asyncio.gather(*(gate.ask(send(idempotency_key=f"k{n}")) for n in range(count)))
    assert gate.queue.writer.commits - before <= 8  # a lane notes why it waits
    assert len({one["message_id"] for one in answers}) == count
    assert len(await gate.rows()) == count
    assert len(gate.queue.deliverer.schedule) == count


async def test_one_key_many_times_at_once_is_one_message(gate: Gate) -> None:
    answers = await asyncio.gather(*(gate.ask(send()) for _ in range(64)))
    assert len({one["message_id"] for one in answers}) == 1
    assert [one["deduplicated"] for one in answers].count(False) == 1


async def test_one_that_the_table_refuses_takes_no_other_with_it(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request that was parsed is one, so one is made: a state that no message has."""
    values = intake._values
    monkeypatch.setattr(
        intake, "_values",
        lambda message: (*values(message)[:14], "nonsense", *values(message)[15:])
        if message.idempotency_key == "k1" else values(message),
    )  # fmt: skip
    answers = await asyncio.gather(*(gate.ask(send(idempotency_key=f"k{n}")) for n in range(5)))
    assert [one["deduplicated"] for one in answers] == [False] * 5
    assert {row["state"] for row in await gate.rows()} == {"pending"}


async def test_a_commit_that_fails_is_everybody_s_error(gate: Gate) -> None:
    """A repetition was not written, and yet is not answered: what it found may be gone."""
    first = await gate.ask(send())

    def orphan(conn: sqlite3.Connection) -> None:
        conn.execute("PRAGMA defer_foreign_keys = ON")
        conn.execute(
            "INSERT INTO former_endpoints (message, endpoint, until_ms) VALUES (99, 99, 1)"
        )

    began, free = threading.Event(), threading.Event()

    def wait(_: sqlite3.Connection) -> bool:
        began.set()
        return free.wait(BOUND_S)

    before = asyncio.ensure_future(gate.queue.writer.submit(wait))
    await until_true(began.is_set, BOUND_S, "the writer to be busy: what comes now is one group")
    bad = asyncio.ensure_future(gate.queue.writer.submit(orphan))
    told = [gate.ask(send(idempotency_key=f"k{n}")) for n in range(1, 4)]
    await asyncio.sleep(0)
    free.set()
    assert await before
    outcomes = await asyncio.gather(*told, bad, return_exceptions=True)
    assert all(isinstance(one, StorageError) for one in outcomes)
    assert len({id(one) for one in outcomes}) == 4
    assert [row["idempotency_key"] for row in await gate.rows()] == ["k1"]
    again = await gate.ask(send(idempotency_key="k1"))
    assert again["message_id"] == first["message_id"]
    assert len(gate.queue.deliverer.schedule) == 1
    assert gate.queue.deliverer.reserve()


async def test_a_closed_store_refuses(gate: Gate) -> None:
    await gate.queue.writer.close()
    outcomes = await asyncio.gather(gate.ask(send()), gate.ask(send()), return_exceptions=True)
    assert all(isinstance(one, StorageError) for one in outcomes)
    await gate.queue.writer.open()
    assert (await gate.ask(send()))["deduplicated"] is False


async def test_the_limit_of_open_messages_holds_within_a_crowd(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "small", open_messages_max=5)
    await gate.start()
    outcomes = await asyncio.gather(
        *(gate.ask(send(idempotency_key=f"k{n}")) for n in range(9)), return_exceptions=True
    )
    assert [isinstance(one, BusyError) for one in outcomes] == [False] * 5 + [True] * 4
    assert len(await gate.rows()) == 5
    await gate.queue.stop()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"body": 'é"\\\n\x01 \u2028', "client_id": 'a"\\b', "idempotency_key": "\x7f é\t"},
        {"correlation_id": 'c"', "provenance": "p\\", "metadata": {"a": 'é"', "b": [1, None]}},
    ],
)
async def test_the_short_way_to_a_receipt_writes_the_same_bytes(
    gate: Gate, changes: dict[str, Any]
) -> None:
    await gate.ask(send(**changes))
    request = send(**changes)
    [message] = await gate.queue.writer.submit(
        lambda conn: [
            rows.message_of(row)
            for row in store.many(conn, "open_messages", {})
            if row["idempotency_key"] == request.idempotency_key
        ]
    )
    whole = {"ok": True, "deduplicated": False, "rebound": False}
    assert rows.admitted_frame(message) == wire.encode(whole | rows.receipt(message, body=False))


async def test_registering_is_seen_by_the_next_crowd(gate: Gate) -> None:
    refused = await gate.outcome(send(target_repo="lib", endpoint_id="none"))
    assert isinstance(refused, CorralError)
    endpoint = await gate.queue.register("c", repos=["lib"])
    answer = await gate.ask(send(target_repo="lib", endpoint_id=endpoint.endpoint_id))
    assert answer["endpoint_id"] == endpoint.endpoint_id
