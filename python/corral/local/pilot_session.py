"""The session of the demo's agent `pilot`, as an agent's author would write it.

It sits in a terminal, is woken with turns, works on one after the other, and answers each with
`cowboy reply`. It reads on while it works: what it is shown it confirms at once. `PILOT_JOURNAL`
is the file of what it did, one JSON object a line: `shown` for each wake, `start` and `end` around
the work, then `taken` or `refused`. That is its memory, too: a turn that it is woken with again, by
TAMQ or because the session before it was killed, is neither done nor answered a second time.

It prints nothing: a line that a program has printed over, nobody can see any more.
"""

import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from corral.local.agent import answer, parse
from corral.local.session import MESSAGE, confirm

JOURNAL = "PILOT_JOURNAL"
TURN = re.compile(r"Answer with: cowboy reply (?P<turn>\S+) --file FILE")
# How line ends are shown to a program that reads lines; an empty line is above the message.
LINE_END, EMPTY_LINE = r" \n ", r" \n  \n "
REPLY_WAIT_S = 60


class Journal:
    """What this session and those before it did; opened once, written with one append a line."""

    def __init__(self, path: Path) -> None:
        lines = path.read_bytes().splitlines() if path.exists() else []
        self._done = {(one["ev"], one["turn"]) for one in map(json.loads, lines)}
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def __contains__(self, done: tuple[str, str]) -> bool:
        return done in self._done

    def note(self, event: str, turn: str) -> None:
        at_ms = time.time_ns() / 1e6
        line = {"ev": event, "turn": turn, "run": os.getpid(), "at_ms": at_ms}
        os.write(self._file, json.dumps(line).encode() + b"\n")
        os.fsync(self._file)
        self._done.add((event, turn))


def content(body: str) -> bytes:
    """What the sender said, from the body of a wake as it is shown."""
    return body.partition(EMPTY_LINE)[2].replace(LINE_END, "\n").encode()


def work(journal: Journal, turn: str, prompt: bytes) -> None:
    """Does a turn's work and answers it, unless that was done before."""
    if ("taken", turn) in journal:
        return
    if ("end", turn) not in journal:
        journal.note("start", turn)
        time.sleep(parse(prompt)[1])
        journal.note("end", turn)
    journal.note("taken" if reply(turn, answer(prompt, turn)) else "refused", turn)


def reply(turn: str, words: bytes) -> bool:
    """Whether the answer is committed. The command itself tries again while nobody listens."""
    command = [sys.executable, "-P", "-m", "corral.cowboy.main", "reply", turn]
    more = ["--wait", str(REPLY_WAIT_S), "--file", "-"]
    done = subprocess.run([*command, *more], input=words, capture_output=True, check=False)
    return done.returncode == 0


def main(socket: str) -> None:
    """Until its terminal is closed."""
    journal = Journal(Path(os.environ[JOURNAL]))
    woken: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()

    def keep_working() -> None:
        while True:
            work(journal, *woken.get())

    threading.Thread(target=keep_working, daemon=True).start()
    for line in sys.stdin:
        found, turn = MESSAGE.search(line), TURN.search(line)
        if found is None or turn is None:
            continue
        journal.note("shown", turn["turn"])
        confirm(socket, found["id"])
        woken.put((turn["turn"], content(found["body"])))


if __name__ == "__main__":
    main(sys.argv[1])
