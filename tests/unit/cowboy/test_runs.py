"""Runs: hand-over, start, results, what never went, interruption by each policy, poison."""

import pytest

from corral.cowboy.domain import NOTICES, Outcome, Slot, State
from corral.cowboy.machine import NO_ROOM_RETRY_MS
from corral.cowboy.runner.domain import RunOutcome, RunPhase, RunResult
from tests.unit.cowboy import stages
from tests.unit.cowboy.world import World

OLD = 7  # an attempt that no turn here has


def die(world: World) -> None:
    """The runner is killed and another one connects."""
    world.lose_runner(dead=True)
    world.connect_runner()
    world.tick()
    world.talk()


# ---------------------------------------------------------------- the way of one turn


def test_the_start_is_committed_before_go() -> None:
    world = World()
    entry = stages.dispatched(world)
    turn = world.turn(entry)
    assert (turn.attempt, turn.starts, turn.started_at_ms) == (1, 0, None)
    assert world.runner.runs[turn.id].phase is RunPhase.PREPARED
    world.later(40)
    world.hear()
    world.driver.commit()
    turn = world.turn(entry)
    assert (turn.starts, turn.started_at_ms) == (1, world.clock.wall_ms())
    assert world.runner.runs[turn.id].phase is RunPhase.PREPARED, "go follows the commit"


def test_a_lost_start_is_not_said_go() -> None:
    world = World()
    entry = stages.dispatched(world)
    world.hear()
    world.tick(fail=True)
    assert world.turn(entry).starts == 0
    assert world.runner.went[world.turn(entry).id] == 0
    world.finish()
    assert world.runner.went[world.turn(entry).id] == 1


def test_killed_between_start_and_go() -> None:
    world = World()
    entry = stages.dispatched(world)
    world.hear()
    world.tick(die=True)
    assert world.turn(entry).starts == 1
    world.attach()
    world.connect_runner()
    world.tick()
    world.talk()
    turn = world.turn(entry)
    assert (turn.starts, world.runner.went[turn.id]) == (1, 1), "the same run, which still waits"
    world.finish()


# The others are no outcome of a turn.
OWN_ENDS = [o for o in RunOutcome if o not in {RunOutcome.KILLED, RunOutcome.SESSION_ENDED}]


@pytest.mark.parametrize("outcome", OWN_ENDS)
def test_every_outcome_of_a_run(outcome: RunOutcome) -> None:
    world = World()
    entry = stages.running(world)
    world.runner.end(world.turn(entry).id, outcome, b"words", "exit status 3")
    world.talk()
    turn = world.turn(entry)
    assert (turn.state, turn.intent) == (State.REPLYING, State.DONE)
    assert turn.outcome is Outcome(outcome.value)
    replies = outcome in {"completed", "input_required", "failed"}
    assert turn.slot is (Slot.REPLY if replies else Slot.NOTICE)
    world.finish()
    words = "words" if replies else f"{NOTICES[Outcome(outcome.value)]} (exit status 3)"
    assert world.answers(entry) == [(outcome.value, words)]


def test_a_detail_has_a_bound() -> None:
    world = World()
    entry = stages.running(world)
    world.runner.end(world.turn(entry).id, "exit_nonzero", b"", "x" * 201)
    world.talk()
    assert world.turn(entry).detail == "x" * 200
    world.finish()


def test_an_answer_may_be_empty_and_binary() -> None:
    world = World()
    entry = stages.running(world)
    world.end_run(entry, reply=b"")
    world.finish()
    assert world.answers(entry) == [(Outcome.COMPLETED, "")]
    other = stages.other(world)
    world.talk()
    world.end_run(other, reply=b"\0\xff")
    world.finish()
    assert world.redis.outbox[-1].fields["content"] == b"\0\xff"


def test_a_result_is_forgotten_after_its_commit_only() -> None:
    world = World()
    entry = stages.running(world)
    turn_id = world.turn(entry).id
    world.runner.end(turn_id, "completed", b"done")
    world.hear()
    world.tick(fail=True)
    assert turn_id in world.runner.runs, "the only copy of the answer"
    world.attach()
    world.talk()
    assert turn_id not in world.runner.runs
    world.finish()
    assert world.answers(entry) == [(Outcome.COMPLETED, "done")]


def test_the_runner_refuses_a_turn() -> None:
    world = World()
    world.runner.refusing = "no_such_program"
    entry = world.deliver()
    world.talk()
    assert world.turn(entry).outcome is Outcome.START_FAILED
    world.finish()
    told = f"{NOTICES[Outcome.START_FAILED]} (no_such_program)"
    assert world.answers(entry) == [(Outcome.START_FAILED, told)]


NO_ROOM = ["runs_max", "results_held_max", "system_refused: EAGAIN", "other_attempt_not_over"]


@pytest.mark.parametrize("reason", NO_ROOM)
@pytest.mark.parametrize("between", ["nothing", "crash", "reconnection"])
def test_a_runner_without_room_is_asked_again(reason: str, between: str) -> None:
    world = World()
    world.runner.refusing = reason
    entry = world.deliver()
    world.talk()
    assert (world.state(entry), world.turn(entry).starts) == (State.DISPATCHED, 0)
    world.runner.refusing = ""
    if between == "crash":
        world.restart()
    elif between == "reconnection":
        world.lose_runner()
        world.connect_runner()
    else:
        assert world.driver.machine.book.next_due_ms() == world.clock.wall_ms() + NO_ROOM_RETRY_MS
        world.later(NO_ROOM_RETRY_MS - 1)
        world.tick()
        assert not world.runner.events
        world.later(1)
    world.tick()
    world.talk()
    assert world.turn(entry).starts == 1
    assert world.turn(entry).attempt == 1
    world.finish()
    assert world.outcomes(entry) == [Outcome.COMPLETED]
    assert world.runner.went[world.turn(entry).id] == 1


def test_what_was_cancelled_is_not_asked_for_again() -> None:
    world = World()
    world.runner.refusing = "runs_max"
    entry = world.deliver(message_id=b"m")
    world.cancel(b"m")
    world.talk()
    world.later(NO_ROOM_RETRY_MS)
    world.tick()
    world.talk()
    assert world.turn(entry).outcome is Outcome.CANCELLED
    world.finish()


def test_cancelled_between_two_times_of_asking() -> None:
    world = World()
    world.runner.refusing = "runs_max"
    entry = world.deliver(message_id=b"m")
    world.talk()
    world.cancel(b"m")
    world.runner.refusing = ""
    world.finish()
    assert world.turn(entry).outcome is Outcome.CANCELLED
    assert world.runner.went[world.turn(entry).id] == 0


def test_a_result_whose_forget_was_lost_with_the_daemon_is_forgotten_later() -> None:
    world = World()
    entry = stages.running(world)
    turn_id = world.turn(entry).id
    world.runner.end(turn_id, "completed", b"done")
    world.hear()
    world.tick(die=True)
    assert turn_id in world.runner.runs
    world.attach()
    world.connect_runner()
    world.tick()
    assert turn_id not in world.runner.runs
    world.finish()


def test_events_of_another_attempt_change_nothing() -> None:
    world = World()
    entry = stages.running(world)
    before = world.turn(entry)
    machine = world.driver.machine
    result = RunResult("completed", b"stale", "", went=True)
    world.post(lambda: machine.refused(before.id, OLD, "stale"))
    for phase in RunPhase:
        held = result if phase is RunPhase.FINISHED else None
        world.post(lambda phase=phase, held=held: machine.run_state(before.id, OLD, phase, held))  # type: ignore[misc]
    world.tick()
    assert world.turn(entry).generation == before.generation
    world.finish()
    assert world.answers(entry) == [(Outcome.COMPLETED, "done")]


def test_a_prepared_run_that_nobody_waits_for_is_killed() -> None:
    world = World()
    machine = world.driver.machine
    world.post(lambda: machine.prepared("scout.a2a.1.99-0", 1))
    world.driver.commit()
    assert machine.book.orders.kill == [("scout.a2a.1.99-0", 1)]
    assert machine.book.orders.go == []


# ---------------------------------------------------------------- never went


def test_a_run_that_never_went_is_handed_over_again() -> None:
    world = World()
    entry = stages.dispatched(world)
    turn_id = world.turn(entry).id
    die(world)
    turn = world.turn(entry)
    assert (turn.state, turn.attempt, turn.starts) == (State.DISPATCHED, 2, 1)
    assert world.runner.went[turn_id] == 1
    assert not world.runner.runs[turn_id].resumed, "nothing was begun that could be resumed"
    world.finish()
    assert world.outcomes(entry) == [Outcome.COMPLETED]


def test_a_committed_start_that_never_went_does_not_count() -> None:
    world = World(on_interrupt="resume", dispatch_attempts_max=1)
    entry = stages.dispatched(world)
    world.hear()
    world.driver.commit()  # and the runner dies before go
    world.crash()
    world.attach()
    world.lose_runner(dead=True)
    world.connect_runner()
    world.tick()
    world.talk()
    turn = world.turn(entry)
    assert (turn.state, turn.attempt, turn.starts) == (State.DISPATCHED, 2, 1)
    world.finish()
    assert world.outcomes(entry) == [Outcome.COMPLETED]


def test_unknown_before_the_start_is_certainly_not_run() -> None:
    world = World()
    world.lose_runner()
    world.tick()
    world.connect_runner()
    entry = world.add()
    world.read()
    world.tick()
    world.runner.runs.clear()  # the prepare never arrived
    world.lose_runner()
    world.connect_runner()
    world.tick()
    world.talk()
    turn = world.turn(entry)
    assert (turn.attempt, turn.starts, world.runner.went[turn.id]) == (1, 1, 1)
    world.finish()


def test_a_kill_that_nobody_asked_for_before_go() -> None:
    world = World()
    entry = stages.dispatched(world)
    turn = world.turn(entry)
    world.runner.events.clear()
    world.runner.kill(turn.id, 1)
    world.talk()
    assert world.turn(entry).attempt == 2
    world.finish()
    assert world.outcomes(entry) == [Outcome.COMPLETED]


# ---------------------------------------------------------------- interruption


def test_notify_tells_the_sender_and_starts_nothing_again() -> None:
    world = World(on_interrupt="notify")
    entry = stages.interrupted(world)
    turn = world.turn(entry)
    assert (turn.state, turn.intent, turn.outcome) == (
        State.REPLYING,
        State.DONE,
        Outcome.INTERRUPTED,
    )
    world.finish()
    assert world.answers(entry) == [(Outcome.INTERRUPTED, NOTICES[Outcome.INTERRUPTED])]
    assert world.runner.went[turn.id] == 1


def test_a_killed_run_that_nobody_cancelled_is_interrupted() -> None:
    world = World()
    entry = stages.running(world)
    world.end_run(entry, "killed", b"")
    assert world.turn(entry).outcome is Outcome.INTERRUPTED
    world.finish()


def test_resume_runs_it_again_with_the_same_binding() -> None:
    world = World(on_interrupt="resume")
    entry = world.deliver(channel=b"red", sender=b"ann", message_id=b"m")
    world.talk()
    die(world)
    turn = world.turn(entry)
    assert (turn.state, turn.attempt, turn.starts) == (State.DISPATCHED, 2, 2)
    assert world.runner.runs[turn.id].resumed
    world.finish()
    (answer,) = (added for added in world.redis.outbox if added.turn_id == turn.id)
    assert (answer["outcome"], answer["sender"], answer["channel"]) == ("completed", "ann", "red")


@pytest.mark.parametrize("most", [1, 3])
def test_resume_gives_up_at_its_limit(most: int) -> None:
    world = World(on_interrupt="resume", dispatch_attempts_max=most)
    entry = world.deliver(b"poison", message_id=b"m")
    world.talk()
    for starts in range(1, most):
        assert (world.state(entry), world.turn(entry).starts) == (State.DISPATCHED, starts)
        die(world)
    assert world.runner.went[world.turn(entry).id] == most
    assert world.state(entry) is State.DISPATCHED
    die(world)
    turn = world.turn(entry)
    assert (turn.state, turn.intent, turn.starts) == (State.REPLYING, State.DEAD, most)
    world.finish()
    assert world.state(entry) is State.DEAD
    assert world.outcomes(entry) == [Outcome.POISONED]
    (letter,) = world.redis.dead
    assert (letter["content"], letter["message_id"]) == ("poison", "m")
    assert "reply" not in letter.fields
    assert len(world.notes("poisoned")) == 1
    assert world.runner.went[turn.id] == most


def test_crashes_of_the_daemon_spend_no_start() -> None:
    world = World(on_interrupt="resume", dispatch_attempts_max=1)
    entry = stages.running(world)
    for _ in range(5):
        world.restart()
        world.talk()
    assert world.turn(entry).starts == 1
    world.finish()
    assert world.outcomes(entry) == [Outcome.COMPLETED]


def test_hold_tells_the_sender_and_lets_the_channel_go_on() -> None:
    world = World(on_interrupt="hold")
    entry = stages.running(world)
    behind = stages.other(world)
    assert world.state(behind) is State.RECEIVED
    die(world)
    assert world.turn(entry).intent is State.HELD
    assert world.state(behind) is State.DISPATCHED
    world.settle_all()
    assert world.state(entry) is State.HELD
    assert world.answers(entry) == [(Outcome.HELD, NOTICES[Outcome.HELD])]
    assert world.turn(entry).content == b"do it", "it may be needed again"
    world.finish()
