"""The program `tamq`: the service, and a command for each operation of the protocol.

Exit codes: 0 done, 1 the message is failed (or `doctor` found a fault), 64 usage, 65 conflict,
66 not found, 69 unavailable, 70 internal, 74 storage, 75 not complete yet, 77 not this user,
78 configuration or protocol, 130 interrupted.
"""

import sys
from pathlib import Path
from typing import Any, ClassVar

import click

from corral import __version__
from corral.core.cli import Output, ProgramGroup, json_option, log_level_option
from corral.tamq import cli_messages, cli_sessions, host
from corral.tamq.ask import Place


class TamqGroup(ProgramGroup):
    """The program `tamq`."""

    program: ClassVar[str] = "tamq"


@click.group(
    cls=TamqGroup,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="tamq")
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Where TAMQ listens; default: TAMQ_SOCKET, or in the user's runtime directory.",
)
@click.option("--user", metavar="NAME", help="As root: ask this user's TAMQ, as that user.")
@click.pass_context
def cli(context: click.Context, socket: Path | None, user: str | None) -> None:
    """A durable queue that wakes live agent sessions in their terminals.

    Settings come from the environment (TAMQ_...), or from the file that the host has for the
    user, /etc/tamq/USER/settings.json; see the reference of settings.
    """
    host.adopt(user)
    context.meta[Place.KEY] = Place(socket, user)


@cli.command()
@log_level_option
@click.pass_context
def serve(context: click.Context, log_level: str) -> None:
    """Run TAMQ for this user, until SIGTERM.

    \b
    Example:
      tamq serve
    """
    import asyncio

    from corral.core import logs

    logs.configure("tamq", level=log_level)
    from corral.core.settings import load
    from corral.tamq.daemon import Daemon
    from corral.tamq.sessions import Sessions
    from corral.tamq.settings import TamqSettings

    place: Place = context.meta[Place.KEY]
    settings = load(TamqSettings, socket=place.socket)
    sessions = Sessions(settings.profiles)
    asyncio.run(Daemon(settings, sessions.open, sessions.check).run())


@cli.command()
@json_option
@click.pass_obj
@click.pass_context
def ping(context: click.Context, output: Output) -> None:
    """Ask TAMQ whether it is there, which protocol it speaks and what it can do.

    \b
    Example:
      tamq ping --json
    """
    answer = Place.of(context).ask({"op": "ping"})
    text = f"TAMQ {answer['instance']}, protocol {answer['protocol']}"
    output.show(answer, f"{text}: {', '.join(answer['capabilities'])}")


@cli.command()
@json_option
@click.pass_obj
@click.pass_context
def doctor(context: click.Context, output: Output) -> int:
    """Check the socket, the service, the registry of repositories and the sessions.

    Exit status 1 when something is wrong; each line says what to do.

    \b
    Example:
      tamq doctor
    """
    from corral.tamq import doctor as checks

    found = checks.run(Place.of(context))
    lines = [f"{'ok  ' if one['ok'] else 'FAIL'} {one['check']}: {one['text']}" for one in found]
    healthy = all(one["ok"] for one in found)
    output.show({"healthy": healthy, "checks": found}, "\n".join(lines))
    return 0 if healthy else 1


@cli.command()
@json_option
@click.pass_obj
@click.pass_context
def backup(context: click.Context, output: Output) -> None:
    """Write a consistent copy of the queue, while TAMQ works or not; prints its path.

    \b
    Examples:
      tamq backup
      tamq --user alice backup
    """
    from corral.core.database import back_up
    from corral.core.errors import UnavailableError
    from corral.core.settings import load
    from corral.tamq.settings import TamqSettings

    Place.of(context).become_owner()
    path = load(TamqSettings).database
    if not path.exists():
        raise UnavailableError(f"there is no {path}", hint="the first tamq serve makes it")
    made = back_up(path)
    output.show({"path": str(made)}, str(made))


@cli.command("check-config")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
@click.pass_obj
def check_config(output: Output, file: Path) -> None:
    """Check FILE, a file of settings, as 'tamq serve' would read it.

    Exit status 78 when it is wrong. Profiles are checked, too, if their file is on this machine.

    \b
    Example:
      tamq check-config /etc/tamq/alice/settings.json
    """
    import os

    from corral.core import sockets
    from corral.core.errors import ConfigError
    from corral.core.settings import load
    from corral.tamq.sessions import Sessions
    from corral.tamq.settings import TamqSettings

    for variable in [name for name in os.environ if name.startswith("TAMQ_")]:
        del os.environ[variable]  # the file is in question, not this shell
    os.environ[host.CONFIG] = str(file)
    try:
        settings = load(TamqSettings)
    except ConfigError as error:
        if error.ids.get("key") != host.CONFIG:
            raise
        text = error.message.removeprefix(f"{host.CONFIG}: ")  # it is not there that FILE was named
        raise ConfigError(text, ids={"path": str(file)}) from None
    sockets.check_path(settings.socket, "socket")
    known = settings.profiles if settings.profiles and settings.profiles.exists() else None
    names = sorted(Sessions(known).profiles)
    output.show(
        {"ok": True, "file": str(file), "socket": str(settings.socket), "profiles": names},
        f"ok: {settings.socket}, profiles {', '.join(names)}",
    )


@cli.command()
def schema() -> None:
    """Print the JSON Schema of the protocol.

    \b
    Example:
      tamq schema > tamq.schema.json
    """
    from corral.tamq.schema import schema_text

    click.echo(schema_text(), nl=False)


@cli.command()
@click.argument("file", type=click.File("rb"))
@json_option
@click.pass_obj
@click.pass_context
def replay(context: click.Context, output: Output, file: Any) -> int:
    """Send what FILE holds again: a capture, or one message a line.

    Exit status 1 if one is refused. What was sent by an earlier replay is found, not sent twice.

    \b
    Example:
      tamq replay /var/log/tamq/capture.jsonl
    """
    from corral.tamq import replay as player

    report = player.replay(player.lines_of(file), Place.of(context).ask)
    lines = [
        f"line {line}: {error['code']}: {error['message']}"
        for line, error in report.refused.items()
    ]
    lines.append(
        f"{len(report.sent)} sent, {len(report.deduplicated)} deduplicated, "
        f"{len(report.refused)} refused, {len(report.skipped)} skipped"
    )
    output.show(report.as_dict(), "\n".join(lines))
    return 1 if report.refused else 0


for _command in (*cli_messages.COMMANDS, *cli_sessions.COMMANDS):
    cli.add_command(_command)


if __name__ == "__main__":
    sys.exit(cli())
