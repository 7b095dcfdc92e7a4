"""Transactions become jobs and controls, once, in order, within bounds: in real databases."""

import asyncio
import contextlib
from typing import Any

from corral.bridge import identities
from corral.bridge.admission import LedgerAdmission
from corral.bridge.database import Target, connection
from corral.bridge.domain import Limits
from corral.bridge.errors import LedgerError
from corral.bridge.incoming import (
    Cancel,
    Committed,
    Conflict,
    Continuation,
    EventDigest,
    Ignored,
    Redaction,
    Refusal,
    Replay,
)
from corral.local.wait import until_async
from tests.contract.bridge.bridge import PATIENCE_S
from tests.contract.bridge.kit import (
    ALICE,
    BOB,
    ROOM,
    SMALL,
    incoming,
    mention,
    rows,
    sha,
    waits_for_a_row,
)


async def test_mentions_become_pending_jobs_in_order(admission: LedgerAdmission, sql: Any) -> None:
    done = await admission.admit(incoming("1", mention("b"), mention("a", text="x\0y\ud800")))
    assert done == Committed(accepted=2)
    assert await rows(sql) == [("$b", "pending", None), ("$a", "pending", None)]
    row = await sql.fetchrow("SELECT * FROM bridge_delegations WHERE event_id = '$a'")
    assert row["prompt"] == "x�y�"
    assert row["job_id"] == identities.job("$a", "scout")
    assert row["a2a_message_id"] == identities.message(row["job_id"])


async def test_room_capacity_is_looked_at_before_the_global_one_and_the_batch_counts(
    admission: LedgerAdmission, sql: Any
) -> None:
    batch = [mention(f"a{n}") for n in range(3)] + [mention(f"b{n}", room="!b") for n in range(2)]
    done = await admission.admit(incoming("1", *batch))
    assert done == Committed(accepted=3, denied=2)
    assert await rows(sql) == [
        ("$a0", "pending", None),
        ("$a1", "pending", None),
        ("$a2", "denied", "queue_room_capacity_rejected"),
        ("$b0", "pending", None),
        ("$b1", "denied", "queue_global_capacity_rejected"),
    ]
    denied = await sql.fetch("SELECT * FROM bridge_delegations WHERE state = 'denied'")
    assert [row["prompt"] for row in denied] == [None, None]
    assert [row["notice_pending"] for row in denied] == [row["reason"] for row in denied]


async def test_leased_and_delayed_jobs_count(admission: LedgerAdmission, sql: Any) -> None:
    await admission.admit(incoming("1", mention("a"), mention("b")))
    await sql.execute(
        "UPDATE bridge_delegations SET lease_owner = 'w', lease_expires_at = now() + '1 min'"
        " WHERE event_id = '$a'"
    )
    await sql.execute(
        "UPDATE bridge_delegations SET due_at = now() + '1 hour' WHERE event_id = '$b'"
    )
    assert await admission.admit(incoming("2", mention("c"))) == Committed(denied=1)


async def test_the_exact_bytes_again_are_a_replay(admission: LedgerAdmission, sql: Any) -> None:
    first = incoming("1", mention("a"))
    await admission.admit(first)
    assert await admission.admit(first) == Replay(exact=True)
    assert len(await rows(sql)) == 1


async def test_f39_a_retry_with_other_bytes_is_a_replay(
    admission: LedgerAdmission, sql: Any
) -> None:
    await admission.admit(incoming("1", mention("a"), Ignored("$i", "notice", 1)))
    assert await admission.admit(
        incoming("1", mention("a"), Ignored("$i", "notice", 1), age="2")
    ) == Replay(exact=False)
    # Left out of the retry: still the same transaction.
    assert await admission.admit(incoming("1", mention("a"), age="3")) == Replay(exact=False)
    assert len(await rows(sql)) == 1


async def test_other_events_under_a_known_id_conflict_and_leave_evidence(
    admission: LedgerAdmission, sql: Any
) -> None:
    await admission.admit(incoming("1", mention("a")))
    assert await admission.admit(incoming("1", mention("b"))) == Conflict()
    changed = incoming("1", mention("a"), age="2", events=[EventDigest("$a", sha("other"))])
    assert await admission.admit(changed) == Conflict()
    assert len(await rows(sql)) == 1
    row = await sql.fetchrow("SELECT * FROM bridge_transaction_conflicts")
    assert (row["txn_id"], row["answer"], row["times"]) == ("1", "reject", 2)
    assert row["last_digest"] == changed.body_digest


async def test_f40_with_epochs_the_events_decide(target: Target, sql: Any) -> None:
    admission = LedgerAdmission(target, SMALL, epochs=True)
    await admission.admit(incoming("1", mention("a")))
    again = await admission.admit(incoming("1", mention("a"), mention("b")))
    assert again == Committed(accepted=1, ignored=1, epoch=1)
    assert await admission.admit(incoming("1", mention("b"), mention("a"), age="x")) == Replay(
        exact=False
    )
    assert [row[0] for row in await rows(sql)] == ["$a", "$b"]
    assert await sql.fetchval("SELECT answer FROM bridge_transaction_conflicts") == "epoch"
    await admission.close()


async def test_a_redaction_between_retries_is_handled_as_such(
    admission: LedgerAdmission, sql: Any
) -> None:
    await admission.admit(incoming("1", mention("a")))
    retry = incoming("1", age="2", events=[EventDigest("$a", sha("redacted"), redacted=True)])
    assert await admission.admit(retry) == Replay(exact=False)
    assert await rows(sql) == [("$a", "denied", "redacted")]


async def test_a_redaction_ends_the_controls_of_what_was_given_back(
    admission: LedgerAdmission, sql: Any
) -> None:
    await admission.admit(incoming("1", mention("a")))
    await claimed(sql)
    await admission.admit(incoming("2", Cancel("$x", ROOM, ALICE, "$a", 0)))
    await sql.execute("UPDATE bridge_delegations SET lease_owner = NULL, lease_expires_at = NULL")
    await admission.admit(incoming("3", Redaction("$z", ROOM, ALICE, "$a", 0)))
    assert await rows(sql) == [("$a", "denied", "redacted")]
    assert await sql.fetchval("SELECT state FROM bridge_delegation_controls") == "dead"


async def test_f42_the_same_event_in_several_transactions_is_admitted_once(
    admission: LedgerAdmission, sql: Any
) -> None:
    await admission.admit(incoming("2", mention("b"), mention("b", ghost="other")))
    done = await admission.admit(incoming("1", mention("b"), mention("a")))
    assert done == Committed(accepted=1, ignored=1) or done == Committed(denied=1, ignored=1)
    assert [row[0] for row in await rows(sql)] == ["$b", "$b", "$a"]
    # Once is for ever: the row may be gone, the digest is not.
    await sql.execute("TRUNCATE bridge_delegations CASCADE")
    assert await admission.admit(incoming("3", mention("b"))) == Committed(ignored=1)


async def test_the_earlier_marker_is_honoured_for_a_day(
    admission: LedgerAdmission, sql: Any
) -> None:
    await sql.execute(
        "INSERT INTO bridge_processed_events VALUES ('$new', now() - interval '23 h'),"
        " ('$old', now() - interval '25 h')"
    )
    done = await admission.admit(incoming("1", mention("new"), mention("old")))
    assert done == Committed(accepted=1, ignored=1)
    assert [row[0] for row in await rows(sql)] == ["$old"]


async def test_a_refusal_of_policy_is_a_denied_row_with_a_notice(
    admission: LedgerAdmission, sql: Any
) -> None:
    refusal = Refusal(mention("a"), "sender_rate_limited")
    assert await admission.admit(incoming("1", refusal)) == Committed(denied=1)
    assert await rows(sql) == [("$a", "denied", "sender_rate_limited")]


async def test_a_queued_job_is_cancelled_by_its_sender_only(
    admission: LedgerAdmission, sql: Any
) -> None:
    await admission.admit(incoming("1", mention("a")))
    foreign = Cancel("$x", ROOM, BOB, "$a", 0)
    assert await admission.admit(incoming("2", foreign)) == Committed(ignored=1)
    assert await admission.admit(incoming("3", Cancel("$y", ROOM, ALICE, "$a", 0))) == Committed(
        controls=1
    )
    row = await sql.fetchrow("SELECT * FROM bridge_delegations")
    assert (row["state"], row["intended"], row["reason"]) == ("reply_pending", "denied", "canceled")
    assert row["prompt"] is None
    assert row["generation"] == 2


async def test_a_cancel_of_a_mention_of_several_agents_cancels_them_all(
    admission: LedgerAdmission, sql: Any
) -> None:
    cancel = Cancel("$x", ROOM, ALICE, "$a", 0)
    both = (mention("a"), mention("a", ghost="other"))
    await admission.admit(incoming("1", *both))
    # One has a worker already, which is to ask the agent; the other is only queued.
    await sql.execute(
        "UPDATE bridge_delegations SET lease_owner = 'w', lease_expires_at = now() + '1 min'"
        " WHERE ghost = 'scout'"
    )
    assert await admission.admit(incoming("2", cancel)) == Committed(controls=2)
    assert [row[1] for row in await rows(sql)] == ["pending", "reply_pending"]
    assert await sql.fetchval("SELECT kind FROM bridge_delegation_controls") == "cancel"


async def test_a_cancel_in_the_transaction_of_a_mention_of_several_agents_cancels_them_all(
    admission: LedgerAdmission, sql: Any
) -> None:
    both = (mention("a"), mention("a", ghost="other"))
    cancel = Cancel("$x", ROOM, ALICE, "$a", 1)
    assert await admission.admit(incoming("1", *both, cancel)) == Committed(accepted=2, controls=2)
    assert [row[1] for row in await rows(sql)] == ["reply_pending"] * 2


async def test_a_mention_may_be_cancelled_or_redacted_in_its_own_transaction(
    admission: LedgerAdmission, sql: Any
) -> None:
    await admission.admit(
        incoming(
            "1",
            mention("a"),
            mention("b"),
            Cancel("$y", ROOM, ALICE, "$a", 2),
            Redaction("$z", ROOM, ALICE, "$b", 3),
        )
    )
    assert [row[1] for row in await rows(sql)] == ["reply_pending", "denied"]


async def claimed(sql: Any, state: str = "") -> None:
    await sql.execute(
        "UPDATE bridge_delegations SET lease_owner = 'w', lease_expires_at = now() + '1 min',"
        " generation = generation + 1"
    )
    if state == "awaiting_input":
        await sql.execute(
            "UPDATE bridge_delegations SET state = 'awaiting_input', attempts = 1, task_id = 't',"
            " input_deadline_at = now() + '1 min', deadline_left = '1 min', input_generation = 3,"
            " primary_event_id = '$ours', lease_owner = NULL, lease_expires_at = NULL,"
            " due_at = now() + '1 hour'"
        )


async def test_a_claimed_job_gets_a_control_that_is_durable_with_the_transaction(
    admission: LedgerAdmission, sql: Any
) -> None:
    await admission.admit(incoming("1", mention("a")))
    await claimed(sql)
    cancel = Cancel("$x", ROOM, ALICE, "$a", 0)
    assert await admission.admit(incoming("2", cancel)) == Committed(controls=1)
    row = await sql.fetchrow("SELECT * FROM bridge_delegation_controls")
    assert (row["kind"], row["state"], row["sender"]) == ("cancel", "pending", ALICE)
    assert row["source_event"] == "$x"
    # The same event in another transaction adds nothing.
    await admission.admit(incoming("3", cancel))
    assert await sql.fetchval("SELECT count(*) FROM bridge_delegation_controls") == 1


async def test_a_cancel_is_not_lost_when_a_worker_claims_the_job_meanwhile(
    admission: LedgerAdmission, sql: Any
) -> None:
    await admission.admit(incoming("1", mention("a")))
    async with sql.transaction():  # the claim is not committed when the intake looks
        await claimed(sql)
        cancel = incoming("2", Cancel("$x", ROOM, ALICE, "$a", 0))
        admitted = asyncio.create_task(admission.admit(cancel))
        await until_async(lambda: waits_for_a_row(sql), PATIENCE_S, "the intake to wait")
    assert await admitted == Committed(controls=1)
    row = await sql.fetchrow("SELECT * FROM bridge_delegation_controls")
    assert (row["kind"], row["state"], row["source_event"]) == ("cancel", "pending", "$x")
    assert await sql.fetchval("SELECT state FROM bridge_delegations") == "pending"


async def test_only_the_one_who_asked_answers_a_question_in_its_thread(
    admission: LedgerAdmission, sql: Any
) -> None:
    await admission.admit(incoming("1", mention("a")))
    await claimed(sql, "awaiting_input")
    for number, (sender, root) in enumerate(
        [(BOB, "$ours"), ("@Alice:example.org", "$ours"), (ALICE, "$elsewhere")]
    ):
        foreign = Continuation(f"$f{number}", ROOM, sender, root, "yes", 0)
        assert await admission.admit(incoming(f"f{number}", foreign)) == Committed(ignored=1)
    answer = Continuation("$yes", ROOM, ALICE, "$ours", "yes", 0)
    assert await admission.admit(incoming("2", answer)) == Committed(controls=1)
    row = await sql.fetchrow("SELECT * FROM bridge_delegation_controls")
    assert (row["kind"], row["payload"], row["input_generation"]) == ("continuation", "yes", 3)
    assert row["fingerprint"] == identities.fingerprint("continuation", "$yes", ALICE, 3, "yes")
    assert row["message_id"] == identities.control_message(row["control_id"])
    assert await sql.fetchval("SELECT due_at <= now() FROM bridge_delegations")


async def test_a_mention_in_the_thread_of_a_question_answers_it(
    admission: LedgerAdmission, sql: Any
) -> None:
    await admission.admit(incoming("1", mention("a")))
    await claimed(sql, "awaiting_input")
    answer = mention("b", thread_root="$ours")
    assert await admission.admit(incoming("2", answer)) == Committed(controls=1)
    other = mention("c", thread_root="$ours", sender=BOB)
    assert await admission.admit(incoming("3", other)) == Committed(accepted=1)


async def test_f42_the_prompt_again_is_no_answer_to_the_question_in_its_thread(
    admission: LedgerAdmission, sql: Any
) -> None:
    await admission.admit(incoming("1", mention("a", thread_root="$root")))
    await claimed(sql, "awaiting_input")
    again = incoming("2", mention("a", thread_root="$root"))
    assert await admission.admit(again) == Committed(ignored=1)
    assert await sql.fetchval("SELECT count(*) FROM bridge_delegation_controls") == 0


async def test_f42_a_mention_that_answered_a_question_starts_nothing_when_it_comes_again(
    admission: LedgerAdmission, sql: Any
) -> None:
    await admission.admit(incoming("1", mention("a")))
    await claimed(sql, "awaiting_input")
    answer = mention("b", thread_root="$ours")
    assert await admission.admit(incoming("2", answer)) == Committed(controls=1)
    # The question is answered, and another one is asked in the same thread.
    await sql.execute(
        "UPDATE bridge_delegation_controls SET state = 'applied', payload = NULL,"
        " terminal_at = now()"
    )
    await sql.execute("UPDATE bridge_delegations SET input_generation = input_generation + 1")
    assert await admission.admit(incoming("3", answer)) == Committed(ignored=1)
    await sql.execute("DELETE FROM bridge_delegation_controls")
    await sql.execute("DELETE FROM bridge_delegations")
    assert await admission.admit(incoming("4", answer)) == Committed(ignored=1)
    assert await rows(sql) == []


async def test_controls_are_bounded_for_each_job(target: Target, sql: Any) -> None:
    admission = LedgerAdmission(target, Limits(control_capacity_per_job=4))
    await admission.admit(incoming("1", mention("a")))
    await claimed(sql)
    asked = [Cancel(f"$x{n}", ROOM, ALICE, "$a", n) for n in range(5)]
    assert await admission.admit(incoming("2", *asked)) == Committed(controls=3, ignored=2)
    await admission.close()


async def test_a_broken_connection_is_a_typed_error_and_the_next_one_works(
    admission: LedgerAdmission, target: Target, sql: Any
) -> None:
    await admission.admit(incoming("1", mention("a")))
    async with connection(target) as other:
        await other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname ="
            " current_database() AND pid <> pg_backend_pid() AND application_name = 'a2a-bridge'"
        )
    with contextlib.suppress(LedgerError):  # or the driver saw the end in time
        await admission.admit(incoming("2", mention("b")))
    await admission.admit(incoming("3", mention("c")))
    assert [row[0] for row in await rows(sql)][-1] == "$c"
