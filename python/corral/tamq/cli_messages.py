"""Commands about messages: send, message, history, ack, retry, rebind."""

import json
import os
import pwd
import sys
import time
from typing import Any, Final

import click

from corral.core.cli import Output, json_option
from corral.core.errors import UsageError
from corral.tamq import cli_complete, wire
from corral.tamq.ask import Place
from corral.tamq.cli_complete import message_argument
from corral.tamq.domain import State
from corral.tamq.errors import BodyTooLargeError
from corral.tamq.requests import LOCAL_SENDER, PAGE_DEFAULT, PAGE_MAX

EXIT_FAILED: Final = 1
EXIT_NOT_YET: Final = 75
CLIENT_ID: Final = "tamq-cli"
POLL_S: Final = 0.25


def exit_status(receipt: dict[str, Any]) -> int:
    """1 for a message that is terminally failed."""
    return EXIT_FAILED if receipt["state"] == "failed" else 0


def line(receipt: dict[str, Any]) -> str:
    """A message in one line: what is certain, and why it is not further."""
    text = f"{receipt['message_id']} {receipt['state']}"
    text += f" to {receipt['target_repo']}"
    text += f", attempt {receipt['attempt_count']} of {receipt['delivery_max_attempts']}"
    reason = receipt["waiting_reason"] or receipt["last_failure_reason"]
    return f"{text} ({reason})" if reason and receipt["state"] != "acknowledged" else text


@click.command()
@click.argument("text", metavar="TEXT|-")
@click.option(
    "--repo",
    "target",
    required=True,
    metavar="NAME",
    help="Which repository to wake.",
    shell_complete=cli_complete.repos,
)
@click.option(
    "--sender",
    default=LOCAL_SENDER,
    show_default=True,
    help="Repository that sends.",
    shell_complete=cli_complete.repos,
)
@click.option(
    "--endpoint",
    metavar="ID",
    help="Which session, if several serve the repository.",
    shell_complete=cli_complete.endpoints,
)
@click.option("--key", metavar="KEY", help="Idempotency key; made up, and shown, when absent.")
@click.option("--correlation", metavar="ID", help="Given back in receipts.")
@click.option("--metadata", metavar="JSON", help="An object, given back in receipts.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0), metavar="SECONDS",
    help="Wait until it is acknowledged (written, in a session with '--ack-mode injected') or "
    "failed; exit status 75 when it is neither in time.",
)  # fmt: skip
@json_option
@click.pass_obj
@click.pass_context
def send(
    context: click.Context,
    output: Output,
    text: str,
    target: str,
    sender: str,
    endpoint: str | None,
    key: str | None,
    correlation: str | None,
    metadata: str | None,
    wait_s: float | None,
) -> int:
    """Send TEXT to the live session that serves a repository; prints its message id and state.

    Sent again with the same --key, it is the same message. Use "-" to read standard input: what
    is an argument shows in the process list. Exit status 1 when the message is terminally failed.

    \b
    Examples:
      tamq send --repo shop "look at issue 7"
      tamq send --repo shop --wait 60 - < prompt.txt
    """
    from corral.core.ids import new_uuid

    key = key or new_uuid()
    receipt = Place.of(context).ask({
        "op": "send",
        "client_id": CLIENT_ID,
        "idempotency_key": key,
        "correlation_id": correlation,
        "sender_repo": sender,
        "target_repo": target,
        "endpoint_id": endpoint,
        "provenance": "tamq-cli",
        "metadata": _metadata(metadata),
        "body": _body(text),
    })  # fmt: skip
    status = exit_status(receipt)
    if wait_s is not None:
        receipt, status = _wait(Place.of(context), receipt, wait_s)
    again = ", sent before" if receipt.get("deduplicated") else ""
    output.show(receipt, f"{line(receipt)}{again}\nkey {key}")
    return status


@click.command()
@message_argument()
@json_option
@click.pass_obj
@click.pass_context
def message(context: click.Context, output: Output, message_id: str) -> int:
    """Show one message with its attempts; exit status 1 when it is terminally failed.

    \b
    Example:
      tamq message 42-9f3c2a7d51b04c6e8a0d1e2f3a4b5c6d
    """
    receipt = Place.of(context).ask({"op": "message", "message_id": message_id})
    lines = [line(receipt)]
    for one in reversed(receipt["attempts"]):
        reason = f" ({one['reason']})" if one["reason"] else ""
        lines.append(f"  attempt {one['attempt']} {one['leased_at']} {one['outcome']}{reason}")
    lines += [
        f"  retried {one['at']} by {one['actor']} (uid {one['uid']}): {one['why']}"
        for one in reversed(receipt["retries"])
    ]
    lines += [
        f"  bound to {one['to_endpoint_id']} {one['at']} by {one['actor']} (uid {one['uid']}): "
        f"{one['why']}"
        for one in reversed(receipt["rebindings"])
    ]
    times = ("next_attempt_at", "lease_until", "ack_deadline_at", "waiting_since")
    lines += [f"  {name} {receipt[name]}" for name in times if receipt[name] is not None]
    output.show(receipt, "\n".join(lines))
    return exit_status(receipt)


@click.command()
@click.option(
    "--repo",
    "target",
    metavar="NAME",
    help="Only to this repository.",
    shell_complete=cli_complete.repos,
)
@click.option("--client", metavar="ID", help="Only of this client.")
@click.option("--correlation", metavar="ID", help="Only with this correlation id.")
@click.option(
    "--state", type=click.Choice([state.value for state in State]), help="Only in this state."
)
@click.option("--bodies", is_flag=True, help="With what the messages say (for --json).")
@click.option(
    "--limit", type=click.IntRange(1, PAGE_MAX), default=PAGE_DEFAULT, show_default=True,
    help="At most so many.",
)  # fmt: skip
@click.option("--cursor", metavar="CURSOR", help="Go on where an earlier page ended.")
@json_option
@click.pass_obj
@click.pass_context
def history(
    context: click.Context,
    output: Output,
    target: str | None,
    client: str | None,
    correlation: str | None,
    state: str | None,
    bodies: bool,
    limit: int,
    cursor: str | None,
) -> None:
    """List messages, newest first.

    \b
    Examples:
      tamq history
      tamq history --state failed --json
    """
    answer = Place.of(context).ask({
        "op": "history",
        "target_repo": target,
        "client_id": client,
        "correlation_id": correlation,
        "state": state,
        "bodies": bodies,
        "limit": limit,
        "cursor": cursor,
    })  # fmt: skip
    lines = [f"{one['admitted_at']} {line(one)}" for one in answer["messages"]]
    if answer["cursor"] is not None:
        lines.append(f"more: --cursor {answer['cursor']}")
    output.show(answer, "\n".join(lines) or "no messages")


@click.command()
@message_argument("awaiting_ack")
@json_option
@click.pass_obj
@click.pass_context
def ack(context: click.Context, output: Output, message_id: str) -> None:
    """Acknowledge a message: it was received and understood. Late is better than never.

    \b
    Example:
      tamq ack 42-9f3c2a7d51b04c6e8a0d1e2f3a4b5c6d
    """
    receipt = Place.of(context).ask({"op": "ack", "message_id": message_id})
    output.show(receipt, f"{message_id} acknowledged (was {receipt['state_before']})")


@click.command()
@message_argument("failed")
@click.option("--why", required=True, help="For the record.")
@click.option("--actor", help="Who decides; default: the user's name.")
@json_option
@click.pass_obj
@click.pass_context
def retry(
    context: click.Context, output: Output, message_id: str, why: str, actor: str | None
) -> None:
    """Let a failed message be attempted again, with all its attempts. An operator's decision.

    \b
    Example:
      tamq retry 42-9f3c2a7d51b04c6e8a0d1e2f3a4b5c6d --why "the pane was in copy mode"
    """
    receipt = Place.of(context).ask(
        {"op": "retry", "message_id": message_id, "actor": actor or _user(), "why": why}
    )
    output.show(receipt, line(receipt))


@click.command()
@click.argument(
    "message_ids", metavar="MESSAGE_ID...", nargs=-1, required=True,
    shell_complete=cli_complete.messages("pending"),
)  # fmt: skip
@click.option("--why", required=True, help="For the record.")
@click.option(
    "--endpoint", metavar="ID", help="Which session, if several serve the repository.",
    shell_complete=cli_complete.endpoints,
)  # fmt: skip
@click.option("--actor", help="Who decides; default: the user's name.")
@json_option
@click.pass_obj
@click.pass_context
def rebind(
    context: click.Context,
    output: Output,
    message_ids: tuple[str, ...],
    why: str,
    endpoint: str | None,
    actor: str | None,
) -> None:
    """Give messages of an ended session to the one that took its place. An operator's decision.

    A client that repeats its send with the same key does the same. A message whose session is
    live stays there.

    \b
    Example:
      tamq rebind 42-9f3c2a7d51b04c6e8a0d1e2f3a4b5c6d --why "the agent was started again"
    """
    fields = {"op": "rebind", "endpoint_id": endpoint, "actor": actor or _user(), "why": why}
    place = Place.of(context)
    receipts = [place.ask({**fields, "message_id": one}) for one in message_ids]
    lines = [
        f"{line(one)}, {'bound' if one['rebound'] else 'stays bound'} to {one['endpoint_id']}"
        for one in receipts
    ]
    output.show({"messages": receipts}, "\n".join(lines))


COMMANDS: Final = (send, message, history, ack, retry, rebind)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _body(text: str) -> str:
    data = sys.stdin.buffer.read(wire.BODY_MAX_BYTES + 1) if text == "-" else os.fsencode(text)
    if text == "-" and len(data) > wire.BODY_MAX_BYTES:  # how much more is not known
        raise BodyTooLargeError(
            f"body: standard input has more than {wire.BODY_MAX_BYTES} bytes",
            hint="put what is long into a file of the repository, and name it",
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError("the text is not UTF-8") from None


def _metadata(text: str | None) -> object:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        raise UsageError("--metadata is not JSON") from None


def _wait(place: Place, receipt: dict[str, Any], wait_s: float) -> tuple[dict[str, Any], int]:
    """The newest receipt, and the exit status that it stands for."""
    deadline = time.monotonic() + wait_s
    sent = {"deduplicated": receipt["deduplicated"], "rebound": receipt["rebound"]}
    while True:
        receipt = place.ask({"op": "message", "message_id": receipt["message_id"]}) | sent
        if receipt["terminal"]:
            return receipt, exit_status(receipt)
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return receipt, EXIT_NOT_YET
        time.sleep(min(POLL_S, left_s))
