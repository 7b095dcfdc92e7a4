"""A2A agents as processes: those of the official SDK, and the scriptable one.

The SDK's environments (1.x and 0.3) are made by the entry script on demand, beside the others.
"""

import contextlib
import functools
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.local import a2a_tasks
from corral.local.tether import tethered
from corral.local.topology import base_environment
from corral.local.wait import until

ROOT = Path(__file__).resolve().parent.parent.parent
RELEASES = ("1", "0.3")
START_TIMEOUT_S = 60


@dataclass(frozen=True)
class Peer:
    """A running agent. `url` is for the bridge's table; `log` is empty for the SDK's."""

    process: "subprocess.Popen[bytes]"
    place: Path
    log: Path

    @property
    def url(self) -> str:
        return f"unix:{self.place}:/"

    @property
    def effects(self) -> list[dict[str, Any]]:
        """What the scriptable agent was asked and did."""
        return a2a_tasks.read_log(self.log)

    def starts(self, message_id: str) -> int:
        """How often a message began something."""
        return a2a_tasks.starts(self.log).get(message_id, 0)


@functools.cache
def sdk_python(release: str) -> Path:
    """The interpreter that has the SDK of this release (`RELEASES`)."""
    subprocess.run([ROOT / "corral", "setup", "--a2a"], check=True)
    venv = os.environ.get("CORRAL_VENV") or str(ROOT / ".venv")
    return Path(f"{venv}-a2a-{release}") / "bin" / "python"


def sdk_words(release: str, place: Path, *options: str) -> list[str]:
    """The command line of an agent of the SDK (see `a2a_sdk`)."""
    program = str(ROOT / "tests" / "harness" / "a2a_sdk.py")
    return [str(sdk_python(release)), "-P", program, str(place), *options]


@contextlib.contextmanager
def sdk_agent(release: str, *, compat: bool = False) -> Iterator[Peer]:
    """An agent of the SDK; `compat` lets 1.x speak 0.3 as well."""
    with _folder() as folder:
        place = folder / "agent"
        words = sdk_words(release, place, *(["--compat"] if compat else []))
        with _running(words, place, folder) as process:
            yield Peer(process, place, folder / "none")


@contextlib.contextmanager
def scripted_agent(*options: str, folder: Path | None = None) -> Iterator[Peer]:
    """The scriptable agent (`corral.local.a2a_agent`); a folder keeps its log for the next one."""
    with _folder() if folder is None else contextlib.nullcontext(folder) as here:
        place, log = here / "agent", here / "effects"
        place.unlink(missing_ok=True)
        words = [sys.executable, "-P", "-m", "corral.local.a2a_agent", str(log)]
        words += ["--socket", str(place), *options]
        with _running(words, place, here) as process:
            yield Peer(process, place, log)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Short enough for the name of a socket."""
    with tempfile.TemporaryDirectory(prefix="corral-a2a-") as name:
        yield Path(name)


@contextlib.contextmanager
def _running(
    words: Sequence[str], place: Path, folder: Path
) -> "Iterator[subprocess.Popen[bytes]]":
    log = folder / "out"
    with log.open("ab") as out:
        process = subprocess.Popen(
            tethered(list(words)), env=base_environment(), stdout=out, stderr=out
        )
    try:
        until(
            lambda: accepts(place) or process.poll() is not None,
            START_TIMEOUT_S,
            "the agent to listen",
        )
        if process.poll() is not None:
            raise RuntimeError(log.read_text())
        yield process
    finally:
        process.kill()
        process.wait()


def accepts(place: Path) -> bool:
    """Whether somebody listens at the socket."""
    with socket.socket(socket.AF_UNIX) as channel:
        try:
            channel.connect(str(place))
        except OSError:
            return False
    return True
