"""The program `a2a-bridge`: the service, and what an operator asks of it.

Exit codes: 0 done, 1 `doctor` found a fault, 64 usage, 65 not in this state, 66 not found,
69 unavailable, 70 internal, 74 storage,
78 configuration, 130 interrupted.
"""

import sys
from typing import ClassVar

import click

from corral import __version__
from corral.bridge import cli_card, cli_jobs
from corral.core.cli import Output, ProgramGroup, json_option, log_level_option


class BridgeGroup(ProgramGroup):
    """The program `a2a-bridge`."""

    program: ClassVar[str] = "a2a-bridge"


@click.group(
    cls=BridgeGroup,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="a2a-bridge")
def cli() -> None:
    """Mentions in Matrix rooms become tasks of A2A agents, through a durable ledger.

    Settings come from the environment (BRIDGE_...) and from the file that BRIDGE_CONFIG names.
    """


@cli.command()
@log_level_option
def run(log_level: str) -> None:
    """Run the bridge, until SIGTERM; then drain.

    \b
    Example:
      a2a-bridge run
    """
    import asyncio

    from corral.core import logs

    logs.configure("bridge", level=log_level)
    from corral.bridge.service import Bridge
    from corral.bridge.settings import BridgeSettings
    from corral.core.settings import load

    settings = load(BridgeSettings)

    async def serve() -> None:
        await Bridge(settings).run()

    asyncio.run(serve())


@cli.command("check-config")
@json_option
@click.pass_obj
def check_config(output: Output) -> None:
    """Check the settings as 'a2a-bridge run' would read them. Exit status 78 when they are wrong.

    \b
    Example:
      a2a-bridge check-config
    """
    from corral.bridge import registration, service
    from corral.bridge.a2a.agents import HttpAgents
    from corral.bridge.settings import BridgeSettings
    from corral.core.settings import load

    settings = load(BridgeSettings)
    registration.document(registration.of(settings))
    HttpAgents(service.agent_targets(settings))
    agents = sorted(settings.agents)
    output.show({"ok": True, "agents": agents}, f"the settings are right; agents: {agents}")


@cli.command("registration")
def show_registration() -> None:
    """Print the registration for the homeserver. It holds both tokens: keep it private.

    \b
    Example:
      a2a-bridge registration > registration.yaml
    """
    from corral.bridge import registration
    from corral.bridge.settings import BridgeSettings
    from corral.core.settings import load

    click.echo(registration.text(registration.of(load(BridgeSettings))), nl=False)


@cli.command()
@click.option("--room", "rooms", multiple=True, metavar="ROOM", help="Look at this room, too.")
@json_option
@click.pass_obj
def doctor(output: Output, rooms: tuple[str, ...]) -> int:
    """Check settings, database, worker, queue, homeserver, rooms and agents.

    Exit status 1 when something is wrong; each line says what to do. Nothing is changed, but
    that an agent's user without an account gets one, as at every start.

    \b
    Example:
      a2a-bridge doctor
    """
    import asyncio

    from corral.bridge.doctor_facts import examine
    from corral.bridge.settings import BridgeSettings
    from corral.core import findings
    from corral.core.settings import load

    return findings.show(output, asyncio.run(examine(load(BridgeSettings), rooms)))


for _command in (*cli_jobs.COMMANDS, cli_card.card):
    cli.add_command(_command)


if __name__ == "__main__":
    sys.exit(cli())
