"""What `doctor` finds out about the TAMQ of each source that wakes a live session. Only asks."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from corral.cowboy.config import SourceConfig, TamqRunner
from corral.cowboy.examined import TamqFacts
from corral.cowboy.runner.tamq_client import AskError, ask


def sessions(sources: Mapping[str, SourceConfig], runner_socket: Path) -> tuple[TamqFacts, ...]:
    """One part for each such source. The runner's user is who owns its socket."""
    wakers = {
        name: source.runner
        for name, source in sources.items()
        if isinstance(source.runner, TamqRunner)
    }
    return tuple(
        asyncio.run(_asked(name, runner, _owner(runner_socket))) for name, runner in wakers.items()
    )


async def _asked(source: str, runner: TamqRunner, user: int | None) -> TamqFacts:
    facts = TamqFacts(source, runner.socket, runner.repo)
    try:
        await ask(runner.socket, {"op": "ping"})
        page = await ask(runner.socket, {"op": "endpoints", "repo": runner.repo})
    except AskError as error:
        if error.code == "unauthorized":  # it answers, and serves its own user alone
            owner = await asyncio.to_thread(_owner, Path(runner.socket))
            return facts._replace(foreign=None not in (owner, user) and owner != user)
        if isinstance(error.__cause__, PermissionError):
            return facts._replace(hidden=True)
        return facts._replace(error="no TAMQ answers" if error.retryable else error.code)
    return facts._replace(live=len(page["endpoints"]))


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None
