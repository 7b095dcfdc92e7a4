"""Transactions that are admitted at once: what was decided on an older state is decided anew."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from corral.bridge import identities
from corral.bridge.admission import LedgerAdmission
from corral.bridge.database import Target
from corral.bridge.errors import LedgerError
from corral.bridge.incoming import Cancel, Classified, Committed, Ignored
from corral.local.wait import until_async
from tests.contract.bridge.bridge import PATIENCE_S
from tests.contract.bridge.kit import ALICE, ROOM, SMALL, incoming, mention, rows, waits_for_a_row


async def test_two_transactions_at_once_never_exceed_the_capacity(target: Target, sql: Any) -> None:
    both = [LedgerAdmission(target, SMALL) for _ in range(4)]
    answers = await asyncio.gather(
        *(
            one.admit(incoming(str(n), mention(f"a{n}"), mention(f"b{n}", room="!b")))
            for n, one in enumerate(both)
        )
    )
    committed = [one for one in answers if isinstance(one, Committed)]
    assert sum(one.accepted for one in committed) == SMALL.global_queue_capacity
    assert sum(one.denied for one in committed) == 8 - SMALL.global_queue_capacity
    for one in both:
        await one.close()


BESIDE = {
    "alone": (mention("a"),),
    "with more": (mention("a"), Cancel("$x", ROOM, ALICE, "$a", 1)),
    "without a job": (Ignored("$i", "own", 0),),
}


@pytest.mark.parametrize("events", BESIDE.values(), ids=BESIDE)
async def test_what_another_admits_meanwhile_is_seen(
    admission: LedgerAdmission, sql: Any, events: Sequence[Classified]
) -> None:
    """What was decided on an older state of the ledger is not written, but decided anew."""
    before = await sql.fetchval("SELECT admissions FROM bridge_intake")
    async with sql.transaction():
        await another_admits(sql, "$a")
        ours = asyncio.create_task(admission.admit(incoming("1", *events)))
        await until_async(lambda: waits_for_a_row(sql), PATIENCE_S, "the intake to wait")
    assert await ours == Committed(ignored=len(events))
    assert await rows(sql) == []
    assert await sql.fetchval("SELECT admissions FROM bridge_intake") == before + 2


async def test_whoever_is_always_outrun_says_so_and_writes_nothing(
    admission: LedgerAdmission, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.bridge.admission.TURNS_MAX", 1)
    async with sql.transaction():
        await another_admits(sql, "$b")
        ours = asyncio.create_task(admission.admit(incoming("1", mention("a"))))
        await until_async(lambda: waits_for_a_row(sql), PATIENCE_S, "the intake to wait")
    with pytest.raises(LedgerError, match="1 times in a row"):
        await ours
    assert await sql.fetchval("SELECT count(*) FROM bridge_appservice_transactions") == 0
    assert await admission.admit(incoming("1", mention("a"))) == Committed(accepted=1)


async def another_admits(sql: Any, event_id: str) -> None:
    await sql.execute("UPDATE bridge_intake SET admissions = admissions + 1")
    await sql.execute(
        "INSERT INTO bridge_seen VALUES ($1)", identities.seen(event_id, mention("a").ghost)
    )
