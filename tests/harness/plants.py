"""Planted bugs: each breaks one promise in the way that a plausible mistake would.

A planted bug is a patch of the running program, applied by the armed launcher (`--plant NAME`)
before the service starts. For each there is a trial that must catch it; a trial that does not is a
hole in the proof.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.contract.proxy import Cut
from tests.harness.boundaries import workload
from tests.harness.trial import Cutting, Trial

Patch = Callable[[], None]


@dataclass(frozen=True)
class Plant:
    """`caught_by` are the rules of the model of which one must be broken."""

    doc: str
    patch: Patch
    caught_by: frozenset[str]
    arms: Mapping[str, Mapping[int, tuple[str, ...]]] = field(default_factory=dict)
    variant: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    cuts: tuple[Cutting, ...] = ()
    work_s: float = 0.12
    hangs: int = 0
    blockbuster: bool = False


def _acknowledge_when_read() -> None:
    from corral.cowboy import transport
    from corral.cowboy.domain import unpack_id

    poll = transport.Reader.poll

    async def eager(self: Any, *args: Any, **named: Any) -> Any:
        claimed, new = await poll(self, *args, **named)
        ids = [unpack_id(entry.entry) for entry in new]
        if ids:
            config = self._config
            await self._wire.call("XACK", config.stream, config.group, *ids)
        return claimed, new

    transport.Reader.poll = eager  # type: ignore[method-assign]


def _plain_xadd() -> None:
    _edit_script("settle", "local id = redis.call('HGET', KEYS[4], field)", "local id = nil")


def _edit_script(name: str, old: str, new: str) -> None:
    from corral.cowboy import transport

    text = transport.SCRIPTS[name]
    if old not in text:
        raise LookupError(f"{name}.lua has changed: {old!r} is not in it any more")
    transport.SCRIPTS[name] = text.replace(old, new)


def _skip_drain() -> None:
    from corral.cowboy.domain import ZERO_ID
    from corral.cowboy.session import Session

    async def nothing(self: Any, reader: Any) -> bytes:
        del reader
        self._engine.offer_done()
        return ZERO_ID

    Session._drain = nothing  # type: ignore[method-assign]


def _unknown_never_went() -> None:
    from corral.cowboy.machine import Machine
    from corral.cowboy.runner.domain import RunPhase

    run_state = Machine.run_state

    def hopeful(self: Any, turn_id: str, attempt: int, phase: RunPhase, result: Any) -> None:
        certain = RunPhase.NEVER_WENT if phase is RunPhase.UNKNOWN else phase
        run_state(self, turn_id, attempt, certain, result)

    Machine.run_state = hopeful  # type: ignore[method-assign]


def _start_again() -> None:
    from corral.cowboy.machine import Machine

    def eager(self: Any, turn: Any) -> None:
        self.never_went(turn)

    Machine.interrupt = eager  # type: ignore[method-assign]


def _forget_notice() -> None:
    from corral.cowboy.domain import Outcome, Slot, State
    from corral.cowboy.machine import Machine

    def silent(self: Any, turn: Any) -> None:
        self.book.touch(turn)
        turn.move(State.INTERRUPTED)
        turn.move(State.REPLYING)
        self.book.vacate(turn)
        turn.intent, turn.outcome, turn.slot = State.DONE, Outcome.INTERRUPTED, Slot.NOTICE
        self.settled(turn, turn.effect_field, None, None, acked=False)

    Machine.interrupt = silent  # type: ignore[method-assign]


def _one_lane_each() -> None:
    from corral.cowboy.turn import Turn

    Turn.lane = property(lambda self: bytes(self.entry))  # type: ignore[method-assign,assignment]


def _leader_only() -> None:
    from corral.cowboy.runner import containment

    async def proven(self: Any) -> None:
        del self

    def leader(self: Any) -> None:
        containment.kill_leader(self._marks.leader if hasattr(self, "_marks") else self._leader)

    for kind in (containment.GroupContainment, containment.CgroupContainment):
        kind.prove_gone = proven  # type: ignore[method-assign]
        kind.kill = leader  # type: ignore[method-assign]


def _no_recovery() -> None:
    from corral.cowboy.runner import recovery

    async def trusting(records: Any, groups: Any) -> None:
        del records, groups

    recovery._until_gone = trusting


def _forget_early() -> None:
    from corral.cowboy.runner.book import RunBook

    tell_result = RunBook._tell_result

    def careless(self: Any, turn: str, entry: Any) -> None:
        tell_result(self, turn, entry)
        if turn in self._entries and entry.over:
            self._drop(turn, entry)

    RunBook._tell_result = careless  # type: ignore[method-assign]


def _go_before_start_is_committed() -> None:
    from corral.cowboy.machine import Machine

    def hasty(self: Any, turn_id: str, attempt: int) -> None:
        self.book.orders.go.append((turn_id, attempt))

    Machine.prepared = hasty  # type: ignore[method-assign]


def _trim_everything_taken() -> None:
    from corral.cowboy.domain import after
    from corral.cowboy.engine import Engine

    def greedy(self: Any) -> bytes:
        return after(self.intake.last_taken)

    Engine.kept_from = property(greedy)  # type: ignore[assignment]


def _skip_fence() -> None:
    for name in ("settle", "poll"):
        _edit_script(name, "fence ~= ARGV[1]", "false")


def _block_the_loop() -> None:
    from pathlib import Path

    from corral.cowboy.engine import Engine

    follow_up = Engine._follow_up

    def slow(self: Any, tick: Any) -> None:
        Path("/proc/self/status").read_text(encoding="utf-8")
        follow_up(self, tick)

    Engine._follow_up = slow  # type: ignore[method-assign]


SOURCES = ("a2a", "chat", "echo")
AFTER_READ = {"daemon": {0: ("cowboy.read.done:2=self",)}}
AFTER_OUTBOX = {"daemon": {0: ("cowboy.outbox.added:2=self",)}}
AFTER_RESULT = {"daemon": {0: ("cowboy.result.received:2=self",)}}
# One run has come to its end, which nobody hears of; others are at work.
WHILE_RUNNING = {"runner": {0: ("runner.run.over:1=self",)}}
NOTIFY = {name: {"on_interrupt": "notify"} for name in SOURCES}
STARTED_AGAIN = frozenset({"started_again", "start_not_recorded"})
# Bytes of a connection that the daemon lost arrive long after their turns are over.
STALE_BYTES = (Cutting(0.0, b"in_reply_to", Cut.HOLD),)

PLANTS: Mapping[str, Plant] = {
    "acknowledge-when-read": Plant(
        "entries are acknowledged before the ledger has them",
        _acknowledge_when_read,
        frozenset({"lost"}),
        AFTER_READ,
    ),
    "plain-xadd": Plant(
        "the outbox entry is added without looking for its marker",
        _plain_xadd,
        frozenset({"reply_twice", "answered_twice"}),
        AFTER_OUTBOX,
    ),
    "skip-fence": Plant(
        "bytes of an older connection are not refused",
        _skip_fence,
        frozenset({"reply_twice", "answered_twice"}),
        cuts=STALE_BYTES,
    ),
    "skip-drain": Plant(
        "the own pending list is not drained at the start",
        _skip_drain,
        frozenset({"lost", "not_quiet"}),
        AFTER_READ,
        variant={name: {"reclaim_idle_ms": 600_000} for name in SOURCES},
    ),
    "unknown-never-went": Plant(
        "a run that nobody knows any more is taken for one that never went",
        _unknown_never_went,
        STARTED_AGAIN,
        WHILE_RUNNING,
        NOTIFY,
        work_s=0.6,
    ),
    "start-again": Plant(
        "an interrupted turn is started again whatever its policy says",
        _start_again,
        STARTED_AGAIN,
        WHILE_RUNNING,
        NOTIFY,
        work_s=0.6,
    ),
    "go-before-commit": Plant(
        "go is said before the start is committed",
        _go_before_start_is_committed,
        STARTED_AGAIN,
        WHILE_RUNNING,
        NOTIFY,
        work_s=0.6,
    ),
    "forget-notice": Plant(
        "an interrupted turn ends without a word to its sender",
        _forget_notice,
        frozenset({"unanswered"}),
        WHILE_RUNNING,
        NOTIFY,
        work_s=0.6,
    ),
    "one-lane-each": Plant(
        "the order of a channel is not kept",
        _one_lane_each,
        frozenset({"order", "overlap"}),
        work_s=0.6,
    ),
    "leader-only": Plant(
        "only the leader of a run is killed, not its children",
        _leader_only,
        frozenset({"still_working", "overlap", "left_behind"}),
        work_s=0.6,
    ),
    "no-recovery": Plant(
        "a new runner trusts that the runs of the old one are over",
        _no_recovery,
        frozenset({"still_working", "overlap", "left_behind"}),
        WHILE_RUNNING,
        NOTIFY,
        hangs=3,
    ),
    "forget-early": Plant(
        "the runner drops a result once it has sent it",
        _forget_early,
        frozenset({"outcome_wrong", "started_again"}),
        AFTER_RESULT,
    ),
    "trim-what-was-read": Plant(
        "the inbox is trimmed above the watermark",
        _trim_everything_taken,
        frozenset({"outcome_wrong"}),
        variant={name: {"channel_backlog_max": 1} for name in SOURCES},
        work_s=0.6,  # entries wait for a place in their channel, read and not in the ledger
    ),
    "block-the-loop": Plant(
        "a file is read in the event loop",
        _block_the_loop,
        frozenset({"blocked_loop"}),
        {"daemon": {0: ("cowboy.settle.sent:3=redis",)}},
        blockbuster=True,
    ),
}


def plant(name: str) -> None:
    """Patches the running program. LookupError for an unknown name, or when the target is gone."""
    if name not in PLANTS:
        raise LookupError(f"no planted bug {name!r}; there are: {', '.join(sorted(PLANTS))}")
    PLANTS[name].patch()


def trial_for(name: str) -> Trial:
    """The trial that must catch a planted bug."""
    planted = PLANTS[name]
    return Trial(
        name=f"plant-{name}",
        seed=len(name),
        server="redis",
        planned=tuple(workload(work_s=planted.work_s, hangs=planted.hangs)),
        arms=planted.arms,
        cuts=planted.cuts,
        variant=planted.variant,
        plant=name,
        blockbuster=planted.blockbuster,
        quiet_timeout_s=12.0,
    )
