"""`corral trace`: every id of a message leads to the whole chain, and the gap is named.

The programs are stand-ins that know one message; what the real ones say is in
tests/contract/test_trace.py.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from corral.core.errors import UsageError
from corral.overview import chain, tracing
from corral.overview.chain import Chain
from corral.overview.programs import PROGRAMS

ENTRY, OUTBOX = "1732935482123-0", "1732935489000-0"
TURN = f"scout.a2a.1.{ENTRY}"
TASK, KEY, WAKE = "t" * 32, "k" * 32, "7-0123456789abcdef0123456789abcdef"
IDS = ["$event", "4", "$reply", "job-1", "m-1", TASK, KEY, ENTRY, TURN, WAKE, OUTBOX]

JOB: dict[str, Any] = {
    "job_id": "job-1", "event_id": "$event", "txn_id": "4", "a2a_message_id": "m-1", "attempts": 1,
    "never_left": 0, "task_id": TASK, "state": "delivered", "reason": "completed",
    "created_at": "2026-01-01T00:00:00+00:00", "prepared_at": "2026-01-01T00:00:01+00:00",
    "terminal_at": "2026-01-01T00:00:09+00:00", "primary_event_id": "$reply",
    "edit_event_id": None, "notice_event_id": None, "controls": [],
}  # fmt: skip
THE_TASK: dict[str, Any] = {
    "task_id": TASK, "agent": "scout", "client": "bridge", "context_id": "c-1",
    "state": "completed", "created_at_ms": 1_767_225_602_000, "late": [], "deliveries": [],
    "read_at_ms": 1_767_225_608_000,
    "messages": [{"role": "user", "message_id": "m-1", "entry_key": KEY}],
}  # fmt: skip
THE_TURN: dict[str, Any] = {
    "turn_id": TURN, "state": "done", "outcome": "completed", "starts": 1, "thread": TASK,
    "received_at_ms": 1_767_225_603_000, "outbox_id": OUTBOX,
}  # fmt: skip
CASE: dict[str, Any] = {
    "source": "a2a", "entry": ENTRY, "verdict": "answered", "sentence": "It was answered.",
    "certain": "", "uncertain": "", "do": "", "turn": THE_TURN, "notes": [],
    "redis": {"in_stream": True, "outbox": [
        {"outbox_id": OUTBOX, "outcome": "completed", "slot": "reply", "delivery": "acknowledged"},
    ]},
}  # fmt: skip
THE_WAKE: dict[str, Any] = {
    "message_id": WAKE, "client_id": "cowboy", "correlation_id": TURN, "state": "acknowledged",
    "attempts_total": 2, "admitted_at": "2026-01-01T00:00:04.000+00:00", "waiting_reason": None,
}  # fmt: skip

PROGRAM = """#!{python}
import json, sys
known = json.load(open({table!r}))
words = [word for word in sys.argv[1:] if word != "--json"]
answer = known.get(" ".join(words))
if answer is None:
    answer = {{"ok": False, "error": {{"code": known["unknown"], "message": "no such id"}}}}
print(json.dumps(answer))
"""


class Host:
    """The four programs, as far as one message goes; a test takes away what is not there yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job: dict[str, Any] | None = dict(JOB)
        self.task: dict[str, Any] | None = dict(THE_TASK)
        self.case: dict[str, Any] | None = dict(CASE)
        self.wake: dict[str, Any] | None = dict(THE_WAKE)
        self.woken = True
        self.away: set[str] = set()
        self.more: dict[str, dict[str, Any]] = {}  # further answers, by program

    def tables(self) -> dict[str, dict[str, Any]]:
        of_job = ["$event", "4", "$reply", "job-1", "m-1", TASK]
        of_turn = [KEY, ENTRY, TURN, OUTBOX]
        bridge = {f"jobs show {one}": self.job for one in of_job}
        lines = {"job_id": "job-1", "lines": ["Job job-1: delivered."]}
        bridge["jobs explain job-1"] = lines if self.job else None
        task = {"tasks": [self.task]} if self.task else None
        told = {"explanations": [self.case] if self.case else []}
        wakes = {"messages": [self.wake] if self.wake else [], "cursor": None}
        return {
            "a2a-bridge": {**bridge, "unknown": "not_found"},
            "corral-gateway": {**{f"tasks {one}": task for one in (TASK, "m-1")},
                               "unknown": "no_such_task"},
            "cowboy": {**{f"explain scout {one}": told for one in of_turn}, "unknown": "usage"},
            "tamq": {f"message {WAKE}": self.wake, "unknown": "not_found",
                     f"history --client cowboy --correlation {TURN}": wakes},
        }  # fmt: skip

    async def trace(self, any_id: str) -> Chain:
        import sys

        bin_ = self.folder / "bin"
        bin_.mkdir(exist_ok=True)
        for name, table in self.tables().items():
            file = self.folder / f"{name}.json"
            known = json.dumps(table | self.more.get(name, {}))
            file.write_text(known, encoding="utf-8")
            program = bin_ / name
            text = PROGRAM.format(python=sys.executable, table=str(file))
            program.write_text("#!/bin/false\n" if name in self.away else text, encoding="utf-8")
            program.chmod(stat.S_IRWXU)
        config = self.folder / "etc" / "scout"
        config.mkdir(parents=True, exist_ok=True)
        runner = {"kind": "tamq" if self.woken else "exec"}
        sources = {"sources": {"a2a": {"runner": runner}}}
        (config / "sources.json").write_text(json.dumps(sources), encoding="utf-8")
        variables = {
            "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
            "COWBOY_CONFIG_DIR": str(config.parent),
        }
        return chain.of(await tracing.gather(any_id, PROGRAMS, variables))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


WHOLE = [
    ("event", "$event"), ("transaction", "4"), ("job", "job-1"), ("message", "m-1"),
    ("task", TASK), ("entry", ENTRY), ("turn", TURN), ("wake", WAKE), ("answer", OUTBOX),
    ("reply", "$reply"),
]  # fmt: skip


@pytest.mark.parametrize("any_id", IDS)
async def test_each_id_leads_to_the_whole_chain(host: Host, any_id: str) -> None:
    found = await host.trace(any_id)
    assert [(hop.kind, hop.id) for hop in found.hops] == WHOLE
    assert (found.gap, found.todo, found.starts) == (None, "", 1)
    assert found.as_dict(any_id)["complete"] is True
    assert "cowboy: It was answered." in found.certain
    assert list(found.lines())[-1] == "next: nothing: its way is complete"


async def test_an_id_that_nobody_knows_is_refused(host: Host) -> None:
    with pytest.raises(UsageError, match=r"no service that answers here knows '\$other'"):
        await host.trace("$other")


RUNS = {**THE_TURN, "state": "dispatched", "outcome": None, "outbox_id": None}
NO_ANSWER = {**CASE["redis"], "outbox": []}
OPEN_JOB = {
    **JOB, "state": "awaiting_task", "reason": None, "terminal_at": None, "primary_event_id": None,
}  # fmt: skip


def open_until(host: Host, kind: str) -> None:
    """The message has come as far as this hop."""
    host.job = {**OPEN_JOB}
    assert host.task is not None
    host.task = {**host.task, "state": "working"}
    host.case = {**CASE, "turn": RUNS, "redis": NO_ANSWER, "do": "wait"}
    assert host.wake is not None
    host.wake = {**host.wake, "state": "pending", "waiting_reason": "draft", "attempts_total": 0}
    match kind:
        case "job":
            host.job |= {"attempts": 0, "task_id": None, "state": "pending"}
            host.task = host.case = host.wake = None
        case "task":
            host.task["deliveries"] = [{"kind": "message", "taken": 0}]
            host.case = host.wake = None
        case "turn":
            host.wake = None
        case "answer":
            host.case = {**CASE}
            host.wake = {**THE_WAKE}


@pytest.mark.parametrize(
    ("kind", "gap", "todo"),
    [
        ("job", "nothing was executed", "a2a-bridge jobs explain job-1"),
        ("task", "the agent's inbox does not have it yet", f"corral-gateway tasks {TASK}"),
        ("turn", "its session was not woken", "tamq doctor"),
        ("wake", "not shown it yet: draft", f"tamq message {WAKE}"),
        ("answer", "it is working", "corral-gateway doctor"),
    ],
)
async def test_the_gap_is_behind_the_last_hop(host: Host, kind: str, gap: str, todo: str) -> None:
    open_until(host, kind)
    found = await host.trace("$event")
    assert found.hops[-1].kind == kind
    assert found.gap is not None
    assert gap in found.gap
    assert todo in found.todo


async def test_a_session_that_has_it_is_waited_for(host: Host) -> None:
    open_until(host, "wake")
    assert host.wake is not None
    host.wake |= {"state": "injected", "attempts_total": 1}
    found = await host.trace(TURN)
    assert found.gap == "the session has it (injected), and has not answered"


async def test_a_service_that_does_not_answer_is_named(host: Host) -> None:
    open_until(host, "task")
    assert host.task is not None
    host.task["deliveries"] = []
    host.away = {"cowboy"}
    found = await host.trace("$event")
    assert (found.gap or "").startswith("cowboy could not be asked: ")
    assert found.todo == "corral doctor"


async def test_a_message_put_into_an_inbox_has_no_task(host: Host) -> None:
    host.job = host.task = None
    host.wake = None
    host.case = {**CASE, "turn": {**THE_TURN, "thread": None}}
    found = await host.trace(ENTRY)
    assert [hop.kind for hop in found.hops] == ["entry", "turn", "answer"]
    assert found.gap is None


OF_BRIDGE: list[tuple[dict[str, Any], str]] = [
    ({"state": "reply_pending"}, "its end is decided, and no event of it is recorded"),
    ({"state": "reply_pending", "primary_event_id": "$reply"}, "the room has the answer, and its"),
    ({"state": "reply_pending", "primary_event_id": "$reply", "placeholder": True}, "may have it"),
    ({"state": "a2a_prepared"}, "recorded what became of the task: its job is a2a_prepared"),
    ({"state": "awaiting_input"}, "was asked for more, and no answer is recorded"),
    ({"state": "awaiting_input", "controls": [{"kind": "continuation", "state": "pending"}]},
     "was not passed on yet"),
    ({"state": "awaiting_input", "controls": [{"kind": "continuation", "state": "prepared"}]},
     "may have been passed on"),
    ({"state": "dead", "terminal_at": "then"}, "the room was told nothing"),
    ({"state": "denied", "terminal_at": "then", "notice_pending": "x"}, "was not told yet"),
]  # fmt: skip


@pytest.mark.parametrize(("job", "gap"), OF_BRIDGE)
async def test_what_the_bridge_has_still_to_do(host: Host, job: dict[str, Any], gap: str) -> None:
    """Everything behind it is done; what it has not recorded may be so."""
    host.job = {**OPEN_JOB, **job}
    found = await host.trace("$event")
    assert gap in (found.gap or "")
    assert found.todo.startswith("a2a-bridge jobs explain job-1")


async def test_a_call_of_which_nothing_is_known_is_not_said_to_be_sent(host: Host) -> None:
    host.job = {**OPEN_JOB, "state": "a2a_prepared", "task_id": None}
    host.task = host.case = host.wake = None
    found = await host.trace("$event")
    assert (found.hops[-1].kind, found.hops[-1].state) == ("message", "may have been sent")
    assert found.gap == "a call to the agent was prepared: nothing here says whether it arrived"
    assert found.starts is None
    host.job |= {"attempts": 2, "never_left": 2}
    found = await host.trace("$event")
    assert (found.hops[-1].state, found.starts) == ("never left", 0)
    assert found.gap == "no call to the agent has left: nothing was executed"


async def test_a_task_that_no_gateway_knows_is_the_agents_word(host: Host) -> None:
    host.job = {**OPEN_JOB}
    host.task = host.case = host.wake = None
    found = await host.trace("$event")
    assert (found.hops[-1].service, found.hops[-1].id) == ("agent", TASK)
    assert found.gap == "the agent has the task, and no gateway here knows it"


async def test_a_turn_that_goes_on_after_the_end_is_named(host: Host) -> None:
    host.case = {**CASE, "turn": RUNS, "redis": NO_ANSWER}
    found = await host.trace("$event")
    assert found.gap == "the room was told the end, and its turn is dispatched still"


@pytest.mark.parametrize("read", [None, 1_767_225_608_000])
async def test_without_a_job_the_end_is_that_its_client_asked(host: Host, read: int | None) -> None:
    assert host.task is not None
    host.job, host.task = None, {**host.task, "read_at_ms": read}
    found = await host.trace(TASK)
    assert found.hops[-1].kind == "answer"
    waits = "its client bridge has not asked for the end of the task"
    assert found.gap == (waits if read is None else None)


async def test_what_the_daemon_does_not_say_is_not_known(host: Host) -> None:
    host.job = host.task = host.wake = None
    host.case = {**CASE, "turn": None, "daemon": "nobody answers", "redis": NO_ANSWER}
    found = await host.trace(ENTRY)
    assert found.gap == "cowboy could not be asked: nobody answers"
    assert found.starts is None


async def test_an_answer_that_was_removed_is_not_said_to_be_read(host: Host) -> None:
    host.case = {**CASE, "redis": NO_ANSWER}
    found = await host.trace("$event")
    assert [hop.state for hop in found.hops if hop.kind == "answer"] == ["no longer in the outbox"]


async def test_an_id_of_several_messages_names_them(host: Host) -> None:
    said = {"code": "invalid_state", "message": "2 jobs belong to 5", "hint": "choose one: a, b"}
    tasks = {"tasks": [{"task_id": "t-1"}, {"task_id": "t-2"}]}
    host.more = {
        "a2a-bridge": {"jobs show 5": {"ok": False, "error": said}},
        "corral-gateway": {"tasks c-1": tasks},
        "cowboy": {"explain scout 4": {"explanations": [CASE]}},
    }
    for any_id, hint in (("5", "choose one: a, b"), ("c-1", "task t-2"), ("4", ENTRY)):
        with pytest.raises(UsageError, match="is of several messages") as refused:
            await host.trace(any_id)
        assert hint in refused.value.hint
