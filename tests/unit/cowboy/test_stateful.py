"""Anything that may happen to a source, in any order, against a model of Redis and of a runner.

`checks` looks at the ledger after every commit and at the memory after every tick; in the end
everything is driven to rest, and every message must have its one answer or be held.
"""

import sys
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from corral.cowboy.domain import State, unpack_id
from corral.cowboy.redisconn import Full, NotNow, RedisFault, Refused
from tests.unit.cowboy.model_redis import NO_FAULTS, Faults
from tests.unit.cowboy.samples import CONTENT_MAX_BYTES
from tests.unit.cowboy.world import World

STEPS = 40
TIMEOUT_S = 500

REFUSED = Refused("NOPERM")
FULL = Full("OOM")
FAULTS = {
    "outbox refused": Faults(outbox=REFUSED),
    "outbox full": Faults(outbox=FULL),
    "dead letters refused": Faults(dead=REFUSED),
    "both refused": Faults(outbox=REFUSED, dead=REFUSED),
    "dead letters full": Faults(dead=FULL),
    "own XACK refused": Faults(own_ack=REFUSED),
    "XACK refused": Faults(own_ack=REFUSED, ack=REFUSED),
    "XACK not now": Faults(own_ack=NotNow("BUSY"), ack=NotNow("BUSY")),
}
WHOLE_FAULTS: dict[str, RedisFault] = {"refused": REFUSED, "not now": NotNow("LOADING")}
WORDS: dict[str, Callable[[int], dict[str, bytes | None]]] = {
    "plain": lambda _: {},
    "with id": lambda n: {"message_id": b"m%d" % (n % 3), "content": b"words"},
    "conflict": lambda n: {"message_id": b"m%d" % (n % 3), "content": b"words %d" % n},
    "empty": lambda _: {"content": b" "},
    "large": lambda _: {"content": b"x" * (CONTENT_MAX_BYTES + 1)},
    "bad": lambda _: {"sender": b"\xff"},
    "odd": lambda _: {"kind": b"odd"},
}
OUTCOMES = ("completed", "input_required", "failed", "exit_nonzero", "timeout", "output_invalid")

picks = st.integers(0, 99)
far = st.sampled_from([1, 1, 1, 0, 2, 3, 4])
channels = st.sampled_from([b"red", b"blue", None])
ticks = st.sampled_from([True, True, True, False])  # whether the event has a tick of its own


def _when(condition: Callable[["SourceMachine"], object]) -> Callable[..., Callable[..., object]]:
    return precondition(lambda self: bool(condition(self)))


class SourceMachine(RuleBasedStateMachine):
    """Rules are what producers, Redis, the runner, the operator and the power supply may do."""

    world: World
    runner_kind = "exec"

    @initialize(
        ack=st.sampled_from(["dispatch", "reply"]),
        on_interrupt=st.sampled_from(["notify", "resume", "hold"]),
        turns_concurrent_max=st.integers(1, 3),
        channel_backlog_max=st.integers(1, 4),
        attempts_max=st.integers(1, 3),
    )
    def start(
        self, ack: str, on_interrupt: str, turns_concurrent_max: int,
        channel_backlog_max: int, attempts_max: int,
    ) -> None:  # fmt: skip
        self.world = World(
            runner=self.runner_kind,
            ack=ack,
            on_interrupt=on_interrupt,
            turns_concurrent_max=turns_concurrent_max,
            channel_backlog_max=channel_backlog_max,
            dispatch_attempts_max=attempts_max,
            ack_attempts_max=attempts_max,
            outbox_attempts_max=attempts_max,
        )

    def _perhaps(self, tick: bool) -> None:
        if tick:
            self.world.tick()

    # ------------------------------------------------------------ producers

    @rule(channel=channels, words=st.sampled_from(sorted(WORDS)), pick=picks)
    def add(self, channel: bytes | None, words: str, pick: int) -> None:
        fields: dict[str, bytes | None] = {"content": b"do it", "channel": channel}
        self.world.add(**(fields | WORDS[words](pick)))

    @rule(channel=channels, count=st.integers(1, 4), far=far)
    def send(self, channel: bytes | None, count: int, far: int) -> None:
        """Messages, and how far everything that is under way gets."""
        for number in range(count):
            self.world.add(channel=channel, message_id=b"m%d" % number if far % 2 else None)
        self._work(far)

    @rule(
        pick=picks,
        by=st.sampled_from(["entry", "turn", "message", "nothing"]),
        message_id=st.sampled_from([None, b"m0"]),
        tick=ticks,
    )
    def cancel(self, pick: int, by: str, message_id: bytes | None, tick: bool) -> None:
        """Mostly of a turn that is open."""
        world = self.world
        rows = [turn for turn in world.checks.rows.values() if pick % 5 == 0 or not turn.closed]
        if not rows or by == "nothing":
            name = b"%d-0" % (len(world.redis.log) + 1)  # itself
        else:
            target = rows[pick % len(rows)]
            names = {
                "entry": unpack_id(target.entry),
                "turn": target.id.encode(),
                "message": target.message_id or b"nothing",
            }
            name = names[by]
        world.add(None, kind=b"cancel", cancels=name, message_id=message_id)
        if world.attached:
            world.read()
            self._perhaps(tick)

    @_when(lambda self: self.world.redis.entries)
    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        entries = sorted(self.world.redis.entries)
        self.world.redis.delete(entries[-1 - pick % len(entries)])

    # ------------------------------------------------------------ Redis

    @_when(lambda self: self.world.attached and self.world.redis.unread)
    @rule(count=st.integers(1, 5), tick=ticks)
    def read(self, count: int, tick: bool) -> None:
        self.world.read(count)
        self._perhaps(tick)

    @_when(lambda self: self.world.attached and self.world.redis.unread)
    @rule(count=st.integers(1, 5))
    def read_and_lose(self, count: int) -> None:
        """The group has moved on, and the answer never comes."""
        self.world.redis.read(count)
        self.world.detach()

    @_when(lambda self: self.world.attached and self.world.redis.pending)
    @rule(pick=picks, everything=st.booleans(), tick=ticks)
    def reclaim(self, pick: int, everything: bool, tick: bool) -> None:
        pending = sorted(self.world.redis.pending)
        self.world.reclaim(None if everything else [pending[pick % len(pending)]])
        self._perhaps(tick)

    @_when(lambda self: self.world.driver.out.packets)
    @rule(tick=ticks)
    def settle(self, tick: bool) -> None:
        self.world.settle(NO_FAULTS)
        self._perhaps(tick)

    @_when(lambda self: self.world.driver.out.packets)
    @rule(name=st.sampled_from(sorted(FAULTS)), tick=ticks)
    def settle_in_part(self, name: str, tick: bool) -> None:
        self.world.settle(FAULTS[name])
        self._perhaps(tick)

    @_when(lambda self: self.world.driver.out.packets)
    @rule(name=st.sampled_from(sorted(WHOLE_FAULTS)), tick=ticks)
    def refuse(self, name: str, tick: bool) -> None:
        self.world.refuse(WHOLE_FAULTS[name])
        self._perhaps(tick)

    @_when(lambda self: self.world.driver.out.packets)
    @rule(packets=st.integers(1, 3))
    def lose_answer(self, packets: int) -> None:
        self.world.lose_answer(packets)

    @_when(lambda self: self.world.driver.out.fetches)
    @rule(tick=ticks)
    def fetch(self, tick: bool) -> None:
        self.world.fetch()
        self._perhaps(tick)

    @_when(lambda self: self.world.attached)
    @rule()
    def trim(self) -> None:
        self.world.trim()

    @_when(lambda self: self.world.attached)
    @rule()
    def detach(self) -> None:
        self.world.detach()

    @_when(lambda self: not self.world.attached)
    @rule(page=st.integers(1, 3), tick=ticks)
    def attach(self, page: int, tick: bool) -> None:
        self.world.attach(page=page)
        self._perhaps(tick)

    @_when(lambda self: not self.world.attached)
    @rule()
    def die_while_attaching(self) -> None:
        self.world.attach(die_before_claim=True)

    @_when(lambda self: self.world.redis.life < 3)
    @rule(pick=picks)
    def empty_redis(self, pick: int) -> None:
        if pick % 4 == 0:
            self.world.empty_redis()

    # ------------------------------------------------------------ the runner

    @_when(lambda self: self.world.runner.events)
    @rule(count=st.integers(1, 4), tick=ticks)
    def hear(self, count: int, tick: bool) -> None:
        self.world.hear(count)
        self._perhaps(tick)

    @_when(lambda self: self.world.runner.running)
    @rule(pick=picks, outcome=st.sampled_from(OUTCOMES), tick=ticks)
    def run_ends(self, pick: int, outcome: str, tick: bool) -> None:
        runner = self.world.runner
        turn = runner.running[pick % len(runner.running)]
        killed = runner.runs[turn].ending and pick % 3
        runner.end(turn, "killed" if killed else outcome, b"done")
        self.world.hear()
        self._perhaps(tick)

    @rule(reason=st.sampled_from(["", "", "no_such_program", "runs_max"]))
    def refusing(self, reason: str) -> None:
        self.world.runner.refusing = reason

    @rule(dead=st.booleans(), tick=ticks)
    def lose_runner(self, dead: bool, tick: bool) -> None:
        if self.world.runner.connected:
            self.world.lose_runner(dead=dead)
            self._perhaps(tick)
        elif dead:
            self.world.runner.die()

    @_when(lambda self: not self.world.runner.connected)
    @rule(tick=ticks)
    def connect_runner(self, tick: bool) -> None:
        self.world.connect_runner()
        self._perhaps(tick)

    # ------------------------------------------------------------ daemon and operator

    @rule(ms=st.sampled_from([0, 300, 5_000, 60_000]))
    def tick(self, ms: int) -> None:
        self.world.later(ms)
        self.world.tick()

    @rule()
    def commit_fails(self) -> None:
        self.world.tick(fail=True)

    @rule(committed=st.booleans(), runner_too=st.booleans())
    def crash(self, committed: bool, runner_too: bool) -> None:
        """The daemon is killed, right after the commit of what it has heard or before it."""
        self.world.hear(1)
        if committed:
            self.world.tick(die=True)
        else:
            self.world.crash()
        if runner_too:
            self.world.runner.die()

    @rule(far=far)
    def work(self, far: int) -> None:
        """All that is connected does what it has to: so that long stories get somewhere."""
        self._work(far)

    def _work(self, far: int) -> None:
        world = self.world
        if not world.attached:
            world.attach()
        if not world.runner.connected:
            world.connect_runner()
        world.read()
        world.tick()
        if far > 0:
            world.talk()
        if far > 1:
            for turn_id in world.runner.running[: far - 1]:
                ending = world.runner.runs[turn_id].ending
                world.runner.end(turn_id, "killed" if ending else "completed", b"done")
            world.talk()
        if far > 2:
            world.settle_all()

    @_when(lambda self: self.world.runner.running)
    @rule(settled=st.booleans())
    def interrupt(self, settled: bool) -> None:
        """The runner is killed with all that runs, and everything else goes on."""
        world = self.world
        world.runner.die()
        world.connect_runner()
        if not world.attached:
            world.attach()
        world.tick()
        world.talk()
        if settled:
            world.settle_all()

    @_when(lambda self: self._held())
    @rule(pick=picks, twice=st.booleans(), abandon=st.booleans(), tick=ticks)
    def operator(self, pick: int, twice: bool, abandon: bool, tick: bool) -> None:
        held = self._held()
        entry = held[pick % len(held)]
        for _ in range(1 + twice):
            if abandon:
                self.world.abandon(entry)
            else:
                self.world.release(entry)
        self._perhaps(tick)

    def _held(self) -> list[bytes]:
        incarnation = self.world.driver.intake.incarnation
        return [
            turn.entry
            for turn in self.world.checks.rows.values()
            if turn.state is State.HELD and turn.incarnation == incarnation
        ]

    # ------------------------------------------------------------ the end

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            if sys.exc_info()[0] is None:
                self._end()
        finally:
            self.world.close()

    def _end(self) -> None:
        self.world.finish()
        for number, entry in enumerate(self._held()):
            if number % 2:
                self.world.abandon(entry)
            else:
                self.world.release(entry)
        self.world.finish()


SourceMachine.TestCase.settings = settings(stateful_step_count=STEPS)
# Far above what it takes: a failure is made small before it is shown, and that takes minutes.
TestSource = pytest.mark.timeout(TIMEOUT_S)(SourceMachine.TestCase)
