"""Commands about sessions: endpoints, attach, run, detach."""

from typing import Any, Final

import click

from corral.core.cli import Output, json_option
from corral.tamq import cli_complete
from corral.tamq.ask import Place
from corral.tamq.domain import ATTEMPTS_DEFAULT, ATTEMPTS_MAX, ATTEMPTS_MIN, AckMode
from corral.tamq.errors import TamqError
from corral.tamq.requests import LOCAL_SENDER


def session_options(command: Any) -> Any:
    """What a session says of itself when it registers."""
    options = (
        click.option(
            "--repo", "repos", multiple=True, required=True, metavar="NAME",
            help="A repository that the session serves; may be repeated.",
            shell_complete=cli_complete.repos,
        ),
        click.option(
            "--profile", show_default="by the program: shell, claude-code, codex, else plain",
            help="How ready looks.", shell_complete=cli_complete.profiles,
        ),
        click.option("--label", default="", help="For people."),
        click.option(
            "--max-attempts", type=click.IntRange(ATTEMPTS_MIN, ATTEMPTS_MAX),
            default=ATTEMPTS_DEFAULT, show_default=True, help="Attempts for each message.",
        ),
        click.option(
            "--ack-mode", type=click.Choice([mode.value for mode in AckMode]),
            default=AckMode.ACKNOWLEDGED.value, show_default=True,
            help="What completes a message: the write, or 'tamq ack'.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def registration(
    repos: tuple[str, ...], profile: str, label: str, max_attempts: int, ack_mode: str
) -> dict[str, object]:
    """The fields of `register` besides the terminal."""
    policy = {"delivery_max_attempts": max_attempts, "delivery_ack_mode": ack_mode}
    fields: dict[str, object] = {"repos": list(repos), "profile": profile, "policy": policy}
    return fields | ({"label": label} if label else {})


def warn_of_unknown(repos: tuple[str, ...]) -> None:
    """On standard error: for which of these names no message will come. The session goes on."""
    from corral.core.settings import load
    from corral.tamq.registry import Registry
    from corral.tamq.settings import TamqSettings

    registry = Registry(load(TamqSettings).gita_repos)
    for repo in repos:
        try:
            registry.check(LOCAL_SENDER, repo)
        except TamqError as error:
            told = error.message.removeprefix("target_repo: ")
            click.echo(f"tamq: warning: {told}; until that is mended, sends are refused", err=True)
            if error.hint:
                click.echo(f"hint: {error.hint}", err=True)


@click.command()
@click.option(
    "--repo", metavar="NAME", help="Only those that serve this repository.",
    shell_complete=cli_complete.repos,
)  # fmt: skip
@json_option
@click.pass_obj
@click.pass_context
def endpoints(context: click.Context, /, output: Output, repo: str | None) -> None:
    """List the live sessions: what they serve, whether they are ready, and since when.

    \b
    Example:
      tamq endpoints
    """
    place, found, cursor = Place.of(context), [], None
    while True:
        answer = place.ask({"op": "endpoints", "repo": repo, "cursor": cursor})
        found += answer["endpoints"]
        cursor = answer["cursor"]
        if cursor is None:
            break
    lines = [
        f"{one['endpoint_id']} {one['terminal']['kind']} {','.join(one['repos'])}: "
        f"{one['ready']} ({one['ready_reason']}) since {one['ready_since']}, "
        f"{one['open_messages']} open"
        for one in found
    ]
    output.show({"endpoints": found}, "\n".join(lines) or "no live sessions")


@click.command()
@session_options
@click.option("--pane", metavar="%N", help="The tmux pane; default: the one we are in.")
@click.option("--tmux-socket", metavar="PATH", help="Of the tmux server; default: ours.")
@json_option
@click.pass_obj
@click.pass_context
def attach(
    context: click.Context,
    output: Output,
    /,
    pane: str | None,
    tmux_socket: str | None,
    **session: Any,
) -> None:
    """Register a tmux pane: its messages are written there from now on.

    \b
    Examples:
      tamq attach --repo shop
      tamq attach --repo shop --pane %7 --tmux-socket "${TMUX%%,*}"
    """
    import asyncio
    import os

    from corral.tamq.terminal import address, process, profiles
    from corral.tamq.terminal.attach import discover, pane_of

    if pane is None or tmux_socket is None:
        own_socket, own_pane = pane_of(os.environ)
        pane, tmux_socket = pane or own_pane, tmux_socket or own_socket
    found = asyncio.run(discover(tmux_socket, pane))
    session["profile"] = session["profile"] or profiles.usual(process.command(found.process.pid))
    fields = {"op": "register", "terminal": address.as_dict(found), **registration(**session)}
    answer = Place.of(context).ask(fields)
    warn_of_unknown(session["repos"])
    output.show(answer, f"endpoint {answer['endpoint_id']} serves {', '.join(answer['repos'])}")


@click.command(context_settings={"ignore_unknown_options": True})
@session_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(context: click.Context, /, command: tuple[str, ...], **session: Any) -> int:
    """Run COMMAND on a terminal of its own that TAMQ can write to; no tmux needed.

    Nothing else changes for the person in front of it. The session starts without TAMQ, and
    outlives it. Exits as COMMAND does. Put "--" before COMMAND.

    \b
    Example:
      tamq run --repo shop -- bash
    """
    from corral.core import logs
    from corral.core.settings import load
    from corral.tamq.client import AsyncClient
    from corral.tamq.keep import keep_registered
    from corral.tamq.sessions import Sessions
    from corral.tamq.settings import TamqSettings
    from corral.tamq.terminal import address, profiles
    from corral.tamq.terminal.base import Address
    from corral.tamq.terminal.run import run as run_session

    settings = load(TamqSettings, socket=Place.of(context).path)
    session["profile"] = session["profile"] or profiles.usual(command[0])
    profile = Sessions(settings.profiles).profile(session["profile"])
    client = AsyncClient(settings.socket)

    async def register(where: Address) -> None:
        terminal = address.as_dict(where)
        await keep_registered(
            client, {"op": "register", "terminal": terminal, **registration(**session)}
        )

    logs.configure("tamq", level="error")
    warn_of_unknown(session["repos"])
    folder = settings.socket.parent
    return run_session(command, profile=profile, runtime_dir=folder, register=register)


@click.command()
@click.argument("endpoint_id", shell_complete=cli_complete.endpoints)
@json_option
@click.pass_obj
@click.pass_context
def detach(context: click.Context, output: Output, endpoint_id: str) -> None:
    """Let a session get no more messages. The session itself goes on; its messages stay.

    \b
    Example:
      tamq detach 3f0c2a7d-51b0-4c6e-8a0d-1e2f3a4b5c6d
    """
    answer = Place.of(context).ask({"op": "unregister", "endpoint_id": endpoint_id})
    output.show(answer, f"endpoint {endpoint_id} is detached")


COMMANDS: Final = (endpoints, attach, run, detach)
