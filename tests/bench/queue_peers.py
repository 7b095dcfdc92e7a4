"""Two queues of files as contenders: `python -m tests.bench.queue_peers NAME FOLDER COUNT`.

Runs in the environment of `python/requirements/bench.txt` and needs nothing of Corral. Puts
directly, in one process and one thread, with a flush for each (`synchronous=FULL`). Prints one JSON
object, without the first tenth.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BODY = "b" * 256
WARM_UP_SHARE = 10


def litequeue(folder: str) -> Callable[[str], Any]:
    import litequeue as library

    queue: Any = library.LiteQueue(f"{folder}/queue.db")
    queue.conn.execute("PRAGMA synchronous = FULL")  # it sets NORMAL
    return queue.put  # type: ignore[no-any-return]


def persist_queue(folder: str) -> Callable[[str], Any]:
    import persistqueue as library

    queue: Any = library.SQLiteQueue(folder, auto_commit=True)
    queue._putter.execute("PRAGMA synchronous = FULL")
    return queue.put  # type: ignore[no-any-return]


def main() -> None:
    name, folder, count = sys.argv[1:]
    put = {"litequeue": litequeue, "persist-queue": persist_queue}[name](folder)
    took: list[float] = []
    began = time.perf_counter()
    for number in range(int(count)):
        if number == int(count) // WARM_UP_SHARE:
            took.clear()
            began = time.perf_counter()
        before = time.perf_counter()
        put(BODY)
        took.append(time.perf_counter() - before)
    whole_s = time.perf_counter() - began
    took.sort()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(json.dumps({
        "per_s": len(took) / whole_s,
        "p50_ms": took[len(took) // 2] * 1000,
        "p99_ms": took[len(took) * 99 // 100] * 1000,
        "resident_bytes": int(status["VmRSS"].split()[0]) * 1024,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
