"""The frame of cowboy's command line: arguments that recur. What is general is `corral.core.cli`.

Nothing slow is imported here: a command loads what it needs when it runs.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from corral.core.cli import EXIT_UNHEALTHY, Output, ProgramGroup, json_option
from corral.core.errors import CorralError, UsageError

__all__ = ["EXIT_UNHEALTHY", "EntryGroup", "Output", "json_option"]

COMMAND_TIMEOUT_S: Final = 60.0
COMPLETION_TIMEOUT_S: Final = 1.0

if TYPE_CHECKING:
    from corral.cowboy.settings import CowboySettings

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class EntryGroup(ProgramGroup):
    """The program `cowboy`."""

    program: ClassVar[str] = "cowboy"


def agent_argument(*, required: bool = True) -> Callable[[CommandT], CommandT]:
    """The argument AGENT, checked, completed from the agents of this host."""

    def checked(context: click.Context, _: click.Parameter, value: str | None) -> str | None:
        from corral.cowboy.config import is_name

        if value is not None and not is_name(value):
            raise click.BadParameter(f"{value!r} is not the name of an agent", context)
        return value

    return click.argument(
        "agent", required=required, callback=checked, shell_complete=_complete_agent
    )


def source_argument(command: CommandT) -> CommandT:
    """The argument SOURCE, completed from the agent's sources."""
    return click.argument("source", shell_complete=_complete_source)(command)


def source_option(command: CommandT) -> CommandT:
    """`--source`, completed from the agent's sources."""
    return click.option("--source", help="Only of this source.", shell_complete=_complete_source)(
        command
    )


def _complete_agent(_: click.Context, __: click.Parameter, start: str) -> list[CompletionItem]:
    from corral.core.settings import load
    from corral.cowboy.settings import CowboySettings

    try:
        names = load(CowboySettings).agents()
    except CorralError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(start)]


def _complete_source(
    context: click.Context, _: click.Parameter, start: str
) -> list[CompletionItem]:
    from corral.core.settings import load
    from corral.cowboy.settings import CowboySettings

    try:
        settings = load(CowboySettings)
        # Before the value of an option is there, click has not looked at the arguments.
        agent = context.params.get("agent")
        agents = [str(agent)] if agent else settings.agents()
        names = {name for each in agents for name in settings.load_sources(each).sources}
    except CorralError:
        return []
    return [CompletionItem(name) for name in sorted(names) if name.startswith(start)]


def turn_argument(command: CommandT) -> CommandT:
    """The argument TURN_ID, completed from the agent's open turns when its daemon answers."""
    return click.argument("turn_id", shell_complete=_complete_turn)(command)


def _complete_turn(context: click.Context, _: click.Parameter, start: str) -> list[CompletionItem]:
    request = {"op": "turns", "source": None, "state": None}
    try:
        found = asked(str(context.params.get("agent")), request, COMPLETION_TIMEOUT_S)["turns"]
    except CorralError:
        return []
    names = [str(turn["turn_id"]) for turn in found]
    return [CompletionItem(name) for name in names if name.startswith(start)]


def turn_id_of(agent: str, text: str) -> str:
    from corral.cowboy.domain import parse_turn_id

    try:
        owner = parse_turn_id(text)[0]
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is not a turn id", hint="AGENT.SOURCE.N.ENTRY-ID") from None
    if owner != agent:
        raise UsageError(f"{text} is a turn of {owner}, not of {agent}")
    return text


def settings_of_host() -> "CowboySettings":
    from corral.core.settings import load
    from corral.cowboy.settings import CowboySettings

    return load(CowboySettings)


def asked(agent: str, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    from corral.cowboy.control import ask

    return ask(settings_of_host().control_socket(agent), request, timeout_s)
