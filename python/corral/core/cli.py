"""The frame of a program's command line: exit codes, how errors are shown, `--json`.

Nothing slow is imported here: a command loads what it needs when it runs.
"""

import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn, TypeVar

import click

from corral.core.errors import CorralError, UsageError

EXIT_UNHEALTHY: Final = 1
EXIT_USAGE: Final = 64
EXIT_INTERNAL: Final = 70
EXIT_INTERRUPTED: Final = 130

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


@dataclass
class Output:
    """Whether a program reads what is printed (`--json`)."""

    as_json: bool = False
    program: str = "corral"

    def show(self, fields: Mapping[str, Any], text: str) -> None:
        """Prints `fields` as JSON, or `text` for people."""
        click.echo(json.dumps(fields, indent=2) if self.as_json else text)

    def show_error(self, error: CorralError) -> None:
        """One line and a hint on standard error; with `--json` the answer on standard output."""
        if self.as_json:
            click.echo(json.dumps({"ok": False, "error": error.as_dict()}, indent=2))
        else:
            click.echo(f"{self.program}: {error.message}", err=True)
            if error.hint:
                click.echo(f"hint: {error.hint}", err=True)


class ProgramGroup(click.Group):
    """The program: as click's, but every way to fail has its documented exit code."""

    program: ClassVar[str] = "corral"

    def main(
        self,
        args: Any = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        output = Output(program=self.program)
        given = sys.argv[1:] if args is None else list(args)
        try:
            result = super().main(
                given,
                prog_name or self.program,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                obj=output,
                **extra,
            )
        except click.ClickException as error:
            # What cannot be parsed is refused before the option is looked at.
            output.as_json |= "--json" in given
            if output.as_json:
                output.show_error(UsageError(error.format_message()))
            else:
                error.show()
            sys.exit(EXIT_USAGE)
        except (click.Abort, KeyboardInterrupt):
            click.echo(f"{self.program}: interrupted", err=True)
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


log_level_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Least level of log lines.",
)


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
