"""Latency of cowboy: one message at a time, messages at a pace, and from a SIGKILL to an answer."""

import statistics
import time
from typing import Any

from corral.core.errors import UnavailableError
from tests.bench.contenders import COWBOY
from tests.bench.figures import percentiles
from tests.bench.stand import Stand, message, milliseconds, pause, usage

ANSWER_TIMEOUT_S = 30.0
BLOCK_MS = 1000  # below the client's own timeout
PACE_STEP_S = 0.01


def one_at_a_time(count: int) -> dict[str, float]:
    """Milliseconds from `XADD` to its answer, as a client sees it that waits for each."""
    took = []
    with Stand() as stand, COWBOY.running(stand):
        stand.fill([message(0)])
        stand.await_length(1, ANSWER_TIMEOUT_S)
        last = stand.answers()[-1][0]
        for number in range(1, count + 1):
            began = time.perf_counter()
            stand.fill([message(number)])
            last = _next_answer(stand, last)
            took.append((time.perf_counter() - began) * 1000)
    return percentiles(took)


def at_a_pace(per_s: int, seconds: float) -> dict[str, float]:
    """Milliseconds on the server's clock from an entry to its answer, at an even load."""
    with Stand() as stand, COWBOY.running(stand):
        stand.fill([message(0)])
        stand.await_length(1, ANSWER_TIMEOUT_S)
        began, sent = time.perf_counter(), 0
        while (now := time.perf_counter() - began) < seconds:
            due = int(now * per_s)
            if due > sent:
                stand.fill([message(number) for number in range(sent, due)])
                sent = due
            pause(PACE_STEP_S)
        stand.await_length(sent + 1, ANSWER_TIMEOUT_S)
        answers = stand.answers()[1:]
    return percentiles(
        [float(milliseconds(at) - milliseconds(of[b"in_reply_to"])) for at, of in answers]
    )


def after_a_kill(kills: int, *, per_s: int = 200) -> dict[str, float]:
    """Seconds from SIGKILL to the next answer, while messages keep coming; restarted at once.

    The start is what systemd does without delay: a new process of the same command. Its CPU time
    until then says what of it is work, and not waiting for a busy machine.
    """
    took, spent = [], []
    with Stand() as stand:
        for number in range(kills):
            with COWBOY.running(stand) as process:
                stand.fill([message(number)])
                _next_answer(stand, _last_answer(stand))
                stand.fill([message(n) for n in range(per_s // 10)])
                process.kill()
                began = time.perf_counter()
                process.wait()
                last = _last_answer(stand)
                stand.fill([message(number)])
                with COWBOY.running(stand) as successor:
                    _next_answer(stand, last)
                    took.append(time.perf_counter() - began)
                    spent.append(usage(successor.pid).cpu_s)
    return {
        "median": statistics.median(took),
        "max": max(took),
        "cpu_median": statistics.median(spent),
    }


def _last_answer(stand: Stand) -> bytes:
    found: Any = stand.client.xrevrange(stand.outbox, count=1)
    return bytes(found[0][0]) if found else b"0-0"


def _next_answer(stand: Stand, after: bytes) -> bytes:
    """The id of the last answer once there is one behind `after`."""
    until = time.monotonic() + ANSWER_TIMEOUT_S
    read: Any = None
    while not read:
        if time.monotonic() > until:
            raise UnavailableError(f"no answer within {ANSWER_TIMEOUT_S:.0f} s")
        read = stand.client.xread({stand.outbox: after}, block=BLOCK_MS)
    streams: Any = list(read.values()) if isinstance(read, dict) else [read[0][1]]
    entries = streams[0][0] if isinstance(read, dict) else streams[0]
    return bytes(entries[-1][0])
