"""What the client knows, on disk: appended line by line, each durable before the next step."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path("/var/lib/corral-vm/record")
TRYING = "trying"
SENT = "sent"
SEEN = "seen"
HAPPENED = "happened"


def append(kind: str, fact: dict[str, Any]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    line = json.dumps(fact).encode() + b"\n"
    file = os.open(FOLDER / f"{kind}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
        os.fsync(file)
    finally:
        os.close(file)


def lines(kind: str) -> Iterator[dict[str, Any]]:
    """All facts of a kind; a line that a power failure cut is none."""
    path = FOLDER / f"{kind}.jsonl"
    yield from readable(path)


def readable(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file of JSON objects that are whole."""
    if not path.exists():
        return
    for line in path.read_bytes().splitlines():
        try:
            found = json.loads(line.strip(b"\0"))
        except ValueError:
            continue
        yield found
