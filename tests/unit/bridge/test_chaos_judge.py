"""The reckoning of `./corral chaos bridge` finds what is wrong: each rule, broken once."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from corral.bridge.domain import ENDS, Reason
from corral.bridge.ports import Submission
from tests.contract.bridge.kit import ALICE, mention
from tests.harness import chaos_bridge
from tests.harness.bridge_judge import violations
from tests.harness.bridge_trial import Result, Trial
from tests.harness.bridge_world import World

TEXTS = ("reply zero", "task 0 one", "ask two", "fail")


def row(number: int, reason: Reason) -> dict[str, Any]:
    return {
        "event_id": f"$m{number}", "room_id": "!room", "seq": number + 1, "reason": reason.value,
        "state": ENDS[reason].value, "a2a_message_id": f"message-{number}", "prompt": None,
        "result": None, "artifacts": None,
    }  # fmt: skip


@dataclass
class Ended:
    """Four mentions in one room, each with its end."""

    world: World = field(default_factory=World)
    rows: list[dict[str, Any]] = field(default_factory=list)
    controls: list[dict[str, Any]] = field(default_factory=list)
    cancelled: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        reasons = (Reason.ANSWERED, Reason.ANSWERED, Reason.ANSWERED, Reason.TASK_FAILED)
        self.rows = [row(number, reason) for number, reason in enumerate(reasons)]
        self.controls = [{"kind": "question", "state": "applied", "payload": None}]
        for number, text in enumerate(("zero", "one", "PLACEHOLDER", "FAILED fail")):
            self.post(text, f"$m{number}")
        self.post("QUESTION two", "$ours2")
        self.post("two: blue", "$m2", edits="$ours2")
        for number in range(4):
            asked = Submission("scout", f"message-{number}", None, None, "text", ALICE)
            self.world.agent.sends.append(asked)
            self.world.agent.begun.append(asked)

    def post(self, text: str, reply_to: str, **more: str) -> None:
        content = {"body": text, "our_id": "x", "reply_to": reply_to, "thread": None, **more}
        txn = f"txn{len(self.world.rooms.events)}"
        asyncio.run(self.world.rooms.send("scout", "!room", txn, "m.room.message", content))

    def judged(self) -> list[str]:
        mentions = [mention(f"m{n}", text=text, room="!room") for n, text in enumerate(TEXTS)]
        return violations(mentions, self.cancelled, self.world, self.rows, self.controls)


def changed(number: int, **values: Any) -> Callable[[Ended], object]:
    return lambda ended: ended.rows[number].update(values)


def again(calls: str) -> Callable[[Ended], object]:
    return lambda ended: getattr(ended.world.agent, calls).append(ended.world.agent.begun[-1])


def swapped(ended: Ended) -> None:
    begun = ended.world.agent.begun
    begun[0], begun[1] = begun[1], begun[0]


BROKEN: tuple[tuple[str, Callable[[Ended], object]], ...] = (
    ("jobs and mentions differ", lambda ended: ended.rows.pop()),
    ("$m0 (reply zero) ended task_lost", changed(0, reason="task_lost", state="ambiguous")),
    ("$m0 is dead for answered", changed(0, state="dead")),
    ("$m1: content is left", changed(1, result="one")),
    (
        "control question is prepared, payload None",
        lambda e: e.controls[0].update(state="prepared"),
    ),
    ("message- left 2 times", again("sends")),
    ("message- begun 2 times", again("begun")),
    ("task-1 was cancelled 2 times", lambda e: e.world.agent.cancels.extend(["task-1"] * 2)),
    ("order in !room: 1 after 2", swapped),
    ("$m0 was told 2 times", lambda e: e.post("zero", "$m0")),
    ("$m0 got 'other', not 'zero'", lambda e: e.post("other", "$m0", edits="$ours0")),
    ("$m9 was told, and nobody asked", lambda e: e.post("nine", "$m9")),
    ("$m2 has a placeholder still", lambda e: e.post("PLACEHOLDER", "$m2", edits="$ours2")),
    ("2 events for 1 controls: QUESTION", lambda e: e.post("QUESTION two", "$ours2")),
    ("!room has a pin still", lambda e: e.world.rooms.pinned.update({"!room": ("$ours2",)})),
)


def test_what_ended_as_it_should_breaks_no_rule() -> None:
    assert Ended().judged() == []


@pytest.mark.parametrize(("sign", "breaks"), BROKEN, ids=[sign for sign, _ in BROKEN])
def test_a_broken_rule_is_found(sign: str, breaks: Callable[[Ended], object]) -> None:
    ended = Ended()
    breaks(ended)
    assert sign in ended.judged()


def test_a_call_that_a_kill_interrupted_is_uncertain_and_told() -> None:
    ended = Ended()
    ended.rows[0] |= {"reason": "call_uncertain", "state": "ambiguous"}
    assert ended.judged() == []


def test_who_is_cancelled_may_have_been_done_before() -> None:
    ended = Ended()
    ended.rows[1] |= {"reason": "task_canceled", "state": "denied"}
    assert ended.judged() == ["$m1 (task 0 one) ended task_canceled"]
    ended.cancelled = frozenset({"$m1"})
    assert ended.judged() == []


def test_kills_of_an_idle_bridge_prove_nothing() -> None:
    total = chaos_bridge.Total(2, ("bridge.claim.woken",))
    total.add(Result(Trial(1), kills=4, kills_in_flight=2))
    assert total.ok
    total.add(Result(Trial(2), kills=4, kills_in_flight=1))
    assert total.in_flight_share == pytest.approx(3 / 8)
    assert not total.ok


def test_a_failed_seed_is_repeated_with_its_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    total = chaos_bridge.Total(1, ())
    total.add(Result(Trial(5, jobs=9), ["broken"], kills=1, kills_in_flight=1))
    assert (total.ok, total.failed) == (False, [5])
    assert "./corral chaos bridge --seeds 1 --seed 5 --jobs 9;" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["--seeds", "0"], [], ["--seeds", "1", "--at-once", "0"]])
def test_wrong_options_are_refused(wrong: list[str]) -> None:
    assert chaos_bridge.main(wrong) == 64
