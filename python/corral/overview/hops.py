"""The hops of one message, in order, as its services tell of them. Pure.

| hop | whose | id |
| --- | --- | --- |
| `event` | bridge | the Matrix event of the mention |
| `transaction` | bridge | the homeserver's transaction that brought it |
| `job` | bridge | the delegation |
| `message` | bridge | the A2A message |
| `task` | gateway | the A2A task |
| `entry` | cowboy | the entry of the agent's inbox |
| `turn` | cowboy | the turn |
| `wake` | TAMQ | the message to a live session |
| `answer` | cowboy | the entry of the outbox |
| `reply` | bridge | the Matrix event of the answer |

A chain begins with the first hop that this host has: a message that was put into an inbox by hand
has no task.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from corral.overview.tracing import BRIDGE, COWBOY, GATEWAY, TAMQ, Data, Found

AS_SAID: Final = "agent"  # whose task it is when no gateway here has it


@dataclass(frozen=True)
class Hop:
    """`at` is when it came there, as far as its service says."""

    kind: str
    service: str
    id: str
    state: str = ""
    at: str = ""

    def as_dict(self) -> dict[str, str | None]:
        return {
            "kind": self.kind, "service": self.service, "id": self.id, "state": self.state or None,
            "at": self.at or None,
        }  # fmt: skip


def of(found: Found) -> tuple[Hop, ...]:
    """All of what was found, which is something."""
    return (*_bridge(found), *_gateway(found), *_cowboy(found), *_reply(found))


def _bridge(found: Found) -> Iterator[Hop]:
    job = found.job
    if job is None:
        return
    yield Hop("event", BRIDGE, job["event_id"])
    if job.get("txn_id") is not None:
        yield Hop("transaction", BRIDGE, str(job["txn_id"]))
    state = job["state"] + (f" ({job['reason']})" if job.get("reason") else "")
    yield Hop("job", BRIDGE, job["job_id"], state, _short(job.get("created_at")))
    if job["attempts"]:
        sent = _sent(found, job)
        yield Hop("message", BRIDGE, job["a2a_message_id"], sent, _short(job.get("prepared_at")))
    if job.get("task_id") and not found.tasks:
        yield Hop("task", AS_SAID, job["task_id"], "as the agent said")


def _sent(found: Found, job: Data) -> str:
    """Of a call that was prepared nobody can say that it left, unless somebody has it."""
    if job["attempts"] == job["never_left"]:
        return "never left"
    uncertain = job["state"] == "a2a_prepared" or job.get("reason") == "call_uncertain"
    return "may have been sent" if uncertain and not found.tasks else "sent"


def _gateway(found: Found) -> Iterator[Hop]:
    for task in sorted(found.tasks.values(), key=lambda one: int(one["created_at_ms"])):
        if found.job is None:
            for one in task["messages"]:
                if one["role"] == "user":
                    yield Hop("message", GATEWAY, one["message_id"])
        yield Hop("task", GATEWAY, task["task_id"], task["state"], _time(task["created_at_ms"]))


def _cowboy(found: Found) -> Iterator[Hop]:
    for entry, case in sorted(found.turns.items()):
        turn, redis = case["turn"], case["redis"]
        there = {True: "in the inbox", False: "trimmed from the inbox", None: "Redis was not read"}
        yield Hop("entry", COWBOY, entry, there[redis["in_stream"]])
        if turn is not None:
            state = turn["state"] + (f" ({turn['outcome']})" if turn["outcome"] else "")
            yield Hop("turn", COWBOY, turn["turn_id"], state, _time(turn["received_at_ms"]))
        yield from _wakes(found, entry)
        queued = {
            one["outbox_id"]: f"{one['outcome']}, {one['delivery']}" for one in redis["outbox"]
        }
        if turn is not None and turn["outbox_id"]:
            queued.setdefault(turn["outbox_id"], _gone(redis))
        for outbox_id, state in sorted(queued.items()):
            yield Hop("answer", COWBOY, outbox_id, state)
    if not found.turns:
        yield from _wakes(found, "")


def _gone(redis: Data) -> str:
    """Of an answer that the outbox had. Readers trim what they have acknowledged."""
    return "Redis was not read" if redis["in_stream"] is None else "no longer in the outbox"


def _wakes(found: Found, entry: str) -> Iterator[Hop]:
    for wake in sorted(found.wakes.values(), key=lambda one: str(one["admitted_at"])):
        if str(wake.get("correlation_id")).endswith(entry):
            state = f"{wake['state']}, attempt {wake['attempts_total']}"
            yield Hop("wake", TAMQ, wake["message_id"], state, _short(wake["admitted_at"]))


def _reply(found: Found) -> Iterator[Hop]:
    job = found.job or {}
    shown = job.get("edit_event_id") or job.get("notice_event_id")
    if job.get("terminal_at") or not job.get("placeholder"):  # else it is no answer yet
        shown = shown or job.get("primary_event_id")
    if shown:
        yield Hop("reply", BRIDGE, shown, job["state"], _short(job.get("terminal_at")))


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _short(text: Any) -> str:
    return str(text) if text else ""
