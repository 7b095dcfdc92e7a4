"""What must be true of a message on its way through all: while one is down, and in the end."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from corral.bridge.domain import TERMINAL, State
from corral.gateway.domain import ENDED
from corral.local import wait
from corral.local.front import SOURCE
from corral.local.rules import TERMINAL as OVER_TURNS
from tests.harness.chain_cases import Talk
from tests.harness.chain_stack import AGENT, PATIENCE_S, ChainStack

NOT_RUN: Final = "nothing was executed"
ANSWER, NOTICE = frozenset({"answer"}), frozenset({"notice"})
WHOLE: Final = (
    "event",
    "transaction",
    "job",
    "message",
    "task",
    "entry",
    "turn",
    "answer",
    "reply",
)


@dataclass(frozen=True)
class Stands:
    """Where the trace says that the message is: behind which hop, and in which words.

    `ends`: what follows needs nobody who is down, so the room gets its end first.
    """

    last: str
    words: str | None
    ends: bool = False


QUEUED = Stands("job", NOT_RUN)
TAKEN = Stands("answer", "the bridge has not recorded what became of the task")
DECIDED = Stands("answer", "the room may have it")
ASKED = Stands("answer", "whoever asked was asked for more, and no answer is recorded")
SHOWN = Stands("reply", "its job has not ended")
COMPLETE = Stands("reply", None, ends=True)
UNASKED = Stands("task", "cowboy could not be asked")
DISPATCHED = Stands("turn", "its turn is dispatched")
UNTOLD = Stands("answer", "the gateway has not made its task's end of the answer")


async def quiet(talk: Talk) -> None:
    """Waits until nothing of the message is open anywhere."""
    chain = talk.chain

    async def rests() -> bool:
        (job,) = await chain.jobs(talk.asked)
        waiting = chain.tasks("SELECT count(*) FROM deliveries")[0][0]
        outbox = f"{AGENT}:{SOURCE}:outbox"
        pending = await chain.deployment.ask("XPENDING", outbox, "source")
        return job["terminal_at"] is not None and not waiting and not pending["pending"]

    await wait.until_async(rests, PATIENCE_S, "bridge and gateway to have done everything")
    assert await chain.deployment.until_quiet(PATIENCE_S, awaiting=False)


async def judge(talk: Talk, began: int, ends: frozenset[str]) -> None:
    """One visible end; at most one start of each turn; every ledger terminal. AssertionError."""
    told, case = talk.told(), talk.case
    assert ("answer" if case.answered(told) else "notice") in ends, told
    assert len(told) == case.parts(told), told
    ids = [event["content"]["corral.id"] for event in talk.events()]
    assert len(set(ids)) == len(ids)
    starts = Counter(talk.chain.starts()[began:])
    assert len(starts) <= case.entries, starts
    assert not starts or max(starts.values()) == 1, starts
    await judge_ledgers(talk)


async def judge_ledgers(talk: Talk) -> None:
    (job,) = await talk.chain.jobs(talk.asked)
    assert State(job["state"]) in TERMINAL, job["state"]
    assert job["prompt"] is job["result"] is None
    for task_id, state in tasks_of(talk.chain, job):
        assert state in {one.value for one in ENDED}, state
        for turn_state, ack in turns_of(talk.chain, task_id):
            assert turn_state in OVER_TURNS, turn_state
            assert ack == "acked", ack


def tasks_of(chain: ChainStack, job: Any) -> list[tuple[Any, ...]]:
    query = (
        "SELECT DISTINCT t.task_id, t.state FROM tasks t JOIN messages m ON m.task = t.id "
        "WHERE m.message_id = ?"
    )
    return chain.tasks(query, job["a2a_message_id"])


def turns_of(chain: ChainStack, task_id: str) -> list[tuple[Any, ...]]:
    return chain.turns("SELECT state, ack FROM turns WHERE thread = ?", task_id.encode())


def starts_of(chain: ChainStack, task_id: str) -> int:
    """How many starts are committed."""
    query = "SELECT coalesce(sum(starts), 0) FROM turns WHERE thread = ?"
    return int(chain.turns(query, task_id.encode())[0][0])


async def tasks_rest(chain: ChainStack) -> None:
    """Waits until the agent has done what the gateway has of it."""
    open_ = "SELECT count(*) FROM tasks WHERE state IN ('submitted', 'working')"
    await wait.until_true(
        lambda: chain.tasks(open_)[0][0] == 0, PATIENCE_S, "the gateway's tasks to rest"
    )


async def job_ends(talk: Talk) -> None:
    """Waits until the bridge's ledger says so."""

    async def ended() -> bool:
        (job,) = await talk.chain.jobs(talk.asked)
        return job["terminal_at"] is not None

    await wait.until_async(ended, PATIENCE_S, "the job to end")


async def judge_the_trace(
    talk: Talk, stands: Stands | None, told: dict[str, Any], began: int
) -> None:
    """It says where the message is, by what is known, and claims nothing that is not so."""
    chain, said = talk.chain, " ".join([str(told["gap"]), *told["certain"]])
    (job,) = await chain.jobs(talk.asked)
    if stands is not None:
        assert told["hops"][-1]["kind"] == stands.last, told
        assert told["complete"] is (stands.words is None), told
        assert (stands.words or "") in (told["gap"] or ""), told
    assert told["complete"] is (told["gap"] is None)
    assert told["complete"] or told["next"]
    if told["complete"]:
        assert job["terminal_at"] is not None
        assert talk.told()
    if NOT_RUN in said:
        assert not chain.starts()[began:], told
    committed = sum(starts_of(chain, task_id) for task_id, _ in tasks_of(chain, job))
    assert told["starts"] in {None, committed}, told
    called = [hop["state"] for hop in told["hops"] if hop["kind"] == "message"]
    if "sent" in called:
        assert tasks_of(chain, job), told


async def judge_the_whole(talk: Talk, kinds: tuple[str, ...]) -> dict[str, Any]:
    """In the end the trace has every hop, and nothing is left to do."""
    whole = await talk.chain.trace(talk.asked)
    assert (whole["complete"], whole["gap"], whole["next"]) == (True, None, None), whole
    assert tuple(dict.fromkeys(hop["kind"] for hop in whole["hops"])) == kinds
    return whole
