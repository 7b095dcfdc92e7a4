"""The program `corral`: all services of this host on one screen, a message's way, backups.

Exit codes: 0 all is well, 1 something is wrong, 64 usage, 69 no service is here, 74 storage,
78 configuration.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import click

from corral import __version__
from corral.backup import cli as copies
from corral.core.cli import EXIT_INTERRUPTED, EXIT_UNHEALTHY, Output, ProgramGroup, json_option
from corral.overview import ANSWER_S

WATCH_S: Final = 2.0
UP: Final = (Path(".corral") / "up", Path(".corral") / "bridge")
COLOURS: Final = {"ok": "green", "warn": "yellow", "bad": "red"}


class CorralGroup(ProgramGroup):
    """The program `corral`."""

    program: ClassVar[str] = "corral"


directories = click.option(
    "--dir",
    "chosen",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The directory of a ./corral up; may be repeated. Default: the environment's services, "
    "else those of .corral/up and .corral/bridge, else the host's.",
)
patience = click.option(
    "--timeout",
    "within_s",
    type=click.FloatRange(min=0, min_open=True),
    default=ANSWER_S,
    show_default=True,
    metavar="SECONDS",
    help="How long a service's program has for an answer.",
)


@click.group(cls=CorralGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="corral")
def cli() -> None:
    """All services of this host on one screen.

    Each is asked by its own program. Which are here, the environment says: COWBOY_CONFIG_DIR,
    TAMQ_SOCKET, BRIDGE_CONFIG, GATEWAY_CONFIG. Without them: what a ./corral up here has, else
    what the NixOS modules set up on this host (as root).
    """


@cli.command()
@directories
@patience
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@json_option
@click.pass_obj
def status(output: Output, chosen: tuple[Path, ...], within_s: float, watch: bool) -> int:
    """Show how each service is, and what waits where; exit status 1 when one is not well.

    \b
    Examples:
      corral status --watch
      corral status --dir .corral/up --json
    """
    if not watch:
        return _show(output, _asked("status", chosen, within_s), every=True)
    while True:
        lines = _asked("status", chosen, within_s)
        if not output.as_json:
            click.clear()
        _show(output, lines, every=True)
        try:
            time.sleep(WATCH_S)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED


@cli.command()
@directories
@patience
@click.option("--all", "every", is_flag=True, help="Show what is well, too.")
@json_option
@click.pass_obj
def doctor(output: Output, chosen: tuple[Path, ...], within_s: float, every: bool) -> int:
    """Let each service look for what is wrong, and say what to do; exit status 1 when something is.

    \b
    Example:
      corral doctor --all
    """
    return _show(output, _asked("doctor", chosen, within_s), every=every)


@cli.command()
@click.argument("any_id", metavar="ID")
@directories
@patience
@json_option
@click.pass_obj
def trace(output: Output, any_id: str, chosen: tuple[Path, ...], within_s: float) -> None:
    """Show the way of one message through all services, and where it is; ID is any that it has.

    That of a Matrix event or reply, a homeserver's transaction, a job, an A2A message, a task, an
    inbox or outbox entry, a producer's message, a turn, a message of TAMQ. Says what is certain,
    where the chain ends, and what to do next. Nothing of it shows what was said, and nothing is
    changed.

    \b
    Examples:
      corral trace '$event'
      corral trace scout.a2a.1.1732935482123-0 --json
    """
    import asyncio

    from corral.overview import chain, tracing

    here, variables = _here(chosen)
    found = asyncio.run(tracing.gather(any_id, here, variables, within_s))
    traced = chain.of(found)
    output.show(traced.as_dict(any_id), "\n".join(traced.lines()))


def _here(chosen: Sequence[Path]) -> tuple[list[Any], dict[str, str]]:
    """The services that are here, and the environment that leads to them."""
    import os

    from corral.core.errors import UnavailableError
    from corral.overview import programs

    places: list[Callable[[], dict[str, str]]] = [lambda: programs.environment(chosen, os.environ)]
    if not chosen:
        up = [one for one in UP if (one / programs.ENV_FILE).is_file()]
        places.append(lambda: programs.environment(up, os.environ))
        places.append(lambda: {**os.environ, **programs.of_host()})
    for place in places:
        variables = place()
        if here := programs.present(variables):
            return here, variables
    raise UnavailableError(
        "no service is here",
        hint="set what its program needs (such as COWBOY_CONFIG_DIR), or name a --dir",
    )


def _asked(command: str, chosen: Sequence[Path], within_s: float) -> list[Any]:
    """The lines of all services that are here. UnavailableError when none is."""
    import asyncio

    from corral.overview import programs
    from corral.overview.lines import Line, lines_of

    here, variables = _here(chosen)

    async def ask_all() -> list[Line]:
        answers = await asyncio.gather(*(
            programs.ask(
                one, one.status if command == "status" else one.doctor, variables, within_s
            )
            for one in here
        ))  # fmt: skip
        return [
            line
            for one, said in zip(here, answers, strict=True)
            for line in lines_of(one.name, said)
        ]

    return asyncio.run(ask_all())


def _show(output: Output, lines: Sequence[Any], *, every: bool) -> int:
    bad = sum(line.level == "bad" for line in lines)
    warned = sum(line.level == "warn" for line in lines)
    fields = {"healthy": not bad, "lines": [line.as_dict() for line in lines]}
    output.show(fields, "\n".join(_texts(lines, every=every)))
    if not output.as_json:
        fine = len(lines) - bad - warned
        click.echo(f"{fine} well, {warned} to be looked at, {bad} wrong")
    return EXIT_UNHEALTHY if bad else 0


def _texts(lines: Iterable[Any], *, every: bool) -> list[str]:
    shown = [line for line in lines if every or line.level != "ok"]
    of_service = max((len(line.service) for line in shown), default=0)
    of_what = max((len(line.what) for line in shown), default=0)
    texts = []
    for line in shown:
        mark = click.style(f"{line.level:<4}", fg=COLOURS[line.level], bold=line.level == "bad")
        texts.append(f"{mark}  {line.service:<{of_service}}  {line.what:<{of_what}}  {line.text}")
        if line.hint and line.level != "ok":
            texts.append(" " * (4 + 2 + of_service + 2 + of_what + 2) + f"do: {line.hint}")
    return texts


for _command in (copies.backup, copies.restore):
    cli.add_command(_command)


if __name__ == "__main__":
    cli()
