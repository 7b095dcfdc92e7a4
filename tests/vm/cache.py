"""What runs leave for later ones: locked while it is made, removed when nobody used it for long."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

UNUSED_MAX_S = 7 * 24 * 3600


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """One at a time, among processes and threads."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def used(folder: Path) -> None:
    """Notes that it was used now, and forgets its like that nobody used for a week.

    Its like have the same name up to the first dash; what has a suffix is a lock, or being made.
    """
    os.utime(folder)
    kind = folder.name.partition("-")[0]
    for other in folder.parent.glob(f"{kind}-*"):
        old = time.time() - other.stat().st_mtime > UNUSED_MAX_S
        if old and other.is_dir() and not other.suffix:
            shutil.rmtree(other, ignore_errors=True)
            other.with_suffix(".lock").unlink(missing_ok=True)
