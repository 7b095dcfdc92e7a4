"""A live session of the demo: reads what is typed into its terminal, and confirms TAMQ's messages.

`session.py LOG SOCKET CONFIRM_FROM`: every message that it is shown is appended to LOG, one JSON
object a line; from attempt CONFIRM_FROM on it is confirmed, again and again until TAMQ answers. It
speaks to TAMQ as any language can: a line to a socket, a line back. It uses the standard library
alone and is run with `python -S -E -I`. It prints nothing: its terminal shows what was typed, and
in tmux nobody can see a line any more that a program has printed over.
"""

import json
import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

# The envelope, in one line: a program that asked for no bracketed paste gets no line ends.
MESSAGE = re.compile(
    r"\[TAMQ message (?P<id>\S+), attempt (?P<attempt>\d+)[^]]*\] \\n (?P<body>.*)"
    r" \\n \[end of TAMQ message (?P=id)\]"
)
ANSWER_TIMEOUT_S = 5.0
PAUSE_S = 0.05
CONFIRMING_MAX_S = 60.0


def ask(path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """One request to TAMQ. Raises OSError or ValueError when there is no answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_TIMEOUT_S)
        connection.connect(path)
        connection.sendall(json.dumps({"protocol": "0.1", **fields}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(connection.makefile("rb").readline())
        return answer


def confirm(path: str, message_id: str) -> bool:
    """Acknowledge, again and again while TAMQ is not there; whether it took it."""
    over = time.monotonic() + CONFIRMING_MAX_S
    while time.monotonic() < over:
        try:
            answer = ask(path, {"op": "ack", "message_id": message_id})
        except (OSError, ValueError):
            time.sleep(PAUSE_S)
            continue
        if answer["ok"] or not answer["error"]["retryable"]:
            return bool(answer["ok"])
        time.sleep(PAUSE_S)
    return False


def note(log: int, found: "re.Match[str]") -> None:
    line = {
        "message_id": found["id"],
        "attempt": int(found["attempt"]),
        "body": found["body"],
        "at_ms": time.time_ns() // 1_000_000,
    }
    os.write(log, json.dumps(line).encode() + b"\n")


def main(argv: list[str]) -> None:
    """Until its terminal is closed."""
    log_path, path, confirm_from = argv[1], argv[2], int(argv[3])
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for line in sys.stdin:
        found = MESSAGE.search(line)
        if found is None:
            continue
        note(log, found)
        if int(found["attempt"]) >= confirm_from:
            confirm(path, found["id"])


if __name__ == "__main__":
    main(sys.argv)
