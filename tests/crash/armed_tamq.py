"""As `tests.harness.armed`, for TAMQ: `python -m tests.crash.armed_tamq [CLOCK] … -- serve`.

CLOCK, a path, is a file of eight bytes: how many milliseconds the service's wall clock is away from
the real one. It may be written to at any time: then the clock jumps.
"""

import mmap
import sys
from pathlib import Path

from corral.core import clock
from corral.tamq.main import cli
from tests.harness import armed


def shift_by(file: Path) -> None:
    with file.open("rb") as opened:
        memory = mmap.mmap(opened.fileno(), 8, access=mmap.ACCESS_READ)
    real = clock.wall_ms

    def shifted() -> int:
        return real() + int.from_bytes(memory[:], "little", signed=True)

    clock.wall_ms = shifted


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments and arguments[0].startswith("/"):
        shift_by(Path(arguments.pop(0)))
    armed.main(arguments, cli)
