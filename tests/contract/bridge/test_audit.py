"""Each decision and effect has its audit record; nothing that was said is in any log, metric or
terminal row."""

import asyncio
import json
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from corral.bridge import operations
from corral.bridge.counts import Counts
from corral.bridge.database import Ledger, Target
from corral.bridge.domain import Limits
from corral.bridge.errors import JobStateError
from corral.bridge.incoming import Cancel, Continuation, Redaction, Refusal
from corral.bridge.ports import AuthFailed, NeverLeft, TooLarge, Unreachable
from corral.core import logs
from corral.core.metrics import Metrics
from corral.local.wait import until_true
from tests.contract.bridge.bridge import PATIENCE_S, Bridge
from tests.contract.bridge.kit import ALICE, BOB, ROOM, mention
from tests.harness.bridge_world import Contents

WORD = "zanzibar"


class Log:
    """What the process logs from debug on, libraries and the loop included."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._text = ""

    def text(self) -> str:
        self._text += self._capsys.readouterr().err
        return self._text

    def audit(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.text().splitlines()]
        return [line for line in lines if line["logger"] == "bridge.audit"]


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> Iterator[Log]:
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = list(root.handlers), root.level
    logs.configure("bridge", json=True, level="debug")
    yield Log(capsys)
    # As it was: others look at what is logged, too.
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**before)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("bridge")


async def root_of_the_question(bridge: Bridge) -> str:
    def asked() -> list[Any]:
        return [one for one in bridge.world.rooms.events if one.text.startswith("QUESTION")]

    [question] = await until_true(asked, PATIENCE_S, "the question")
    return str(question.content["thread"])


async def test_each_decision_and_effect_has_a_record(one_target: Target, log: Log) -> None:
    async with Bridge(one_target, limits=Limits(room_queue_capacity=2)) as bridge:
        await bridge.receive(mention("a", text="ask x"))
        root = await root_of_the_question(bridge)
        await bridge.receive(
            mention("b"), mention("c"), Refusal(mention("d"), "sender_not_allowed")
        )
        await bridge.receive(Cancel("$e", ROOM, BOB, "$b", 0), Cancel("$f", ROOM, ALICE, "$b", 1))
        await bridge.receive(Continuation("$g", ROOM, ALICE, root, "yes", 0))
        await bridge.quiet(4)
        await bridge.receive(mention("h", room="!h"), Redaction("$i", "!h", BOB, "$h", 1))
        await bridge.quiet(5)
    told = [(line["event"], line.get("event_id")) for line in log.audit()]
    for decision in (
        ("admitted", "$a"), ("admitted", "$b"), ("denied", "$c"), ("denied", "$d"),
        ("canceled", "$f"), ("control admitted", "$g"), ("admitted", "$h"),
    ):  # fmt: skip
        assert told.count(decision) == 1, decision
    assert ("canceled", "$e") not in told  # it was not, by others
    found = {(line["event"], line.get("reason"), line.get("by")) for line in log.audit()}
    assert ("denied", "queue_room_capacity_rejected", ALICE) in found
    assert ("denied", "sender_not_allowed", ALICE) in found
    assert ("canceled", None, ALICE) in found
    assert ("job ended", "answered", None) in found
    assert ("job ended", "canceled", None) in found
    names = [name for name, _ in told]
    assert names.count("redacted") == 1
    assert [line["what"] for line in log.audit() if line["event"] == "agent called"] == [
        "message", "answer",
    ]  # fmt: skip
    # Every event of ours in the room has one.
    posted = {line["event_id"] for line in log.audit() if line["event"] == "posted"}
    assert posted >= {one.event_id for one in bridge.world.rooms.events}


async def test_what_an_operator_does_has_a_record(one_target: Target, log: Log) -> None:
    """Who, what, before and after; the note stays in the ledger."""
    async with Bridge(one_target) as bridge:
        await bridge.receive(mention("a", text="lost x", room="!a"))
        await bridge.receive(mention("b", text="task 600 x"), mention("c", text="reply never"))
        await bridge.reaches("awaiting_task")
        await bridge.reaches("ambiguous")
        jobs = [await operations.find(bridge.pool, name) for name in ("$a", "$b", "$c")]
        await operations.resolve(bridge.pool, jobs[0], f"note {WORD}", by="operator:ann")
        with pytest.raises(JobStateError):
            await operations.resolve(bridge.pool, jobs[0], "again", by="operator:ann")
        await operations.cancel(bridge.pool, jobs[2], by="operator:bob")
        await operations.cancel(bridge.pool, jobs[1], by="operator:bob")
        await bridge.quiet(3)
    found = [
        tuple(line[key] for key in ("event", "job_id", "by", "before", "after", "uid"))
        for line in log.audit()
        if line["event"].startswith("operator")
    ]
    uid = os.getuid()
    assert found == [
        ("operator resolved", jobs[0], "operator:ann", "ambiguous", "resolved", uid),
        ("operator canceled", jobs[2], "operator:bob", "pending", "reply_pending", uid),
        ("operator canceled", jobs[1], "operator:bob", "awaiting_task", "cancel asked", uid),
    ]
    assert WORD not in log.text()


async def everything(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mentions, answers, questions, progress, files, and every kind of trouble, with the word."""
    rooms, real = bridge.world.rooms, Contents.notice
    texts = [
        f"reply {WORD}", f"task 0.2 {WORD}", f"progress 0.8 {WORD}", f"artifacts 1 {WORD}",
        f"fail {WORD}", f"refuse {WORD}", f"lost {WORD}", f"down 2 {WORD}", f"reject {WORD}",
    ]  # fmt: skip
    rooms.problems = [Unreachable("x"), AuthFailed("x"), TooLarge()]
    await bridge.receive(*(mention(f"a{n}", text=one, room=f"!{n}") for n, one in enumerate(texts)))
    await bridge.receive(mention("q", text=f"ask {WORD}", room="!q"))
    root = await root_of_the_question(bridge)
    bridge.world.agent.unsent = [NeverLeft("refused")]
    await bridge.receive(Continuation("$yes", "!q", ALICE, root, WORD, 0))
    await bridge.receive(mention("c", text=f"task 600 {WORD}", room="!c"))
    await bridge.reaches("awaiting_task")
    await bridge.receive(Cancel("$x", "!c", ALICE, "$c", 0))
    await bridge.quiet(len(texts) + 2)

    def faulty(contents: Contents, *args: Any, **more: Any) -> Any:
        if args[1] == "agent_refused":
            raise ValueError(WORD)
        return real(contents, *args, **more)

    monkeypatch.setattr(Contents, "notice", faulty)
    await bridge.receive(mention("f", text=f"refuse {WORD}", room="!f"))
    await bridge.quiet(len(texts) + 3)


async def test_nothing_that_was_said_is_in_logs_metrics_or_terminal_rows(
    one_target: Target, log: Log, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counts(metrics)
    async with Bridge(one_target, placeholder_after_s=0.1) as bridge:
        bridge.coordinator._counts = counts
        await everything(bridge, monkeypatch)
        said = [one for one in bridge.world.rooms.said() if WORD in one]
        assert len(said) >= 4  # the word did go through all of it
        await counts.refresh(bridge.pool)
        await a_row_that_the_database_refuses(bridge)
        found = [await operations.shown(bridge.pool, row["job_id"]) for row in await bridge.rows()]
        left = await rows_with(bridge.pool, WORD)
    assert left == []
    assert WORD not in json.dumps(found)
    assert WORD not in metrics.render()
    assert "fault" in log.text()
    assert WORD not in log.text()


async def a_row_that_the_database_refuses(bridge: Bridge) -> None:
    """PostgreSQL's error quotes it, and the loop logs what nobody has waited for."""

    async def write() -> None:
        await bridge.pool.execute("UPDATE bridge_delegations SET result = $1", WORD)

    async def round_() -> None:
        await write()

    rounds = asyncio.ensure_future(bridge.coordinator._every(3600, round_))
    loose = asyncio.ensure_future(write())
    await asyncio.wait({loose})
    asyncio.get_running_loop().call_exception_handler(
        {"message": "nobody waited", "exception": loose.exception()}
    )
    await asyncio.sleep(0)
    rounds.cancel()


async def rows_with(ledger: Ledger, word: str) -> list[str]:
    """Tables of which a row has the word anywhere, as text."""
    tables = await ledger.fetch(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'bridge%'"
    )
    assert len(tables) >= 8
    found = []
    for row in tables:
        name = row["relname"]
        count = f"SELECT count(*) FROM {name} AS t WHERE t::text LIKE '%{word}%'"
        if await ledger.fetchval(count):
            found.append(name)
    return found
