"""`cowboy reply`: a live session answers a turn that it was woken for."""

import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from corral.core.errors import UnavailableError, UsageError
from corral.cowboy.cli import COMMAND_TIMEOUT_S, Output, json_option, settings_of_host

PAUSE_S: Final = 0.3
_TURN: Final = "scout.a2a.1.1732935482123-0"


@click.command(
    help=f"""Answer TURN_ID, as the live session that was woken for it.

    The answer is TEXT, or what --file names; "--file -" reads standard input. It is UTF-8. Exit
    status 0 means that it is committed: its sender gets it. The same answer again is taken once.
    While the daemon does not answer, this tries again for --wait seconds.

    \b
    Examples:
      cowboy reply {_TURN} "issue 7 is closed"
      cowboy reply {_TURN} --file answer.md
      cowboy reply {_TURN} --state input_required "which of the two?"
    """
)
@click.argument("turn_id")
@click.argument("text", nargs=-1)
@click.option(
    "--file", "-f", metavar="FILE|-", type=click.Path(path_type=Path), help="Holds the answer."
)
@click.option(
    "--state",
    type=click.Choice(["completed", "input_required", "failed"]),
    default="completed",
    show_default=True,
    help="What the answer is: the result, a question to the sender, or why there is none.",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(0, 3600),
    default=30,
    show_default=True,
    help="How many seconds to try while the daemon does not answer.",
)
@json_option
@click.pass_obj
def reply(
    output: Output, turn_id: str, text: tuple[str, ...], file: Path | None, state: str, wait_s: int
) -> None:
    import base64

    from corral.cowboy.domain import parse_turn_id
    from corral.cowboy.hostfacts import unit_settings

    try:
        agent = parse_turn_id(turn_id)[0]
    except (ValueError, OverflowError):
        raise UsageError(f"{turn_id!r} is not a turn id", hint="AGENT.SOURCE.N.ENTRY-ID") from None
    body = base64.b64encode(_body(text, file)).decode()
    settings = settings_of_host()
    socket = unit_settings(settings, agent).reply_socket(agent)
    request = {"op": "reply", "turn_id": turn_id, "outcome": state, "body": body}
    answer = _asked(socket, request, time.monotonic() + wait_s)
    again = " already" if answer.get("repeated") else ""
    output.show(answer, f"taken{again}: {turn_id}")


def _body(text: tuple[str, ...], file: Path | None) -> bytes:
    if bool(text) == (file is not None):
        raise UsageError("give the answer as TEXT, or by --file", hint='"--file -" reads it')
    if file is None:
        return " ".join(text).encode(errors="surrogateescape")
    limit = 1024 * 1024
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(limit)
        with file.open("rb") as opened:
            return opened.read(limit)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error


def _asked(socket: Path, request: dict[str, Any], until_s: float) -> dict[str, Any]:
    from corral.cowboy.control import PeerDeniedError, RemoteError, ask

    while True:
        try:
            return ask(socket, request, COMMAND_TIMEOUT_S)
        except (UnavailableError, RemoteError) as error:
            passing = error.exit_code == UnavailableError.exit_code
            if not passing or error.code == PeerDeniedError.code or time.monotonic() >= until_s:
                raise
        time.sleep(PAUSE_S)
