"""One run from its barrier to its proven end. Its reply is held in memory only."""

import array
import asyncio
import fcntl
import os
import termios
from collections.abc import Callable

from corral.core.crashpoints import crashpoint, register
from corral.cowboy.runner import spawn
from corral.cowboy.runner.containment import Containment
from corral.cowboy.runner.domain import RunIdentity, RunOutcome, RunPhase, RunResult
from corral.cowboy.runner.outcome import Cause, End, classify
from corral.cowboy.runner.plan import EchoPlan, ExecPlan
from corral.cowboy.runner.spawn import Child
from corral.cowboy.runner.watched import watched

RUN_OVER = register("runner.run.over", "a run is proven gone, its result is not held yet")

READ_BYTES = 64 * 1024


class ExecRun:
    """A program. ``on_over`` is called once, when it and all it started is proven gone."""

    def __init__(
        self,
        plan: ExecPlan,
        prompt: bytes,
        child: Child,
        containment: Containment,
        on_over: Callable[[], None],
    ) -> None:
        self.identity = RunIdentity(child.pid, child.start_ticks, containment.group)
        self.phase = RunPhase.PREPARED
        self.result: RunResult | None = None
        self.stderr_bytes = 0
        self._plan = plan
        self._prompt = memoryview(prompt)
        self._child = child
        self._containment = containment
        self._on_over = on_over
        self._output = bytearray()
        self._cause: Cause | None = None
        self._note = ""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._settling: asyncio.Task[None] | None = None
        self._loop.add_reader(child.pidfd, self._leader_ended)

    @property
    def ending(self) -> bool:
        """Whether its leader has ended or was killed; it is not proven over yet."""
        return self._cause is not None or self._settling is not None

    @property
    def stopped(self) -> bool:
        """Whether the runner's own stop ended it, so that nobody knows its outcome."""
        own_end = self.result is not None and self.result.outcome != RunOutcome.KILLED
        return self._cause is Cause.STOP and not own_end

    def go(self) -> None:
        """Writes the barrier's byte, once. A leader that was killed at the barrier stays so."""
        try:
            os.write(self._child.barrier, spawn.GO)
        except BrokenPipeError:
            return
        finally:
            self._child.close("barrier")
        self.phase = RunPhase.RUNNING
        self._timer = self._loop.call_later(self._plan.turn_timeout_s, self._timed_out)
        self._loop.add_reader(self._child.stdout, self._read_output)
        self._loop.add_reader(self._child.stderr, self._drain_errors)
        self._feed_prompt()

    def end(self, cause: Cause, note: str) -> None:
        """Kills the run. One that has ended by itself keeps its own result."""
        if not self.ending and not spawn.ended(self._child):
            self._cause = cause
            self._note = note
            self._containment.kill()

    def _timed_out(self) -> None:
        self.end(Cause.TIMEOUT, f"after {self._plan.turn_timeout_s:g} s")

    def _feed_prompt(self) -> None:
        try:
            while self._prompt:
                self._prompt = self._prompt[os.write(self._child.stdin, self._prompt) :]
        except BlockingIOError:
            self._loop.add_writer(self._child.stdin, self._feed_prompt)
            return
        except BrokenPipeError:
            pass  # it need not read its prompt
        self._close("stdin")

    def _read_output(self) -> None:
        wanted = self._plan.output.read_max_bytes + 1 - len(self._output)
        try:
            data = os.read(self._child.stdout, min(READ_BYTES, wanted))
        except BlockingIOError:
            return
        self._output += data
        if not data:
            self._close("stdout")
        elif len(data) == wanted:
            self._close("stdout")
            self.end(Cause.TOO_LARGE, "")

    def _drain_errors(self) -> None:
        try:
            data = os.read(self._child.stderr, READ_BYTES)
        except BlockingIOError:
            return
        self.stderr_bytes += len(data)
        if not data:
            self._close("stderr")

    def _leader_ended(self) -> None:
        self._loop.remove_reader(self._child.pidfd)
        if self._timer is not None:
            self._timer.cancel()
        self._containment.kill()
        self._take_buffered_output()
        for name in ("stdin", "stdout", "stderr", "barrier"):
            self._close(name)
        self._settling = watched(self._loop.create_task(self._settle()))

    def _take_buffered_output(self) -> None:
        """Reads what the pipe held when the run was killed; others may still hold its other end."""
        if self._child.stdout < 0 or self.phase is RunPhase.PREPARED:
            return
        buffered = array.array("i", [0])
        fcntl.ioctl(self._child.stdout, termios.FIONREAD, buffered)
        if buffered[0]:
            self._output += os.read(self._child.stdout, buffered[0])

    async def _settle(self) -> None:
        await self._containment.prove_gone()
        crashpoint(RUN_OVER)
        self._containment.release()
        start_error = self._child.start_error()
        exit_status, signal = spawn.reap(self._child)
        self._child.close_all()
        end = End(
            exit_status=exit_status,
            signal=signal,
            cause=self._cause,
            note=self._note,
            start_error=start_error,
            went=self.phase is RunPhase.RUNNING,
        )
        self.result = classify(self._plan.output, end, bytes(self._output))
        self._output.clear()
        self.phase = RunPhase.FINISHED
        self._on_over()

    def _close(self, name: str) -> None:
        fd: int = getattr(self._child, name)
        if fd >= 0:
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)
            self._child.close(name)


class EchoRun:
    """Answers with its prompt; has no process, so it cannot be killed halfway."""

    def __init__(self, plan: EchoPlan, prompt: bytes, on_over: Callable[[], None]) -> None:
        self.identity = RunIdentity(0, 0, "none")
        self.phase = RunPhase.PREPARED
        self.result: RunResult | None = None
        self.stderr_bytes = 0
        self.stopped = False
        self.ending = False
        self._plan = plan
        self._prompt = prompt
        self._on_over = on_over

    def go(self) -> None:
        self._finish(End(exit_status=0))

    def end(self, cause: Cause, note: str) -> None:
        self.stopped = cause is Cause.STOP
        self._finish(End(cause=cause, note=note, went=False))

    def _finish(self, end: End) -> None:
        self.result = classify(self._plan.output, end, self._prompt)
        self.phase = RunPhase.FINISHED
        self._on_over()
