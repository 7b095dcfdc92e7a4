"""Background tasks whose failure is seen."""

import asyncio


def watched(task: asyncio.Task[None]) -> asyncio.Task[None]:
    """Gives an exception of the task to the loop's handler, at once. Returns the task."""
    task.add_done_callback(_check)
    return task


def _check(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.result()
