"""The frame of the command line: exit codes, how errors are shown, arguments that recur.

Nothing slow is imported here: a command loads what it needs when it runs.
"""

import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click
from click.shell_completion import CompletionItem

from corral.core.errors import CorralError, UsageError

EXIT_UNHEALTHY: Final = 1
EXIT_USAGE: Final = 64
EXIT_INTERNAL: Final = 70
EXIT_INTERRUPTED: Final = 130
COMMAND_TIMEOUT_S: Final = 60.0

if TYPE_CHECKING:
    from corral.cowboy.settings import CowboySettings

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


@dataclass
class Output:
    """Whether a program reads what is printed (`--json`)."""

    as_json: bool = False

    def show(self, fields: Mapping[str, Any], text: str) -> None:
        """Prints `fields` as JSON, or `text` for people."""
        click.echo(json.dumps(fields, indent=2) if self.as_json else text)

    def show_error(self, error: CorralError) -> None:
        """One line and a hint on standard error; with `--json` the answer on standard output."""
        if self.as_json:
            click.echo(json.dumps({"ok": False, "error": error.as_dict()}, indent=2))
        else:
            click.echo(f"cowboy: {error.message}", err=True)
            if error.hint:
                click.echo(f"hint: {error.hint}", err=True)


class EntryGroup(click.Group):
    """The program: as click's, but every way to fail has its documented exit code."""

    def main(
        self,
        args: Any = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        output = Output()
        try:
            result = super().main(
                args,
                prog_name or "cowboy",
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                obj=output,
                **extra,
            )
        except click.ClickException as error:
            if output.as_json:
                output.show_error(UsageError(error.format_message()))
            else:
                error.show()
            sys.exit(EXIT_USAGE)
        except (click.Abort, KeyboardInterrupt):
            click.echo("cowboy: interrupted", err=True)
            sys.exit(EXIT_INTERRUPTED)
        except Exception as error:
            _fail(error, output)
        sys.exit(result if isinstance(result, int) else 0)


def _fail(error: Exception, output: Output) -> NoReturn:
    found = next((leaf for leaf in _leaves(error) if isinstance(leaf, CorralError)), None)
    if found is None:
        # Frames only: the text of an unforeseen exception may quote content or a secret.
        faults = list(_leaves(error))
        for fault in faults:
            click.echo(f"{type(fault).__name__} at", err=True)
            click.echo("".join(traceback.format_tb(fault.__traceback__)), err=True, nl=False)
        found = CorralError(
            "a fault of the program: " + ", ".join(type(fault).__name__ for fault in faults),
            hint="report it with the lines above",
        )
    output.show_error(found)
    sys.exit(EXIT_INTERNAL if found.code == CorralError.code else found.exit_code)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """`error`, or what is in it when it is a group of a daemon's tasks."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def json_option(command: CommandT) -> CommandT:
    """`--json`: sets it for errors too, from the first argument on."""

    def chosen(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.ensure_object(Output).as_json = value

    return click.option(
        "--json",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=chosen,
        help="Print JSON, errors included.",
    )(command)


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
        sources = load(CowboySettings).load_sources(str(context.params.get("agent"))).sources
    except CorralError:
        return []
    return [CompletionItem(name) for name in sources if name.startswith(start)]


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
