"""Admission, keys, rebinding and what is kept: against a real SQLite file."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from corral.core.errors import ForeignDatabaseError, StorageError
from corral.core.sqlite import SqliteReader, SqliteWriter
from corral.tamq import admission, roster, store
from corral.tamq.admission import Admitted
from corral.tamq.domain import AckMode, StaleError, State, Times
from corral.tamq.errors import (
    AmbiguousEndpointError,
    BusyError,
    IdempotencyConflictError,
    InvalidStateError,
    NotFoundError,
    UnavailableTamqError,
    UnknownRepoError,
)
from corral.tamq.requests import MessageId, Page, Retry
from corral.tamq.rows import Endpoint, Message
from corral.tamq.store import Failure, Unsure
from tests.unit.tamq.queue import PEER, anything, register, send

NOW = 1_700_000_000_000
TIMES = Times()


class Store:
    """The requests of a test, each in a transaction of its own unless gathered."""

    def __init__(self, writer: SqliteWriter) -> None:
        self.writer = writer

    async def register(self, name: str = "a", **changes: Any) -> Endpoint:
        limit = changes.pop("endpoints_max", roster.ENDPOINTS_MAX)
        request = register(name, **changes)
        return (await self.writer.submit(lambda conn: roster.register(conn, request, NOW, limit)))[
            0
        ]

    async def send(self, **changes: Any) -> Admitted:
        check = changes.pop("check", anything)
        request = send(**changes)
        return await self.writer.submit(
            lambda conn: admission.send(conn, request, PEER, TIMES, NOW, check)
        )

    async def gone(self, endpoint: Endpoint) -> list[Message]:
        return list(
            await self.writer.submit(
                lambda conn: roster.gone(conn, endpoint.endpoint_id, "pane_dead", TIMES, NOW)
            )
        )

    async def lease(self, message: Message, endpoint: Endpoint) -> tuple[Message, Unsure]:
        return await self.writer.submit(
            lambda conn: store.lease(conn, message.id, endpoint, TIMES, NOW)
        )

    async def fail(
        self, message: Message, serial: int, reason: str = "enter_lost", *, typed: bool = True
    ) -> Message:
        return await self.writer.submit(
            lambda conn: store.attempt_failed(
                conn, message.id, serial, Failure(reason, typed), TIMES, NOW
            )
        )

    async def get(self, ident: MessageId) -> Message:
        return await self.writer.submit(lambda conn: store.get(conn, ident))

    async def rows(self, table: str) -> int:
        async with SqliteReader(self.writer.path) as reader:
            return int((await reader.fetch(f"SELECT count(*) FROM {table}"))[0][0])


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Store]:
    async with store.open_writer(tmp_path / "queue.db") as writer:
        yield Store(writer)


async def test_a_repeated_send_gives_the_same_message(queue: Store) -> None:
    await queue.register()
    first = await queue.send(metadata={"a": 1}, correlation_id="c", provenance="p")
    again = await queue.send(metadata={"b": 2}, correlation_id="other")
    assert not first.deduplicated
    assert again.deduplicated
    assert again.message == first.message  # metadata and correlation as first sent
    assert await queue.rows("messages") == 1


@pytest.mark.parametrize(
    "change", [{"body": "other"}, {"sender_repo": "lib"}, {"target_repo": "x"}]
)
async def test_f35_the_key_with_another_value_is_a_conflict(
    queue: Store, change: dict[str, str]
) -> None:
    await queue.register(repos=["shop", "x"])
    first = await queue.send()
    with pytest.raises(IdempotencyConflictError, match="sender, target or body") as caught:
        await queue.send(**change)
    assert caught.value.ids == {"message_id": str(first.message.id)}
    assert await queue.get(first.message.id) == first.message
    assert (await queue.send(**change, idempotency_key="k2")).deduplicated is False
    assert (await queue.send(**change, client_id="other")).deduplicated is False


async def test_f35_64_concurrent_identical_sends_give_one_row(queue: Store) -> None:
    await queue.register()
    done = await asyncio.gather(*(queue.send() for _ in range(64)))
    assert len({one.message.id for one in done}) == 1
    assert sum(not one.deduplicated for one in done) == 1
    assert await queue.rows("messages") == 1


async def test_f35_concurrent_sends_of_other_bodies_conflict(queue: Store) -> None:
    await queue.register()
    bodies = [f"body {number % 4}" for number in range(64)]
    done = await asyncio.gather(*(queue.send(body=body) for body in bodies), return_exceptions=True)
    good = [one for one in done if isinstance(one, Admitted)]
    assert len(good) == 16
    assert all(isinstance(one, Admitted | IdempotencyConflictError) for one in done)
    assert len({one.message.id for one in good}) == 1


async def test_no_endpoint_is_unavailable_and_creates_nothing(queue: Store) -> None:
    with pytest.raises(UnavailableTamqError, match="no live endpoint serves shop") as caught:
        await queue.send()
    assert caught.value.retryable
    endpoint = await queue.register()
    await queue.gone(endpoint)
    for endpoint_id in (None, endpoint.endpoint_id, "never"):
        with pytest.raises(UnavailableTamqError):
            await queue.send(endpoint_id=endpoint_id)
    assert await queue.rows("messages") == 0


async def test_several_endpoints_need_a_name(queue: Store) -> None:
    first, second = await queue.register("a"), await queue.register("b")
    with pytest.raises(AmbiguousEndpointError):
        await queue.send()
    sent = await queue.send(endpoint_id=second.endpoint_id)
    assert sent.message.endpoint_id == second.endpoint_id
    other = await queue.register("c", repos=["lib"])
    with pytest.raises(UnavailableTamqError, match="does not serve shop"):
        await queue.send(endpoint_id=other.endpoint_id, idempotency_key="k2")
    assert first.endpoint_id != second.endpoint_id


async def test_the_registry_is_asked_only_for_what_is_new(queue: Store) -> None:
    def refuse() -> None:
        raise UnknownRepoError("no")

    await queue.register()
    with pytest.raises(UnknownRepoError):
        await queue.send(check=refuse)
    first = await queue.send()
    assert (await queue.send(check=refuse)).message == first.message


async def test_two_live_sessions_never_exchange_a_message(queue: Store) -> None:
    first = await queue.register("a")
    sent = await queue.send()
    second = await queue.register("b")
    with pytest.raises(IdempotencyConflictError, match="another endpoint"):
        await queue.send(endpoint_id=second.endpoint_id)
    assert (await queue.send(endpoint_id=first.endpoint_id)).message == sent.message
    assert (await queue.send()).message == sent.message  # ambiguous if it were new


async def test_a_replacement_takes_the_message_over(queue: Store) -> None:
    first = await queue.register("a")
    sent = await queue.send(endpoint_id=first.endpoint_id)
    leased, _ = await queue.lease(sent.message, first)
    [ended] = await queue.gone(first)
    assert ended.progress.last_failure_reason == "endpoint_gone"
    second = await queue.register("b", policy={"delivery_max_attempts": 2})
    moved = await queue.send(endpoint_id=second.endpoint_id)
    assert (moved.deduplicated, moved.rebound) == (True, True)
    assert moved.message.id == sent.message.id
    assert moved.message.endpoint_id == second.endpoint_id
    assert moved.message.progress.attempt_count == 1
    assert moved.message.progress.policy.max_attempts == 2
    # Every endpoint that it was ever bound to stands for the same request.
    assert (await queue.send(endpoint_id=first.endpoint_id)).message == moved.message
    with pytest.raises(StaleError):
        await queue.fail(leased, 1)
    with pytest.raises(StaleError):
        await queue.lease(moved.message, first)
    assert (await queue.lease(moved.message, second))[0].progress.serial == 2


async def test_a_replacement_in_the_middle_of_a_lease_ends_it(queue: Store) -> None:
    """The end of the former endpoint and the new send may come in either order."""
    first = await queue.register("a")
    sent = await queue.send(endpoint_id=first.endpoint_id)
    await queue.lease(sent.message, first)
    await queue.gone(first)
    await queue.register("b")
    moved = await queue.send()
    assert moved.rebound
    details = await queue.writer.submit(lambda conn: store.details(conn, sent.message.id))
    assert [
        (one["outcome"], one["reason"])
        for one in details["attempts"]  # type: ignore[attr-defined]
    ] == [("failed", "endpoint_gone")]


async def test_a_terminal_message_is_not_rebound(queue: Store) -> None:
    first = await queue.register("a")
    sent = await queue.send()
    await queue.writer.submit(lambda conn: store.acknowledge(conn, sent.message.id, NOW))
    await queue.gone(first)
    second = await queue.register("b")
    again = await queue.send(endpoint_id=second.endpoint_id)
    assert (again.deduplicated, again.rebound) == (True, False)
    assert again.message.progress.state is State.ACKNOWLEDGED
    assert again.message.endpoint_id == first.endpoint_id


async def test_a_message_without_live_endpoint_stays(queue: Store) -> None:
    first = await queue.register("a")
    sent = await queue.send()
    await queue.gone(first)
    assert (await queue.send()).message.id == sent.message.id
    with pytest.raises(UnavailableTamqError):
        await queue.send(endpoint_id="never")
    await queue.register("b")
    await queue.register("c")
    with pytest.raises(AmbiguousEndpointError):
        await queue.send()


async def test_registering_again_keeps_the_endpoint(queue: Store) -> None:
    first = await queue.register("a")
    again = await queue.register("a", repos=["lib"], policy={"delivery_ack_mode": "injected"})
    assert again.endpoint_id == first.endpoint_id
    assert again.policy.ack_mode is AckMode.INJECTED
    with pytest.raises(UnavailableTamqError):
        await queue.send()
    assert (await queue.send(target_repo="lib")).message.endpoint_id == first.endpoint_id
    await queue.gone(first)
    assert (await queue.register("a")).endpoint_id != first.endpoint_id


async def test_live_endpoints_at_the_limit_and_one_past_it(queue: Store) -> None:
    await queue.register("a", endpoints_max=2)
    second = await queue.register("b", endpoints_max=2)
    with pytest.raises(BusyError, match="2 endpoints are live"):
        await queue.register("c", endpoints_max=2)
    assert (await queue.register("b", endpoints_max=2)).endpoint_id == second.endpoint_id
    await queue.gone(second)
    await queue.register("c", endpoints_max=2)


async def test_a_gone_endpoint_is_not_found(queue: Store) -> None:
    endpoint = await queue.register()
    await queue.gone(endpoint)
    with pytest.raises(NotFoundError, match=endpoint.endpoint_id):
        await queue.gone(endpoint)
    with pytest.raises(NotFoundError):
        await queue.writer.submit(lambda conn: roster.heartbeat(conn, endpoint.endpoint_id, NOW))


async def test_ids_cannot_be_guessed(queue: Store) -> None:
    await queue.register()
    known = (await queue.send()).message.id
    for wrong in (MessageId(known.row, bytes(16)), MessageId(known.row + 1, known.token)):
        with pytest.raises(NotFoundError):
            await queue.get(wrong)


async def test_former_attempts_whose_text_may_be_there(queue: Store) -> None:
    endpoint = await queue.register(policy={"delivery_max_attempts": 9})
    message = (await queue.send()).message
    for typed in (True, False, True):
        message, _ = await queue.lease(message, endpoint)
        message = await queue.fail(message, message.progress.serial, typed=typed)
    message, unsure = await queue.lease(message, endpoint)
    assert unsure == Unsure((1, 3), unread=False)
    message = await queue.fail(message, 4, "not_read")
    assert (await queue.lease(message, endpoint))[1] == Unsure((1, 3, 4), unread=True)


async def test_only_a_failed_message_is_retried_and_it_is_recorded(queue: Store) -> None:
    endpoint = await queue.register(policy={"delivery_max_attempts": 1})
    message = (await queue.send()).message
    request = Retry(message.id, "operator", "the pane was locked")
    with pytest.raises(InvalidStateError, match="is pending"):
        await queue.writer.submit(lambda conn: store.retry(conn, request, PEER, NOW))
    await queue.lease(message, endpoint)
    assert (await queue.fail(message, 1)).progress.state is State.FAILED
    again = await queue.writer.submit(lambda conn: store.retry(conn, request, PEER, NOW))
    assert (again.progress.state, again.progress.attempt_count) == (State.PENDING, 0)
    details: dict[str, Any] = await queue.writer.submit(
        lambda conn: store.details(conn, message.id)
    )
    [decision] = details["retries"]
    assert (decision["actor"], decision["why"], decision["pid"]) == (
        "operator", "the pane was locked", PEER.pid,
    )  # fmt: skip


async def test_purged_messages_keep_their_key_and_state(queue: Store) -> None:
    await queue.register()
    kept = (await queue.send(idempotency_key="open")).message
    ended = (await queue.send(metadata={"a": 1})).message
    await queue.writer.submit(lambda conn: store.acknowledge(conn, ended.id, NOW))
    assert await queue.writer.submit(lambda conn: store.purge(conn, NOW, 10)) == 0
    assert await queue.writer.submit(lambda conn: store.purge(conn, NOW + 1, 10)) == 1
    purged = await queue.get(ended.id)
    assert (purged.body, purged.metadata) == (None, None)
    assert (await queue.get(kept.id)).body == kept.body
    again = await queue.send()
    assert again.deduplicated
    assert again.message.progress.state is State.ACKNOWLEDGED
    with pytest.raises(IdempotencyConflictError):
        await queue.send(body="other")


async def test_purging_goes_in_batches(queue: Store) -> None:
    await queue.register()
    for number in range(5):
        sent = await queue.send(idempotency_key=f"k{number}")
        done = partial(store.acknowledge, ident=sent.message.id, now_ms=NOW)
        await queue.writer.submit(done)
    counts = [
        await queue.writer.submit(lambda conn: store.purge(conn, NOW + 1, 2)) for _ in range(4)
    ]
    assert counts == [2, 2, 1, 0]


async def test_a_purged_failed_message_is_not_retried(queue: Store) -> None:
    endpoint = await queue.register(policy={"delivery_max_attempts": 1})
    message = (await queue.send()).message
    await queue.lease(message, endpoint)
    await queue.fail(message, 1)
    await queue.writer.submit(lambda conn: store.purge(conn, NOW + 1, 10))
    request = Retry(message.id, "operator", "why")
    with pytest.raises(InvalidStateError, match="purged"):
        await queue.writer.submit(lambda conn: store.retry(conn, request, PEER, NOW))


async def pages(queue: Store, **fields: Any) -> list[list[int]]:
    found, cursor = [], None
    while True:
        page = Page.parse({**fields, **({} if cursor is None else {"cursor": str(cursor)})})
        async with SqliteReader(queue.writer.path) as reader:
            messages, cursor = await store.history(reader, page)
        found.append([one.id.row for one in messages])
        if cursor is None:
            return found


async def test_history_is_paged_newest_first(queue: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await queue.register()
    assert await pages(queue) == [[]]
    for number in range(5):
        await queue.send(idempotency_key=f"k{number}", client_id=f"c{number % 2}")
    assert await pages(queue, limit=2) == [[5, 4], [3, 2], [1]]
    assert await pages(queue, limit=5) == [[5, 4, 3, 2, 1]]
    assert await pages(queue, client_id="c1") == [[4, 2]]
    assert await pages(queue, state="failed") == [[]]
    monkeypatch.setattr(store, "HISTORY_SCAN_MAX_ROWS", 2)
    assert await pages(queue, client_id="c1") == [[4], [2], []]


async def test_rows_that_no_rule_allows_are_refused_by_the_database(queue: Store) -> None:
    await queue.register()
    await queue.send()

    changes = (
        "state = 'lost'", "state = 'failed'", "attempt_count = 9", "body = NULL",
        "ack_deadline_at_ms = 1", "lease_until_ms = 1", "next_attempt_at_ms = NULL",
    )  # fmt: skip
    for change in changes:
        statement = f"UPDATE messages SET {change}"
        with pytest.raises(StorageError, match="CHECK constraint failed"):
            await queue.writer.submit(partial(_execute, statement=statement))


def _execute(conn: sqlite3.Connection, statement: str) -> None:
    conn.execute(statement)


async def test_another_program_s_database_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "queue.db") as conn:
        conn.execute("CREATE TABLE other (x)")
    conn.close()
    with pytest.raises(ForeignDatabaseError):
        await store.open_writer(tmp_path / "queue.db").open()


async def test_an_acknowledgement_that_overtakes_the_lease_is_no_fault(queue: Store) -> None:
    endpoint = await queue.register()
    message = (await queue.send()).message
    await queue.writer.submit(partial(store.acknowledge, ident=message.id, now_ms=NOW))
    with pytest.raises(StaleError):
        await queue.lease(message, endpoint)
    assert await queue.rows("attempts") == 0
