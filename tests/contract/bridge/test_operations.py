"""What an operator asks and does: jobs list, show, explain; resolve; cancel; metrics."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corral.bridge import operations
from corral.bridge.counts import Counts
from corral.bridge.database import KNOWN, Ledger, Target, connection
from corral.bridge.errors import JobStateError, NoSuchJobError
from corral.core.metrics import Metrics
from tests.contract.bridge.bridge import Bridge
from tests.contract.bridge.kit import ROOM, mention

SECRET = "zanzibar"


async def test_an_uncertain_job_is_listed_explained_and_resolved(one_target: Target) -> None:
    async with Bridge(one_target) as bridge:
        await bridge.receive(mention("a", text=f"lost {SECRET}"))
        await bridge.quiet()
        [row] = await operations.listed(bridge.pool, None, 10)
        job_id = row["job_id"]
        message_id = bridge.world.agent.sends[0].message_id
        for any_id in (job_id, "$a", message_id, bridge.world.rooms.events[0].event_id):
            assert await operations.find(bridge.pool, any_id) == job_id
        shown = await operations.shown(bridge.pool, job_id)
        assert await operations.find(bridge.pool, shown["txn_id"]) == job_id
        text = "\n".join(operations.explained(shown))
        assert message_id in text
        assert "will not be sent again" in text
        assert SECRET not in json.dumps(shown)
        await operations.resolve(
            bridge.pool, job_id, "the agent has no such message", by="operator:ann"
        )
        assert await operations.listed(bridge.pool, None, 10) == []
        assert "by operator:ann: the agent has no such message" in "\n".join(
            operations.explained(await operations.shown(bridge.pool, job_id))
        )
        with pytest.raises(JobStateError, match="resolved"):
            await operations.resolve(bridge.pool, job_id, "again")
        assert len(bridge.world.agent.sends) == 1


async def test_only_uncertain_and_dead_jobs_are_resolved(one_target: Target) -> None:
    async with Bridge(one_target) as bridge:
        await bridge.receive(mention("a", text="reply x"))
        await bridge.quiet()
        job_id = await operations.find(bridge.pool, "$a")
        with pytest.raises(JobStateError, match="delivered"):
            await operations.resolve(bridge.pool, job_id, "x")
        with pytest.raises(JobStateError, match="nothing to cancel"):
            await operations.cancel(bridge.pool, job_id)
        with pytest.raises(NoSuchJobError):
            await operations.find(bridge.pool, "$nothing")


async def test_a_transaction_of_several_jobs_names_them(one_target: Target) -> None:
    async with Bridge(one_target) as bridge:
        await bridge.receive(mention("a", text="reply x"), mention("b", text="reply y"))
        await bridge.quiet(2)
        jobs = [await operations.find(bridge.pool, event) for event in ("$a", "$b")]
        shown = await operations.shown(bridge.pool, jobs[0])
        with pytest.raises(JobStateError, match="2 jobs belong to") as refused:
            await operations.find(bridge.pool, shown["txn_id"])
        assert all(job in refused.value.hint for job in jobs)


async def test_a_worker_that_is_gone_is_not_said_to_work(one_target: Target) -> None:
    async with Bridge(one_target) as bridge:
        await bridge.receive(mention("a", text="task 600 x"))
        await bridge.reaches("awaiting_task")
        job_id = await operations.find(bridge.pool, "$a")
        shown = await operations.shown(bridge.pool, job_id)
        assert f"{shown['lease_owner']} has it in work." in "\n".join(operations.explained(shown))
        gone = {**shown, "worker_seen": False}
        assert "has ended, or is cut off" in "\n".join(operations.explained(gone))
        await bridge.pool.execute(
            "UPDATE bridge_workers SET lock_id = DEFAULT WHERE worker_id = $1",
            shown["lease_owner"],
        )
        assert not (await operations.shown(bridge.pool, job_id))["worker_seen"]


async def test_the_operator_cancels_queued_and_running_jobs(one_target: Target) -> None:
    async with Bridge(one_target) as bridge:
        await bridge.receive(mention("a", text="task 600 x"), mention("b", text="reply never"))
        await bridge.reaches("awaiting_task")
        queued = await operations.find(bridge.pool, "$b")
        text = "\n".join(operations.explained(await operations.shown(bridge.pool, queued)))
        assert "waits for the older job" in text
        assert await operations.cancel(bridge.pool, queued, by="operator:ann") == "ended"
        assert (
            await operations.cancel(bridge.pool, await operations.find(bridge.pool, "$a"))
            == "asked"
        )
        assert await bridge.quiet(2) == [("denied", "task_canceled"), ("denied", "canceled")]
        assert bridge.world.rooms.said(ROOM) == ["NOTICE task_canceled", "NOTICE canceled"]
        assert len(bridge.world.agent.begun) == 1
        text = "\n".join(operations.explained(await operations.shown(bridge.pool, queued)))
        assert "canceled by operator:ann" in text


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("bridge")


async def test_metrics_tell_states_and_ages_without_rooms_or_users(
    one_target: Target, metrics: Metrics
) -> None:
    counts = Counts(metrics)
    async with Ledger(one_target, 1) as ledger, Bridge(one_target) as bridge:
        await bridge.receive(mention("a", text="lost x"), mention("b", text="task 600 x"))
        await bridge.reaches("awaiting_task")
        await counts.refresh(ledger)
    text = metrics.render()
    assert 'bridge_jobs{state="awaiting_task"} 1.0' in text
    assert 'bridge_jobs_unresolved{state="ambiguous"} 1.0' in text
    assert "example.org" not in text


def run(target: Target, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """As a process, with the settings of a service."""
    config = {
        "homeserver_url": "http://127.0.0.1:1", "server_name": "example.org", "as_token": "a",
        "hs_token": "h", "database": target.dsn, "agents": {"scout": {"url": "http://x/"}},
    }  # fmt: skip
    (folder / "bridge.json").write_text(json.dumps(config))
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "BRIDGE_CONFIG": str(folder / "bridge.json"),
    }
    argv = [sys.executable, "-W", "error", "-m", "corral.bridge.main", *arguments]
    return subprocess.run(argv, env=environ, capture_output=True, text=True)


def test_the_commands(one_target: Target, tmp_path: Path) -> None:
    listed = run(one_target, tmp_path, "jobs", "list", "--json")
    assert (listed.returncode, json.loads(listed.stdout)) == (0, {"jobs": []}), listed.stderr
    for arguments in (("jobs", "explain", "$x"), ("jobs", "show", "$x")):
        asked = run(one_target, tmp_path, *arguments)
        assert asked.returncode == 66
        assert "no job has the id $x" in asked.stderr
    assert run(one_target, tmp_path, "resolve", "x", "--note", "y").returncode == 66
    assert run(one_target, tmp_path, "cancel", "x").returncode == 66


async def test_a_command_that_changes_a_job_tells_who_did_it(
    one_target: Target, tmp_path: Path
) -> None:
    async with Bridge(one_target) as bridge:
        await bridge.receive(mention("a", text=f"lost {SECRET}"))
        await bridge.quiet()
        job_id = await operations.find(bridge.pool, "$a")
        words = ("resolve", job_id, "--note", f"it said {SECRET}", "--json")
        done = await asyncio.to_thread(run, one_target, tmp_path, *words)
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (0, True)
    told = json.loads(done.stderr)
    assert (told["logger"], told["event"]) == ("bridge.audit", "operator resolved")
    assert (told["job_id"], told["by"]) == (job_id, operations.whoami())
    assert (told["before"], told["after"]) == ("ambiguous", "resolved")
    assert SECRET not in done.stderr


async def test_of_a_ledger_that_is_too_new_nothing_is_said_or_changed(
    one_target: Target, tmp_path: Path
) -> None:
    later = len(KNOWN) + 1
    async with connection(one_target) as made:
        await made.execute("INSERT INTO bridge_migrations VALUES ($1, '', $1)", later)
        try:
            for words in (("jobs", "list"), ("jobs", "show", "x"), ("cancel", "x")):
                asked = await asyncio.to_thread(run, one_target, tmp_path, *words)
                assert asked.returncode not in {0, 66}, words
                assert "too new" in asked.stderr
        finally:
            await made.execute("DELETE FROM bridge_migrations WHERE number = $1", later)


def test_every_end_is_explained() -> None:
    """Each state and each reason has lines; none of them fails on a missing field."""
    from corral.bridge.domain import ENDS, Reason

    row: dict[str, Any] = dict.fromkeys(
        ["waits_for", "task_id", "lease_owner", "error_code", "edit_event_id", "primary_event_id",
         "notice_event_id", "notice_pending", "resolved_at", "resolved_note", "resolved_by",
         "canceled_by", "lease_valid", "worker_seen"]
    )  # fmt: skip
    row |= {
        "job_id": "j", "ghost": "g", "room_id": "r", "attempts": 1, "never_left": 0, "polls": 0,
        "a2a_message_id": "m", "context_id": "c", "failures": 0, "due_in_s": 0.0,
        "terminal_at": "then",
    }  # fmt: skip
    for reason in Reason:
        found = operations.explained({**row, "state": ENDS[reason].value, "reason": reason.value})
        assert any(reason.value in line for line in found)
