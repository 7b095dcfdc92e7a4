"""Where a message's way ends, and what to do next. Pure.

The gap is behind the last hop that there is, unless that is the end. It says what is not known as
not known: a call that was prepared may have arrived, an answer that is not recorded may be shown.
"""

from typing import Final

from corral.overview.hops import AS_SAID, Hop
from corral.overview.tracing import BRIDGE, COWBOY, GATEWAY, TAMQ, Data, Found, whose

ENDED_TASKS: Final = frozenset({"completed", "failed", "canceled", "rejected"})
OVER_TURNS: Final = frozenset({"done", "dead", "cancelled", "empty"})
WAITS_FOR_READER: Final = frozenset({"no_reader", "unread", "read"})

Gap = tuple[str, str]  # what should follow and does not; the next step


def after(found: Found, last: Hop) -> tuple[str | None, str]:
    """What should follow the last hop, and what to do; None at the end of the way."""
    job = found.job
    if job is not None and job.get("terminal_at"):
        if last.kind == "reply":
            return _still(found) or (None, "")
        told = "not told yet" if job.get("notice_pending") else "told nothing"
        return f"the job ended, and the room was {told}", _explain_job(job)
    step = _step(found, last)
    if step is not None:
        return step
    if job is not None:
        silent = _silent(found, GATEWAY) if last.kind in {"message", "task"} else None
        return silent or (_at_bridge(job, last), f"{_explain_job(job)}; a2a-bridge doctor")
    return _unseen(found, last) or (None, "")


def _still(found: Found) -> Gap | None:
    """What goes on although the room was told the end."""
    for entry, case in sorted(found.turns.items()):
        turn = case["turn"]
        if turn is not None and turn["state"] not in OVER_TURNS:
            why = f"the room was told the end, and its turn is {turn['state']} still"
            return why, f"cowboy explain {case['agent']} {entry}"
    return None


def _unseen(found: Found, last: Hop) -> Gap | None:
    """Of a message that no job here is behind: whether its answer was fetched."""
    task = _newest_task(found)
    if task is not None:
        if BRIDGE in found.troubles:
            return f"{BRIDGE} could not be asked: {found.troubles[BRIDGE]}", "corral doctor"
        if task["read_at_ms"] is None:
            why = f"its client {task['client']} has not asked for the end of the task"
            return why, f"corral-gateway tasks {task['task_id']}"
        return None
    for case in found.turns.values():
        for one in case["redis"]["outbox"]:
            if one["outbox_id"] == last.id and one["delivery"] in WAITS_FOR_READER:
                why = (
                    f"the outbox has the answer, and nobody has acknowledged it: {one['delivery']}"
                )
                return why, f"cowboy status {case['agent']}"
    return None


def _explain_job(job: Data) -> str:
    return f"a2a-bridge jobs explain {job['job_id']}"


def _at_bridge(job: Data, last: Hop) -> str:
    """What the bridge has still to do, when whoever it asked has done what was asked."""
    if last.kind == "reply":
        return "the room has the answer, and its job has not ended"
    if last.service == AS_SAID:
        return "the agent has the task, and no gateway here knows it"
    match job["state"]:
        case "reply_pending":
            return "its end is decided, and no event of it is recorded: the room may have it"
        case "awaiting_input":
            return _asked(job)
        case "a2a_prepared" if last.kind == "message":
            if job["attempts"] == job["never_left"]:
                return "no call to the agent has left: nothing was executed"
            return "a call to the agent was prepared: nothing here says whether it arrived"
    return f"the bridge has not recorded what became of the task: its job is {job['state']}"


def _asked(job: Data) -> str:
    """Of a job that waits for more from whoever asked."""
    kind, open_ = "continuation", ("pending", "prepared")
    states = [one["state"] for one in job["controls"] if one["kind"] == kind]
    match [state for state in states if state in open_]:
        case []:
            return "whoever asked was asked for more, and no answer is recorded"
        case ["pending", *_]:
            return "the answer of whoever asked is recorded, and was not passed on yet"
    return "the answer of whoever asked may have been passed on: that is not recorded"


def _step(found: Found, last: Hop) -> Gap | None:
    job = found.job
    if last.kind in {"event", "transaction", "job"} and job is not None:
        why = "the agent was not called yet: nothing was executed"
        return why, f"{_explain_job(job)}; a2a-bridge doctor"
    if last.kind in {"message", "task"}:
        return _after_task(found)
    if last.kind in {"entry", "turn", "wake"}:
        return _after_entry(found)
    newest = _newest_task(found)
    if last.kind == "answer" and newest is not None and not _rests(newest):
        return (
            f"the gateway has not made its task's end of the answer: it is {newest['state']}",
            f"corral-gateway doctor; corral-gateway tasks {newest['task_id']}",
        )
    return None


def _after_task(found: Found) -> Gap | None:
    task = _newest_task(found)
    if task is None:
        return None  # another agent's: what it does is for its own host to say
    if _rests(task):
        return None
    ask = f"corral-gateway tasks {task['task_id']}"
    if untaken(task):
        return (
            "the agent's inbox does not have it yet: nothing was executed",
            f"{ask}; corral-gateway doctor",
        )
    silent = _silent(found, COWBOY, task["agent"])
    if silent is not None:
        return silent
    if any(one["kind"] == "message" for one in task["deliveries"]):
        return (
            "the agent's inbox may have it: that is not recorded, and no turn of it is known",
            f"{ask}; corral-gateway doctor",
        )
    return (
        "the agent's inbox got it, and its ledger does not know it",
        f"cowboy doctor {task['agent']}",
    )


def untaken(task: Data) -> bool:
    """Whether its newest message is certainly not in the agent's inbox."""
    return any(one["kind"] == "message" and not one["taken"] for one in task["deliveries"])


def _after_entry(found: Found) -> Gap | None:
    if not found.turns:  # a wake alone
        return _silent(found, COWBOY) or ("its turn is not in the ledger", "cowboy doctor")
    entry, case = max(found.turns.items())
    turn, agent = case["turn"], case["agent"]
    if turn is not None and turn["state"] in OVER_TURNS:
        return None
    ask = f"cowboy explain {agent} {entry}"
    if turn is None:
        return _silent(found, COWBOY, agent) or ("no turn yet", case.get("do") or ask)
    woken = ".".join(turn["turn_id"].split(".")[:2]) in found.wakers
    if turn["state"] == "dispatched" and woken:
        return _after_wake(found, turn, agent)
    return f"its turn is {turn['state']}", case.get("do") or ask


def _after_wake(found: Found, turn: Data, agent: str) -> Gap:
    """Of a turn that a live session answers."""
    wakes = [w for w in found.wakes.values() if w.get("correlation_id") == turn["turn_id"]]
    if not wakes:
        waits = "its session was not woken: TAMQ has no message of it"
        return _silent(found, TAMQ) or (waits, f"cowboy doctor {agent}; tamq doctor")
    newest = max(wakes, key=lambda one: str(one["admitted_at"]))
    if newest["state"] == "pending":
        why = newest.get("waiting_reason") or "it is its turn"
        return f"the session was not shown it yet: {why}", f"tamq message {newest['message_id']}"
    ask = f"cowboy explain {agent} {turn['turn_id']}"
    return f"the session has it ({newest['state']}), and has not answered", ask


def _silent(found: Found, service: str, agent: str = "") -> Gap | None:
    """A service that had to be asked and did not answer, or is not here."""
    why = found.troubles.get(whose(agent) if agent else service)
    if why is not None:
        return f"{service} could not be asked: {why}", "corral doctor"
    if service not in found.here:
        return f"{service} is not known here", f"run this where {service} is, or set its settings"
    return None


def _newest_task(found: Found) -> Data | None:
    return max(found.tasks.values(), key=lambda one: int(one["created_at_ms"]), default=None)


def _rests(task: Data) -> bool:
    return task["state"] in ENDED_TASKS or task["state"] == "input-required"
