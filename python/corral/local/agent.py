"""`corral-demo-agent`: the agent of the local deployment, as its own small program.

It starts a child, works for a while, appends each effect to a log that the model counts, and
answers with a function of its prompt and turn, so that a wrong or mixed-up answer is seen. It uses
the standard library alone and is run with `python -S -E -I`: it starts in a few milliseconds.

A prompt may begin with a line of instructions, for example `#work s=0.4 do=exit`:

    s=SECONDS   how long it works
    do=answer   answers (default)          do=exit     ends with status 3, no answer
    do=garbage  answers invalid UTF-8      do=big      answers with more than `reply_max_bytes`
    do=hang     works until it is killed   do=orphan   answers while its child works on for s more

The effect log's path is `DEMO_EFFECTS` in the configured environment. Each line is one JSON
object, written with one append: `start` and `end` (synced to disk), and `beat` from the child, so
that a run that was declared over but still works is seen.
"""

import json
import os
import sys
import time
from hashlib import sha256

EFFECTS = "DEMO_EFFECTS"
DEFAULT_WORK_S = 0.05
BEAT_INTERVAL_S = 0.03
BIG_REPLY_BYTES = 8 * 1024 * 1024
HANG_MAX_S = 600.0
ACTIONS = ("answer", "exit", "garbage", "big", "hang", "orphan")


def parse(prompt: bytes) -> tuple[str, float]:
    """Action and seconds of work from a prompt's first line; the defaults without such a line."""
    first = prompt.split(b"\n", 1)[0]
    if not first.startswith(b"#work "):
        return ACTIONS[0], DEFAULT_WORK_S
    words = dict(word.split("=", 1) for word in first.decode("ascii", "replace").split()[1:])
    action = words.get("do", ACTIONS[0])
    if action not in ACTIONS:
        raise ValueError(f"unknown action {action!r}")
    return action, float(words.get("s", DEFAULT_WORK_S))


def prompt_for(text: bytes, *, action: str = "answer", work_s: float = DEFAULT_WORK_S) -> bytes:
    """A prompt that carries instructions."""
    return b"#work s=%.3f do=%s\n" % (work_s, action.encode()) + text


def answer(prompt: bytes, turn_id: str) -> bytes:
    """The one right answer to a prompt in a turn."""
    return f"answer {sha256(prompt).hexdigest()[:32]} {turn_id}".encode()


class Effects:
    """Appends lines to the effect log, each with one write."""

    def __init__(self) -> None:
        self.run = os.getpid()  # the leader's, in the lines of its child too
        self._file = os.open(os.environ[EFFECTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: str, *, sync: bool, **more: object) -> None:
        line = {
            "ev": event,
            "turn": os.environ.get("CORRAL_TURN_ID", ""),
            "run": self.run,
            "at_ms": time.time_ns() / 1e6,
            **more,
        }
        os.write(self._file, json.dumps(line).encode() + b"\n")
        if sync:
            os.fsync(self._file)


def child(effects: Effects, work_s: float) -> None:
    """Works for a while and says so; the agent's group must be over before its turn is."""
    until = time.monotonic() + work_s
    while time.monotonic() < until:
        effects.write("beat", sync=False)
        time.sleep(min(BEAT_INTERVAL_S, max(0.0, until - time.monotonic())))


def main() -> int:
    """One run: prompt on standard input, answer on standard output."""
    effects = Effects()
    names = ("ENTRY_ID", "SENDER", "CHANNEL", "SESSION_ID", "RESUMED")
    binding = {name.lower(): os.environ.get(f"CORRAL_{name}") for name in names}
    effects.write("start", sync=True, **binding)
    prompt = sys.stdin.buffer.read()
    action, work_s = parse(prompt)
    if action == "hang":
        work_s = HANG_MAX_S
    worker = os.fork()
    if worker == 0:
        child(effects, work_s * 2 if action == "orphan" else work_s)
        os._exit(0)
    if action == "orphan":
        time.sleep(work_s)
    else:
        os.waitpid(worker, 0)
    effects.write("end", sync=True)
    replies = {"garbage": b"\xff\xfe\x80", "big": b"x" * BIG_REPLY_BYTES}
    if action == "exit":
        return 3
    reply = replies.get(action, answer(prompt, os.environ.get("CORRAL_TURN_ID", "")))
    sys.stdout.buffer.write(reply)
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
