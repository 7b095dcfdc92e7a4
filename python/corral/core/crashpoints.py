"""Named places at which the crash tests kill the process.

A module registers its points when it is imported and passes them with `crashpoint`, right
after a commit and around each external effect. Nothing happens there unless the process was armed.

Only the launcher of the crash tests arms, by calling `arm` before it starts a service. This
module reads no environment variable, no file and no argument, so that a packaged service has no
way to be armed (a test proves it).
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping

_registry: dict[str, str] = {}


class _Armed:
    """What an armed process does at a pass: count, tell the observer, kill at the n-th."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kill_at: dict[str, int] = {}
        self.passes: dict[str, int] = {}
        self.observer: Callable[[str], None] | None = None

    def passed(self, name: str) -> None:
        if name not in _registry:
            raise LookupError(f"crash point {name!r} was passed but never registered")
        with self.lock:
            count = self.passes.get(name, 0) + 1
            self.passes[name] = count
            observer = self.observer
        if observer is not None:
            observer(name)
        if self.kill_at.get(name) == count:
            os.kill(os.getpid(), signal.SIGKILL)


_armed: _Armed | None = None


def register(name: str, doc: str) -> str:
    """Make a point known and return its name. `ValueError` when it has another text already."""
    known = _registry.setdefault(name, doc)
    if known != doc:
        raise ValueError(f"crash point {name!r} is registered twice: {known!r} and {doc!r}")
    return name


def crashpoint(name: str) -> None:
    """Pass a point: nothing at all, unless a test armed this process."""
    if _armed is not None:
        _armed.passed(name)


def arm(name: str, nth: int = 1) -> None:
    """Kill this process (SIGKILL) at its `nth` pass of `name`, counted from the first arming.

    For the test launcher only. The point may be registered later; several points may be armed.
    """
    if nth < 1:
        raise ValueError(f"nth must be at least 1, not {nth}")
    _arming().kill_at[name] = nth


def set_observer(observer: Callable[[str], None] | None) -> None:
    """Call `observer(name)` at every pass, before a kill, in the thread that passes."""
    _arming().observer = observer


def disarm() -> None:
    """Forget what was armed, observed and counted (tests that arm in their own process)."""
    global _armed  # noqa: PLW0603  one None check is what keeps an unarmed pass nearly free
    _armed = None


def registered() -> dict[str, str]:
    """Every known point with its text, by name."""
    return dict(sorted(_registry.items()))


def passes() -> Mapping[str, int]:
    """How often each point was passed since this process was armed; empty when it is not."""
    armed = _armed
    if armed is None:
        return {}
    with armed.lock:
        return dict(armed.passes)


def _arming() -> _Armed:
    global _armed  # noqa: PLW0603
    if _armed is None:
        _armed = _Armed()
    return _armed
