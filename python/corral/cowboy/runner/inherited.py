"""What runs may inherit of the runner's environment, where that is the agent's own. Pure.

A unit of systemd is such a place: its PATH, environment files and credentials are for the runs.
What configures the runner itself, and what systemd says to the service, is nobody else's.
"""

from collections.abc import Mapping

_PREFIXES = ("COWBOY_", "CORRAL_", "LISTEN_", "MEMORY_PRESSURE_", "WATCHDOG_")
_NAMES = frozenset({
    "FDSTORE",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "MAINPID",
    "MANAGERPID",
    "NOTIFY_SOCKET",
    "SYSTEMD_EXEC_PID",
    "TRACEPARENT",
})  # fmt: skip


def for_runs(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that are passed on."""
    return {
        name: value
        for name, value in environ.items()
        if name not in _NAMES and not name.startswith(_PREFIXES)
    }
