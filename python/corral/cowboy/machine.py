"""The turn machine of one source: what each event does to its turns.

Pure. Every method belongs to one tick: it changes turns, records the change in the book's batch,
and leaves the work that follows (orders to the runner, acknowledgements, outbox entries) in the
book. The caller commits the batch before any of that work is done.
"""

from collections.abc import Callable

from corral.core.errors import UsageError
from corral.cowboy import points
from corral.cowboy.book import Batch, Book, retry_delay_ms
from corral.cowboy.config import AckPolicy, EchoRunner, OnInterrupt, SourceConfig, TamqRunner
from corral.cowboy.domain import REPLY_OUTCOMES, TERMINAL, Ack, Kind, Outcome, Slot, State
from corral.cowboy.runner.domain import RunOutcome, RunPhase, RunResult
from corral.cowboy.turn import Turn

# The runner could not start a run, for a reason that passes.
NO_ROOM = ("system_refused", "runs_max", "results_held_max", "other_attempt_not_over")
NO_ROOM_RETRY_MS = 1_000


class Machine:
    """Moves the turns of one source by the rules of `domain`."""

    def __init__(
        self, agent: str, source: str, config: SourceConfig,
        slots_left: Callable[[], int] = lambda: 1_000_000,
    ) -> None:  # fmt: skip
        """`slots_left`: how many runs the agent's own limit leaves to this source."""
        self.agent = agent
        self.source = source
        self.config = config
        self.wakes = isinstance(config.runner, TamqRunner)
        self.book = Book(repeats=self.wakes)
        self.instant = isinstance(config.runner, EchoRunner)
        self.runner_up = self.instant
        self.slots_left = slots_left
        self.acks_at_dispatch = config.ack is AckPolicy.DISPATCH

    # ------------------------------------------------------------ moves shared by all events

    @property
    def batch(self) -> Batch:
        return self.book.batch

    def reply(
        self, turn: Turn, intent: State, outcome: Outcome, *, body: bytes | None = None,
        detail: str | None = None, dead_copy: bool = False,
    ) -> None:  # fmt: skip
        """Persist an answer or a notice; `intent` is where the turn goes once the outbox has it."""
        book = self.book
        book.touch(turn)
        if turn.state in (State.RECEIVED, State.HELD):
            book.unqueue(turn)
        turn.move(State.REPLYING)
        book.vacate(turn)
        turn.intent = intent
        turn.outcome = outcome
        turn.slot = Slot.REPLY if outcome in REPLY_OUTCOMES else Slot.NOTICE
        if body is not None:
            turn.body = body
        turn.detail = detail
        turn.dead_copy = dead_copy
        turn.effect += 1
        turn.effect_attempts = 0
        turn.outbox_id = None
        turn.release = False
        book.effects[turn.row] = turn
        book.batch.points.add(points.REPLYING)
        self.want_ack(turn)

    def want_ack(self, turn: Turn) -> None:
        """The entry has left `received`: under `ack = dispatch` its acknowledgement is due."""
        if self.acks_at_dispatch and turn.ack is Ack.UNACKED and turn.ack_attempts == 0:
            turn.ack_attempts = 1
            self.book.acks[turn.row] = turn

    def dispatch(self, turn: Turn) -> None:
        """Commit that the turn goes to the runner; the order to prepare follows the commit."""
        book = self.book
        book.touch(turn)
        turn.move(State.DISPATCHED)
        turn.attempt += 1
        turn.started_at_ms = None
        turn.release = False
        book.occupy(turn)
        book.orders.prepare.append(turn)
        book.batch.points.add(points.DISPATCHED)
        self.want_ack(turn)

    def dispatch_waiting(self) -> None:
        """Hand waiting turns over while there are slots, one channel after the other."""
        book = self.book
        while self.runner_up and len(book.busy) < min(
            self.config.turns_concurrent_max, self.slots_left()
        ):
            turn = book.next_waiting()
            if turn is None:
                return
            self.dispatch(turn)

    def answer_now(self, turn: Turn) -> None:
        """The `echo` runner: no process, no effect, so the answer is part of the intake."""
        content = turn.content or b""
        if len(content) > self.config.runner.reply_max_bytes:
            self.reply(turn, State.DONE, Outcome.REPLY_TOO_LARGE)
            return
        # As `reply` does, for a turn that is new and in no queue: most of all turns pass here.
        book = self.book
        turn.move(State.REPLYING)
        turn.intent, turn.outcome, turn.slot = State.DONE, Outcome.COMPLETED, Slot.REPLY
        turn.body = content
        turn.effect += 1
        book.effects[turn.row] = turn
        book.batch.points.add(points.REPLYING)
        if self.acks_at_dispatch:
            turn.ack_attempts = 1
            book.acks[turn.row] = turn

    # ------------------------------------------------------------ the runner's events

    def expects(self, turn_id: str, attempt: int) -> Turn | None:
        """The dispatched turn that a runner's event is about; None for an older attempt."""
        turn = self.book.by_id.get(turn_id)
        if turn is None or turn.state is not State.DISPATCHED or turn.attempt != attempt:
            return None
        return turn

    def prepared(self, turn_id: str, attempt: int) -> None:
        """The child waits at its barrier: commit the start, then say go."""
        turn = self.expects(turn_id, attempt)
        if turn is None:
            self.book.orders.kill.append((turn_id, attempt))
            return
        if turn.id in self.book.cancels:
            if self._perhaps_woken(turn):  # only a run that goes withdraws its wake
                self.book.orders.go.append((turn_id, attempt))
            self.book.orders.kill.append((turn_id, attempt))
            return
        if turn.started_at_ms is None:
            self.book.touch(turn)
            turn.started_at_ms = self.batch.now_ms
            turn.starts += 1
            self.batch.count("starts")
            self.batch.points.add(points.STARTED)
        self.book.orders.go.append((turn_id, attempt))

    def refused(self, turn_id: str, attempt: int, reason: str) -> None:
        """The runner did not start this turn: certainly not run. Wait when it had no room."""
        turn = self.expects(turn_id, attempt)
        if turn is None:
            return
        if reason.startswith(NO_ROOM):
            if turn.id in self.book.cancels and not self._perhaps_woken(turn):
                self.cancelled(turn)
            else:
                at_ms = self.batch.now_ms + NO_ROOM_RETRY_MS
                self.book.prepare_again.append((at_ms, turn))
            return
        if self._perhaps_woken(turn):
            self.interrupt(turn)
            return
        self.reply(turn, State.DONE, Outcome.START_FAILED, detail=reason[:200])
        self.settle_cancels(turn, Outcome.CANCEL_TOO_LATE)

    def finished(self, turn_id: str, attempt: int, result: RunResult) -> None:
        """A run is over, its children too. The runner may forget the result after the commit."""
        self.book.orders.forget.append((turn_id, attempt))
        turn = self.expects(turn_id, attempt)
        if turn is None:
            return
        cancelled = turn.id in self.book.cancels
        if result.outcome == "killed":
            if not result.went:
                self.never_went(turn)
            elif cancelled:
                self.cancelled(turn)
            else:
                self.interrupt(turn)
            return
        if result.outcome == RunOutcome.SESSION_ENDED:
            self.interrupt(turn)
            return
        outcome = Outcome(result.outcome)
        body = result.reply if outcome in REPLY_OUTCOMES else None
        self.reply(turn, State.DONE, outcome, body=body, detail=result.detail[:200] or None)
        self.settle_cancels(turn, Outcome.CANCEL_TOO_LATE)

    def run_state(
        self, turn_id: str, attempt: int, phase: RunPhase, result: RunResult | None
    ) -> None:
        """The runner's answer about a turn after a reconnection."""
        turn = self.expects(turn_id, attempt)
        if phase is RunPhase.FINISHED and result is not None:
            self.finished(turn_id, attempt, result)
        elif turn is None:
            return
        elif phase is RunPhase.PREPARED:
            self.prepared(turn_id, attempt)
        elif phase is RunPhase.RUNNING:
            if turn.id in self.book.cancels:
                self.book.orders.kill.append((turn_id, attempt))
        elif phase is RunPhase.NEVER_WENT:
            self.never_went(turn)
        elif turn.started_at_ms is None or self._perhaps_woken(turn):
            # Go was never said: certainly not run. Or its session goes on without a runner: the
            # same attempt is the same wake.
            self.book.orders.prepare.append(turn)
        else:
            self.interrupt(turn)

    def never_went(self, turn: Turn) -> None:
        """Its run certainly did nothing: hand it over again, or let its cancellation win."""
        if self._perhaps_woken(turn):
            self.book.orders.prepare.append(turn)  # this run did nothing; one before it may have
            return
        self.book.touch(turn)
        if turn.started_at_ms is not None:
            turn.starts -= 1
            turn.started_at_ms = None
        if turn.id in self.book.cancels:
            self.cancelled(turn)
            return
        turn.generation += 1
        turn.attempt += 1
        self.book.orders.prepare.append(turn)

    def interrupt(self, turn: Turn) -> None:
        """The run is over and its outcome unknown: the source's policy decides."""
        self.book.touch(turn)
        turn.move(State.INTERRUPTED)
        self.batch.count("interrupted")
        self.batch.points.add(points.INTERRUPTED)
        if turn.id in self.book.cancels:
            self.cancelled(turn)
        elif self.config.on_interrupt is OnInterrupt.NOTIFY:
            self.reply(turn, State.DONE, Outcome.INTERRUPTED)
        elif self.config.on_interrupt is OnInterrupt.HOLD:
            self.reply(turn, State.HELD, Outcome.HELD)
        elif turn.starts >= self.config.dispatch_attempts_max:
            self.batch.note("poisoned", turn.entry)
            self.reply(turn, State.DEAD, Outcome.POISONED, dead_copy=True)
        else:
            self.dispatch(turn)

    def _perhaps_woken(self, turn: Turn) -> bool:
        """Whether a live session may know of the turn's present attempt: it stays the same."""
        return self.wakes and turn.started_at_ms is not None

    def answered(self, turn: Turn, outcome: Outcome, body: bytes, mark: str) -> None:
        """A live session answers its dispatched turn, whose run ends by that."""
        self.batch.points.add(points.ANSWERED)
        self.reply(turn, State.DONE, outcome, body=body, detail=mark)
        self.settle_cancels(turn, Outcome.CANCEL_TOO_LATE)
        self.book.ended_runs.append((turn.id, turn.attempt))
        self.end_runs()

    def end_runs(self) -> None:
        """Runs of turns that are answered: a live session's goes on until it is told."""
        book = self.book
        if not self.wakes:
            book.orders.forget += book.ended_runs
        elif self.runner_up:
            book.orders.kill += book.ended_runs
        else:
            return
        book.ended_runs.clear()

    # ------------------------------------------------------------ cancellation

    def cancel(self, order: Turn, target: Turn | None) -> None:
        """A cancel entry: end its target, now or once its run is over, and tell both senders."""
        if target is None or target.kind is Kind.CANCEL:
            self.reply(order, State.DONE, Outcome.CANCEL_UNKNOWN)
        elif self.cancel_at_once(target):
            self.reply(order, State.DONE, Outcome.CANCEL_APPLIED)
        elif target.state is State.DISPATCHED:
            self.book.cancels.setdefault(target.id, []).append(order)
            self.book.orders.kill.append((target.id, target.attempt))
        else:
            self.reply(order, State.DONE, Outcome.CANCEL_TOO_LATE)

    def cancel_at_once(self, turn: Turn) -> bool:
        """End a turn that is not with the runner: waiting, held, or about to be held."""
        about_to_be_held = turn.state is State.REPLYING and turn.intent is State.HELD
        if turn.state not in (State.RECEIVED, State.HELD) and not about_to_be_held:
            return False
        self.reply(turn, State.CANCELLED, Outcome.CANCELLED)
        return True

    def cancelled(self, turn: Turn) -> None:
        """The target's run is over (or never was): its notice is persisted with the same commit."""
        self.reply(turn, State.CANCELLED, Outcome.CANCELLED)
        self.settle_cancels(turn, Outcome.CANCEL_APPLIED)

    def settle_cancels(self, turn: Turn, outcome: Outcome) -> None:
        for order in self.book.cancels.pop(turn.id, []):
            self.reply(order, State.DONE, outcome)

    # ------------------------------------------------------------ Redis' answers

    def acked(self, turns: list[Turn], count: int) -> None:
        """An XACK of these turns' entries was answered with a count. Zero is success."""
        book, fresh = self.book, 0
        for turn in turns:
            if turn.ack is Ack.ACKED or turn.row not in book.open:
                continue
            repeated = turn.ack_attempts > 1 or turn.row in book.repeated
            if not repeated and turn.entry not in book.lost_entries:
                fresh += 1
            book.lost_entries.discard(turn.entry)
            book.touch(turn)
            turn.ack = Ack.ACKED
            if turn.state in TERMINAL:
                book.drop(turn)
        if count < fresh:
            self.batch.note("ack_short", None, f"{count} of {fresh}")

    def ack_refused(self, turns: list[Turn]) -> None:
        """Redis refused an XACK: retry that, not the request; at last forget it."""
        for turn in turns:
            if turn.ack is not Ack.UNACKED or turn.row not in self.book.open:
                continue
            self.book.touch(turn)
            if turn.ack_attempts >= self.config.ack_attempts_max:
                turn.ack = Ack.FORGOTTEN
                self.batch.note("ack_forgotten", turn.entry)
                continue
            turn.ack_attempts += 1
            delay = retry_delay_ms(turn.ack_attempts)
            self.book.retries.append((self.batch.now_ms + delay, turn))

    def settled(
        self, turn: Turn, field: str, outbox_id: bytes | None, dead_id: bytes | None,
        *, acked: bool,
    ) -> None:  # fmt: skip
        """The outbox (and the dead-letter stream) have the effect that `field` marks."""
        book = self.book
        book.forget.append(field)
        if turn.dead_copy or turn.dead_id is not None or dead_id is not None:
            book.forget.append(f"{field}:dead")
        if turn.state is not State.REPLYING or turn.effect_field != field or turn.intent is None:
            return  # overtaken: the turn has another effect by now
        book.touch(turn)
        turn.outbox_id = outbox_id
        turn.dead_id = dead_id or turn.dead_id
        intent = turn.intent
        turn.move(intent)
        turn.intent = None
        batch = book.batch
        batch.points.add(points.HELD if intent is State.HELD else points.SETTLED)
        if acked:
            turn.ack = Ack.ACKED
        if turn.terminal:
            turn.terminal_at_ms = batch.now_ms
            turn.content = turn.body = None
            batch.count(intent)
            if turn.ack is Ack.UNACKED and turn.ack_attempts == 0:
                turn.ack_attempts = 1
                book.acks[turn.row] = turn
        self.close(turn)

    def effect_refused(self, turn: Turn, field: str, dead_id: bytes | None, code: str) -> None:
        """The outbox refused an entry: retry, then a dead letter, at last without a notice."""
        if turn.state is not State.REPLYING or turn.effect_field != field:
            return
        self.book.touch(turn)
        turn.effect_attempts += 1
        turn.dead_id = dead_id or turn.dead_id
        if turn.effect_attempts >= self.config.outbox_attempts_max:
            if turn.intent is not State.DEAD:
                self.batch.note("outbox_refused", turn.entry, code)
                self.reply(turn, State.DEAD, Outcome.OUTBOX_REFUSED, dead_copy=True)
                return
            if turn.dead_id is not None:
                self.batch.note("notice_undelivered", turn.entry, code)
                self.settled(turn, field, None, turn.dead_id, acked=False)
                return
        delay = retry_delay_ms(turn.effect_attempts)
        self.book.retries.append((self.batch.now_ms + delay, turn))

    def close(self, turn: Turn) -> None:
        if turn.closed:
            self.book.drop(turn)

    # ------------------------------------------------------------ the operator

    def release(self, turn: Turn) -> None:
        """A held turn may go on: it waits, durably marked, for its channel."""
        if turn.release:
            return  # a second time while it waits: it must not run twice
        self.book.touch(turn)
        turn.release = True
        turn.generation += 1
        self.book.enqueue(turn, front=True)

    def cancel_by_operator(self, turn: Turn) -> None:
        """End a turn, now or once its run is over; nobody but its own sender is told.

        One that is answered stays as it is. Raises UsageError for a turn that is a cancellation.
        """
        if turn.kind is Kind.CANCEL:
            raise UsageError(f"{turn.id} is itself a request to cancel")
        if self.cancel_at_once(turn) or turn.state is not State.DISPATCHED:
            return
        self.book.cancels.setdefault(turn.id, [])
        self.book.orders.kill.append((turn.id, turn.attempt))

    def abandon(self, turn: Turn) -> None:
        """The operator ends a held turn: dead letter and a notice."""
        self.reply(turn, State.DEAD, Outcome.ABANDONED, dead_copy=True)
