"""What is worse than a kill: Redis emptied, the group or the stream gone, yesterday's ledger."""

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from corral.local import wait
from corral.local.collect import collect
from corral.local.deployment import DAEMON, REDIS, RUNNER, Deployment, Options
from corral.local.evidence import Evidence
from corral.local.ledger import read_effects
from corral.local.model import reconcile
from corral.local.plan import Planned
from corral.local.workload import send_all
from tests.harness import boundaries
from tests.harness.trial import Trial, edit_for, launch_for

QUIET_S = 30.0
SOURCES = ("a2a", "chat")


class House:
    """A deployment with its readers, and rounds of messages through it."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.board = deployment.board
        self._round = 0

    def messages(self, **options: Any) -> list[Planned]:
        """A round of messages; no message id is used twice."""
        self._round += 1
        planned = []
        for item in boundaries.workload(**options):
            name = b"%d-" % self._round + item.fields[b"message_id"]
            fields = {**item.fields, b"message_id": name}
            planned.append(replace(item, key=1000 * self._round + item.key, fields=fields))
        return planned

    async def send(self, **options: Any) -> None:
        await send_all(self.deployment.sender, self.messages(**options), time.monotonic())

    async def quiet(self) -> None:
        assert await self.deployment.until_quiet(QUIET_S), self.board.waiting

    async def quiet_without(self, first_key: int) -> None:
        """At rest, whatever became of messages before `first_key`: Redis has lost some of them."""
        waiting = self.board.waiting

        async def at_rest() -> bool:
            if any(sent.key >= first_key for sent in waiting.values()):
                return False
            return not any(source["open"] for source in (await self.status()).values())

        await wait.until_async(at_rest, QUIET_S, "all that is left to be answered")
        assert await self.deployment.until_quiet(QUIET_S, awaiting=False)

    async def status(self) -> Mapping[str, Mapping[str, Any]]:
        answer = await self.deployment.control({"op": "status"})
        return {source["source"]: source for source in answer["sources"]}

    async def until_state(self, state: str) -> None:
        async def reached() -> bool:
            found = await self.status()
            return all(found[name]["state"] == state for name in SOURCES)

        await wait.until_async(reached, 20, f"the sources to be {state}")

    async def judge(self, **changes: Any) -> Evidence:
        """Nothing may be broken."""
        evidence = replace(await collect(self.deployment, quiet=True), **changes)
        violations = [str(violation) for violation in reconcile(evidence).violations]
        assert violations == []
        return evidence

    def starts(self) -> Counter[tuple[str, str]]:
        """By source and entry, whatever the incarnation in the turn's id."""
        lines = read_effects(self.deployment.effects_file)
        started = [line for line in lines if line.ev == "start"]
        return Counter((line.turn.split(".")[1], line.entry_id or "") for line in started)

    def answers(self) -> Counter[tuple[str, str]]:
        return Counter((seen.source, seen.in_reply_to) for seen in self.board.seen.values())


@pytest.fixture(params=[("redis", 3), ("valkey", 2)], ids=lambda param: f"{param[0]}-{param[1]}")
async def house(request: pytest.FixtureRequest) -> AsyncIterator[House]:
    server, protocol = request.param
    trial = Trial("disaster", 1, server=server, protocol=protocol)
    options = Options(
        server=server, protocol=protocol, edit=edit_for(trial), launch=partial(launch_for, trial)
    )
    async with Deployment(options) as deployment:
        readers = [deployment.reader(source) for source in deployment.sources]
        tasks = [asyncio.create_task(reader.run()) for reader in readers]
        yield House(deployment)
        for reader in readers:
            reader.stop()
        await asyncio.gather(*tasks)


async def test_sent_while_nothing_runs(house: House) -> None:
    await house.send()
    assert house.deployment.down()
    await house.deployment.start()
    await house.quiet()
    evidence = await house.judge()
    assert all(sent.while_down for sent in evidence.sent)
    assert len(evidence.seen) == 10


async def test_redis_emptied(house: House) -> None:
    """What was open is still answered, what is new too, and nothing starts again."""
    deployment = house.deployment
    await deployment.start()
    await house.send()
    await house.quiet()
    before = house.starts()
    sending = asyncio.create_task(house.send(work_s=1.0))
    await wait.until_true(lambda: len(house.starts()) > len(before) + 3, 20, "some runs")
    await deployment.ask("FLUSHALL")
    await sending
    await house.send()
    await house.quiet_without(first_key=3000)
    evidence = await collect(deployment, quiet=True)
    rows = {(row.source, row.entry_id) for row in evidence.rows}
    lost = {(sent.source, sent.entry_id) for sent in evidence.sent} - rows
    evidence.removed = [f"{source}/{entry}" for source, entry in lost]
    broken = {violation.rule for violation in reconcile(evidence).violations}
    # Entries and answers that were in Redis alone went with it; all else holds.
    assert broken <= {"lost", "unanswered"}
    assert max(house.starts().values()) == 1
    assert max(house.answers().values()) == 1
    last = [sent for sent in evidence.sent if sent.key >= 3000]
    assert all((sent.source, sent.entry_id) in rows for sent in last if sent.label == "normal")


@pytest.mark.parametrize("what", ["group", "stream"])
async def test_group_or_stream_gone(house: House, what: str) -> None:
    deployment = house.deployment
    await deployment.start()
    await house.send()
    await house.quiet()
    before = house.starts()
    for source in SOURCES:
        inbox = f"scout:{source}:inbox"
        if what == "group":
            await deployment.ask("XGROUP", "DESTROY", inbox, "cowboy")
        else:
            await deployment.ask("DEL", inbox)
    await house.send()
    await house.quiet()
    await house.judge()
    after = house.starts()
    assert {entry: after[entry] for entry in before} == before, "history started again"
    assert max(after.values()) == 1


async def test_group_gone_while_down(house: House) -> None:
    deployment = house.deployment
    await deployment.start()
    await house.send()
    await house.quiet()
    await deployment.supervisor.stop(DAEMON)
    for source in SOURCES:
        await deployment.ask("XGROUP", "DESTROY", f"scout:{source}:inbox", "cowboy")
    await house.send()
    await deployment.start(DAEMON)
    await house.quiet()
    await house.judge()
    assert max(house.starts().values()) == 1


async def test_ledger_of_yesterday(house: House, tmp_path: Path) -> None:
    """An older copy of the ledger is refused until an operator adopts it; nothing runs twice."""
    deployment = house.deployment
    ledger = deployment.topology.ledger("scout")
    await deployment.start()
    await house.send()
    await house.quiet()
    await deployment.supervisor.stop(DAEMON)
    shutil.copytree(ledger.parent, tmp_path / "yesterday")
    await deployment.start(DAEMON)
    await house.send()
    await house.quiet()
    answers, starts = house.answers(), house.starts()
    await deployment.supervisor.stop(DAEMON)
    shutil.rmtree(ledger.parent)
    shutil.copytree(tmp_path / "yesterday", ledger.parent)
    await house.send()
    await deployment.start(DAEMON)
    await house.until_state("blocked")
    found = await house.status()
    assert not found["a2a"]["healthy"]
    assert "cowboy adopt" in found["a2a"]["reason"]
    assert house.starts() == starts, "work began on a ledger that is too old"
    assert (await deployment.control({"op": "adopt"}))["ok"]
    await house.quiet()
    assert max(house.starts().values()) == 1
    assert max(house.answers().values()) == 1
    assert not answers - house.answers()
    wanted = {(s.source, s.entry_id) for s in house.board.sent if s.label == "normal"}
    assert set(house.answers()) == wanted


async def test_everything_killed_at_once_again_and_again(house: House) -> None:
    deployment = house.deployment
    await deployment.start()
    sending = asyncio.create_task(house.send(work_s=0.3))
    for _ in range(4):
        seen = len(house.board.seen)
        await wait.until_true(lambda seen=seen: len(house.board.seen) > seen, 20, "an answer")  # type: ignore[misc]
        services = deployment.supervisor.services.values()
        await wait.until_true(
            lambda all_of=services: all(service.running for service in all_of),  # type: ignore[misc]
            20,
            "all processes to be back",
        )
        assert all(deployment.supervisor.kill(name) for name in (DAEMON, RUNNER, REDIS))
    await sending
    await house.quiet()
    evidence = await house.judge()
    assert sum(happening.lethal for happening in evidence.happenings) == 12
