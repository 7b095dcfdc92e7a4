"""Deliverer and store against the model of the contract's table, step by step."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import seed as begin_with
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from corral.core.clock import ManualClock
from corral.tamq import admission, domain, store
from corral.tamq.errors import TamqError
from corral.tamq.requests import MessageId, Retry
from corral.tamq.terminal.base import Injection, Outcome, Readiness, Ready
from tests.unit.tamq import queue as queues
from tests.unit.tamq.model import Model, Refused, Session
from tests.unit.tamq.queue import DONE, PEER, READY, Queue, anything, send

KEYS = st.sampled_from(["k1", "k2", "k3"])
BODIES = st.sampled_from(["one", "one", "one", "two"])
WAITS = st.sampled_from([1, 1_000, 4_999, 5_000, 15_000, 29_999, 30_000, 60_000, 300_000])
JUMPS = st.sampled_from([-86_400_000, -10_000, 10_000, 86_400_000])
RESULTS = {
    "injected": DONE,
    "enter_lost": Injection(Outcome.NOT_SUBMITTED, "enter_lost", typed=True),
    "copy_mode": Injection(Outcome.NOT_READY, "copy_mode"),
    "unseen": Injection(Outcome.UNKNOWN, "unseen", typed=True),
}


class Machine(RuleBasedStateMachine):
    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.queue = Queue(Path(self.folder.name) / "queue.db")
        self.run(self.queue.start())
        self.model = Model(self.queue.clock.wall_ms())
        self.ids: dict[str, MessageId] = {}
        self.endpoint_ids: dict[str, str] = {}

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.queue.stop())
        self.loop.close()
        self.folder.cleanup()

    @initialize(
        target=names, attempts=st.integers(1, 9), mode=st.sampled_from(["injected", "acknowledged"])
    )
    def first_session(self, attempts: int, mode: str) -> str:
        return self._register(attempts, mode)

    @precondition(lambda self: len(self.model.sessions) < 5)
    @rule(
        target=names, attempts=st.integers(1, 3), mode=st.sampled_from(["injected", "acknowledged"])
    )
    def another_session(self, attempts: int, mode: str) -> str:
        return self._register(attempts, mode)

    def _register(self, attempts: int, mode: str) -> str:
        name = f"s{len(self.model.sessions)}"
        policy = {"delivery_max_attempts": attempts, "delivery_ack_mode": mode}
        endpoint = self.run(self.queue.register(name, policy=policy))
        self.endpoint_ids[name] = endpoint.endpoint_id
        self.model.sessions[name] = Session(name, attempts, mode)
        return name

    @rule(key=KEYS, body=BODIES)
    def send_to_any(self, key: str, body: str) -> None:
        self._send(key, body, None)

    @rule(key=KEYS, body=BODIES, name=names)
    def send_to_one(self, key: str, body: str, name: str) -> None:
        self._send(key, body, name)

    def _send(self, key: str, body: str, name: str | None) -> None:
        endpoint_id = None if name is None else self.endpoint_ids[name]
        request = send(idempotency_key=key, body=body, endpoint_id=endpoint_id)
        queue, now_ms = self.queue, self.queue.clock.wall_ms()

        async def admit() -> admission.Admitted:
            done = await queue.writer.submit(
                lambda conn: admission.send(conn, request, PEER, queue.times, now_ms, anything)
            )
            queue.deliverer.note(done.message)
            return done

        found: Any
        try:
            done = self.run(admit())
            self.ids.setdefault(key, done.message.id)
            assert self.ids[key] == done.message.id
            found = (done.deduplicated, done.rebound)
        except TamqError as error:
            found = error.code
        try:
            expected: Any = self.model.send(key, body, name)
        except Refused as error:
            expected = str(error)
        assert found == expected

    @rule(body=BODIES, result=st.sampled_from(sorted(RESULTS)), waits=st.lists(WAITS, max_size=8))
    def send_and_wait(self, body: str, result: str, waits: list[int]) -> None:
        """The usual course, or one of failures: to whoever is there, and then time."""
        self._send_new(body, result)
        self._pass(waits)

    def _send_new(self, body: str, result: str) -> None:
        for name, session in self.model.sessions.items():
            if session.holds is None:
                self.queue.terminals[name].result = RESULTS[result]
                session.result = result
        live = [session.name for session in self.model.live()]
        for name in live[-2:]:  # with new keys: what is over teaches nothing more
            self._send(f"n{len(self.ids)}", body, name)

    @rule(waits=st.lists(WAITS, min_size=2, max_size=8))
    def much_time_passes(self, waits: list[int]) -> None:
        self._pass(waits)

    def _pass(self, waits: list[int]) -> None:
        for ms in waits:
            self._advance(ms)
            self.both_agree()

    @rule(
        result=st.sampled_from(sorted(RESULTS)), before=WAITS, jump=JUMPS, down=st.booleans(),
        waits=st.lists(WAITS, min_size=1, max_size=6),
    )  # fmt: skip
    def clock_jumps_while_deadlines_run(
        self, result: str, before: int, jump: int, down: bool, waits: list[int]
    ) -> None:
        """New messages, some time, a jump (perhaps while the service is down), and more time."""
        self._send_new("one", result)
        self._pass([before])
        if down:
            self._restart(jump)
        else:
            self._jump(jump)
        self._pass(waits)

    @rule(key=KEYS)
    def ack(self, key: str) -> None:
        if key in self.ids:
            self.run(self.queue.ack(self.ids[key]))
            self.model.ack(key)

    @rule(key=KEYS)
    def retry(self, key: str) -> None:
        if key not in self.ids:
            return
        request, now_ms = Retry(self.ids[key], "op", "why"), self.queue.clock.wall_ms()

        async def again() -> None:
            message = await self.queue.writer.submit(
                lambda conn: store.retry(conn, request, PEER, now_ms)
            )
            self.queue.deliverer.note(message)

        found = expected = None
        try:
            self.run(again())
        except TamqError as error:
            found = error.code
        try:
            self.model.retry(key)
        except Refused as error:
            expected = str(error)
        assert found == expected

    @rule(name=names)
    def session_ends(self, name: str) -> None:
        if self.model.sessions[name].live:
            self.run(self.queue.deliverer.endpoint_gone(self.endpoint_ids[name], "pane_dead"))
            self.model.gone(name)

    @rule(name=names, result=st.sampled_from(sorted(RESULTS)))
    def results_change(self, name: str, result: str) -> None:
        if self.model.sessions[name].holds is None:
            self.queue.terminals[name].result = RESULTS[result]
            self.model.sessions[name].result = result

    @rule(name=names)
    def writes_hang(self, name: str) -> None:
        self.queue.terminals[name].free.clear()
        self.model.sessions[name].holding = True

    @rule(name=names)
    def writes_go_on(self, name: str) -> None:
        self.queue.terminals[name].free.set()
        self.model.release(name)

    @rule(name=names)
    def person_types(self, name: str) -> None:
        self.queue.terminals[name].looks = Readiness(Ready.DRAFT, "draft")
        self.model.sessions[name].ready = False

    @rule(name=names)
    def person_is_done(self, name: str) -> None:
        """It is seen at the next look, a second later at most."""
        self.queue.terminals[name].looks = READY
        self.model.sessions[name].ready = True
        self._advance(1_000)

    @rule(ms=WAITS)
    def time_passes(self, ms: int) -> None:
        self._advance(ms)

    def _advance(self, ms: int) -> None:
        self.run(self.queue.advance(ms / 1000))
        self.model.advance(ms)

    @rule(ms=JUMPS)
    def clock_jumps(self, ms: int) -> None:
        self._jump(ms)

    def _jump(self, ms: int) -> None:
        self.run(self.queue.settle())
        clock = self.queue.clock
        clock.set_wall_ms(clock.wall_ms() + ms)
        self.model.jump(ms)

    @rule(jump=st.just(0) | JUMPS)
    def service_is_killed(self, jump: int) -> None:
        self._restart(jump)

    def _restart(self, jump: int) -> None:
        """It is started again by another clock, if that jumped meanwhile."""
        self.run(self.queue.settle())
        self.run(self.queue.stop())
        self.queue.clock.set_wall_ms(self.queue.clock.wall_ms() + jump)
        self.model.jump(jump)
        for terminal in self.queue.terminals.values():
            terminal.free.set()
        self.run(self.queue.start())
        self.model.restart()

    @invariant()
    def both_agree(self) -> None:
        self.run(self.queue.settle())
        for key, ident in self.ids.items():
            message, model = self.run(self.queue.get(ident)), self.model.entries[key]
            progress = message.progress
            found = (
                progress.state.value, progress.attempt_count, progress.serial,
                progress.last_failure_reason, progress.leased, message.endpoint_id,
            )  # fmt: skip
            assert found == (
                model.state, model.attempts, model.serial, model.reason,
                model.state == "pending" and model.kind == "lease",
                self.endpoint_ids[model.session.name],
            ), key  # fmt: skip
            writes = sum(
                wake.message_id == str(ident)
                for terminal in self.queue.terminals.values()
                for wake in terminal.wakes
            )
            assert writes == model.written, key


def test_deliverer_and_model_agree() -> None:
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )


# ---- planted faults: each must be seen -------------------------------------------------------


def _without_a_bound(at_ms: int, longest_ms: int, now_ms: int) -> int:
    del longest_ms
    return max(0, at_ms - now_ms)


def _from_the_beginning(at_ms: int, longest_ms: int, now_ms: int) -> int:
    del at_ms, now_ms
    return longest_ms


def _any_jump_is_over(at_ms: int, longest_ms: int, now_ms: int) -> int:
    return at_ms - now_ms if 0 <= at_ms - now_ms <= longest_ms else 0


class WallClock(ManualClock):
    """A clock that jumps, where one is needed that does not."""

    def mono_s(self) -> float:
        return self.wall_ms() / 1000


BEGINNINGS = 6  # some lead for hundreds of examples past what shows a fault

PLANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a clock that was set back delays": lambda patch: patch.setattr(
        domain, "left_ms", _without_a_bound
    ),
    "a restart begins every interval anew": lambda patch: patch.setattr(
        domain, "left_ms", _from_the_beginning
    ),
    "a jump back ends every interval": lambda patch: patch.setattr(
        domain, "left_ms", _any_jump_is_over
    ),
    "timers run by the clock that jumps": lambda patch: patch.setattr(
        queues, "ManualClock", WallClock
    ),
    "a pause is bounded by the longest one": lambda patch: patch.setattr(
        domain, "_pause_ms", lambda was, times: max(times.retry_delays_ms)
    ),
}


@pytest.mark.parametrize("plant", sorted(PLANTS))
def test_a_planted_fault_of_clocks_is_seen(
    plant: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    PLANTS[plant](monkeypatch)
    plainly = settings(
        max_examples=300, stateful_step_count=30, deadline=None, database=None,
        phases=[Phase.generate], report_multiple_bugs=False, print_blob=False,
    )  # fmt: skip
    for number in range(BEGINNINGS):
        try:
            run_state_machine_as_test(begin_with(seed + number)(Machine), settings=plainly)
        except AssertionError:
            return
    pytest.fail("nothing was seen")
