"""A live session for tests: notes what it is woken with, and answers by `cowboy reply`.

    live_session.py LOG MODE PYTHON

MODE `answer` replies to each turn; `silent` does nothing; a file of the name LOG.say has another
answer than the usual one. Run as `python -S -E -I`, in a terminal of `tamq run`.
"""

import json
import os
import re
import subprocess
import sys

MESSAGE = re.compile(
    r"\[TAMQ message (?P<id>\S+), attempt (?P<attempt>\d+)[^]]*\] \\n (?P<body>.*)"
    r" \\n \[end of TAMQ message (?P=id)\]"
)
TURN = re.compile(r"cowboy reply (?P<turn>[a-z0-9.-]+) --file")


def main(argv: list[str]) -> None:
    path, mode, python = argv[1:4]
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for line in sys.stdin:
        found = MESSAGE.search(line)
        turn = TURN.search(line)
        if found is None or turn is None:
            continue
        noted = {"turn": turn["turn"], "message": found["id"], "attempt": int(found["attempt"])}
        os.write(log, json.dumps({**noted, "body": found["body"]}).encode() + b"\n")
        if mode == "answer":
            answer(python, turn["turn"], path)


def answer(python: str, turn: str, log: str) -> None:
    """As an agent does: a command, and what it printed is looked at."""
    command = [python, "-m", "corral.cowboy.main", "reply", turn, "--wait", "60", "--file", "-"]
    done = subprocess.run(command, input=f"done: {turn}".encode(), capture_output=True, check=False)
    told = done.stdout + done.stderr
    with open(f"{log}.replies", "ab") as file:  # noqa: PTH123  no pathlib: it starts in no time
        file.write(b"%d %s\n" % (done.returncode, told.strip().replace(b"\n", b" ")))


if __name__ == "__main__":
    main(sys.argv)
