"""As `test_stateful`, for a source whose turns a live session answers."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from corral.cowboy.domain import Outcome, State
from tests.unit.cowboy.test_stateful import STEPS, TIMEOUT_S, SourceMachine, picks, ticks


class WakesMachine(SourceMachine):
    """The session answers by way of the daemon, or ends."""

    runner_kind = "tamq"

    def _woken(self) -> list[bytes]:
        """Entries whose turn is with a session, as far as the daemon knows."""
        busy = self.world.driver.machine.book.busy.values()
        woken = {turn for turn, _ in self.world.runner.woken}
        return [turn.entry for turn in busy if turn.state is State.DISPATCHED and turn.id in woken]

    @precondition(lambda self: self.world.driver.verified and self._woken())
    @rule(
        pick=picks, outcome=st.sampled_from(["completed", "input_required", "failed"]), tick=ticks
    )
    def answer(self, pick: int, outcome: str, tick: bool) -> None:
        entry = self._woken()[pick % len(self._woken())]
        machine = self.world.driver.machine
        incarnation = self.world.driver.intake.incarnation

        def answered() -> None:
            turn = machine.book.by_entry.get((incarnation, entry))
            if turn is not None and turn.state is State.DISPATCHED:
                machine.answered(turn, Outcome(outcome), b"said", "reply 00")

        self.world.post(answered)
        self._perhaps(tick)

    @precondition(lambda self: self.world.runner.running)
    @rule(pick=picks, tick=ticks)
    def session_ends(self, pick: int, tick: bool) -> None:
        runner = self.world.runner
        turn = runner.running[pick % len(runner.running)]
        runner.end(turn, "killed" if runner.runs[turn].ending else "session_ended")
        self.world.hear()
        self._perhaps(tick)


WakesMachine.TestCase.settings = settings(stateful_step_count=STEPS)
TestWakes = pytest.mark.timeout(TIMEOUT_S)(WakesMachine.TestCase)
