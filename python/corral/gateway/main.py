"""The program `corral-gateway`: the service, and what an operator asks about it.

Exit codes: 0 done, 1 something is wrong (doctor), 64 usage, 69 unavailable, 70 internal,
74 storage, 78 configuration, 130 interrupted.
"""

import asyncio
import sys
from typing import ClassVar

import click

from corral import __version__
from corral.core.cli import (
    Output,
    ProgramGroup,
    json_option,
    log_level_option,
)


class GatewayGroup(ProgramGroup):
    """The program `corral-gateway`."""

    program: ClassVar[str] = "corral-gateway"


@click.group(cls=GatewayGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="corral-gateway")
def cli() -> None:
    """An A2A server in front of agents that read a stream.

    Settings come from the environment (GATEWAY_...) or from the file that GATEWAY_CONFIG names.
    """


@cli.command()
@log_level_option
def run(log_level: str) -> None:
    """Serve until SIGTERM.

    \b
    Example:
      corral-gateway run
    """
    from corral.core import logs

    logs.configure("gateway", level=log_level)
    from corral.core.settings import load
    from corral.gateway import daemon
    from corral.gateway.settings import GatewaySettings

    asyncio.run(daemon.run(load(GatewaySettings)))


@cli.command(name="check-config")
@json_option
@click.pass_obj
def check_config(output: Output) -> None:
    """Read the settings, and say what is wrong with them. Exit status 78 when they are wrong.

    \b
    Example:
      GATEWAY_CONFIG=gateway.json corral-gateway check-config
    """
    from corral.core.settings import load
    from corral.core.sockets import check_path
    from corral.gateway.settings import GatewaySettings

    settings = load(GatewaySettings)
    check_path(settings.socket, "socket")
    agents = sorted(settings.agents)
    output.show({"ok": True, "agents": agents}, f"the settings are right; agents: {agents}")


@cli.command()
@json_option
@click.pass_obj
def doctor(output: Output) -> int:
    """Check secrets, tasks, the service, and each agent's identity at Redis.

    Exit status 1 when something is wrong; each line says what to do. Nothing is changed. What
    Redis refuses leaves a line in its ACL LOG.

    \b
    Example:
      corral-gateway doctor
    """
    from corral.core import findings
    from corral.core.settings import load
    from corral.gateway.facts import examine
    from corral.gateway.settings import GatewaySettings

    return findings.show(output, asyncio.run(examine(load(GatewaySettings))))


@cli.command()
@click.argument("any_id", metavar="[ID]", required=False)
@click.option("--all", "every", is_flag=True, help="Ended ones, too.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@json_option
@click.pass_obj
def tasks(output: Output, any_id: str | None, every: bool, limit: int) -> None:
    """List tasks that have not ended, the newest first; or say what is certain about one.

    ID is a task's, a message's or a context's. Nothing of it shows what was said.

    \b
    Examples:
      corral-gateway tasks --all
      corral-gateway tasks 0123abcd
    """
    from corral.core.clock import wall_ms
    from corral.core.errors import UnavailableError
    from corral.core.settings import load
    from corral.core.sqlite import SqliteReader
    from corral.gateway import looking
    from corral.gateway.settings import GatewaySettings

    path = load(GatewaySettings).database
    if not path.exists():
        raise UnavailableError(f"there is no {path}", hint="the first corral-gateway run makes it")

    async def ask() -> list[looking.Row]:
        async with SqliteReader(path) as reader:
            if any_id is not None:
                return await looking.shown(reader, any_id, wall_ms())
            return await looking.listed(reader, every=every, count=limit, now_ms=wall_ms())

    rows = asyncio.run(ask())
    if any_id is None:
        lines = [looking.line(row) for row in rows] or ["no tasks"]
    else:
        lines = [text for row in rows for text in looking.explained(row)]
    output.show({"tasks": rows}, "\n".join(lines))


@cli.command()
@json_option
@click.pass_obj
def backup(output: Output) -> None:
    """Write a consistent copy of the tasks, while the service works or not; prints its path.

    \b
    Example:
      corral-gateway backup
    """
    from corral.core.database import back_up
    from corral.core.errors import UnavailableError
    from corral.core.settings import load
    from corral.gateway.settings import GatewaySettings

    path = load(GatewaySettings).database
    if not path.exists():
        raise UnavailableError(f"there is no {path}", hint="the first corral-gateway run makes it")
    made = back_up(path)
    output.show({"path": str(made)}, str(made))


if __name__ == "__main__":
    sys.exit(cli())
