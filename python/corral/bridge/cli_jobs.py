"""Commands about jobs: jobs list, show, explain; resolve; cancel."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import click

from corral.bridge.domain import State
from corral.core.cli import Output, json_option

LIST_MAX: Final = 1_000
SHORT: Final = ("job_id", "state", "reason", "ghost", "room_id")

T = TypeVar("T")


def _ask(work: Callable[[Any], Awaitable[T]]) -> T:
    """Does `work` with the ledger of the settings."""
    import asyncio

    from corral.bridge.database import Ledger, Target, check, connection
    from corral.bridge.settings import BridgeSettings
    from corral.core.settings import load

    settings = load(BridgeSettings)
    target = Target(
        settings.database.get_secret_value(), settings.database_pooled, "a2a-bridge cli"
    )

    async def run() -> T:
        async with connection(target) as made:
            await check(made)  # nothing is said, or written, of a ledger of another release
        async with Ledger(target, 1) as ledger:
            return await work(ledger)

    return asyncio.run(run())


def _change(work: Callable[[Any, str], Awaitable[T]]) -> T:
    """As `_ask`, with who asks; its audit record goes to the system's log, too."""
    from corral.bridge import operations
    from corral.core import logs

    logs.configure("bridge", system_log="a2a-bridge")
    return _ask(lambda ledger: work(ledger, operations.whoami()))


@click.group()
def jobs() -> None:
    """Look at jobs. Nothing of it shows what was said."""


@jobs.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice([state.value for state in State]),
    multiple=True,
    help="Only these; default: what is open, and what ended uncertain or dead.",
)
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=50, show_default=True)
@json_option
@click.pass_obj
def list_jobs(output: Output, states: tuple[str, ...], limit: int) -> None:
    """List jobs, the newest first.

    \b
    Example:
      a2a-bridge jobs list --state ambiguous --state dead
    """
    from corral.bridge import operations

    rows = _ask(lambda ledger: operations.listed(ledger, list(states) or None, limit))
    lines = [
        " ".join(str(row[name] or "-") for name in SHORT) + f" {row['age_s']:.0f} s" for row in rows
    ]
    output.show({"jobs": rows}, "\n".join(lines) or "no jobs")


@jobs.command()
@click.argument("any_id", metavar="ID")
@json_option
@click.pass_obj
def show(output: Output, any_id: str) -> None:
    """Show all evidence of a job. ID: its own, or of an event, A2A message, task, control, or of
    the homeserver's transaction.

    \b
    Example:
      a2a-bridge jobs show '$event'
    """
    row = _found(any_id)
    fields = [f"{key}: {value}" for key, value in row.items() if key != "controls"]
    controls = [
        f"control {one['kind']} {one['control_id']}: {one['state']} {one['error_code'] or ''}"
        for one in row["controls"]
    ]
    output.show(row, "\n".join([*fields, *controls]))


@jobs.command()
@click.argument("any_id", metavar="ID")
@json_option
@click.pass_obj
def explain(output: Output, any_id: str) -> None:
    """Say what is certain about a job, what is not, and what to do.

    \b
    Example:
      a2a-bridge jobs explain 0f3c…
    """
    from corral.bridge import operations

    row = _found(any_id)
    lines = operations.explained(row)
    output.show({"job_id": row["job_id"], "state": row["state"], "lines": lines}, "\n".join(lines))


def _found(any_id: str) -> dict[str, Any]:
    from corral.bridge import operations

    async def look(ledger: Any) -> dict[str, Any]:
        return await operations.shown(ledger, await operations.find(ledger, any_id))

    return _ask(look)


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option("--note", required=True, help="What was found out; kept with the job.")
@json_option
@click.pass_obj
def resolve(output: Output, job_id: str, note: str) -> None:
    """Close a job that ended ambiguous or dead, with what was found out. Nothing is sent.

    \b
    Example:
      a2a-bridge resolve 0f3c… --note 'the agent has no such message'
    """
    from corral.bridge import operations

    _change(lambda ledger, by: operations.resolve(ledger, job_id, note, by=by))
    output.show({"ok": True, "job_id": job_id}, f"job {job_id} is resolved")


@click.command()
@click.argument("job_id", metavar="JOB")
@json_option
@click.pass_obj
def cancel(output: Output, job_id: str) -> None:
    """Cancel a job: at once while it is queued, else by asking its agent, once.

    \b
    Example:
      a2a-bridge cancel 0f3c…
    """
    from corral.bridge import operations

    done = _change(lambda ledger, by: operations.cancel(ledger, job_id, by=by))
    text = "is cancelled" if done == "ended" else "will be cancelled by its worker"
    output.show({"ok": True, "job_id": job_id, "cancel": done}, f"job {job_id} {text}")


COMMANDS: Final = (jobs, resolve, cancel)
