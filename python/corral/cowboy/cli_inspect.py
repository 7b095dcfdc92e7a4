"""`cowboy explain` and `cowboy resubmit`: what became of one message, and sending it again."""

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from corral.core.errors import CorralError, UsageError
from corral.cowboy.cli import (
    COMMAND_TIMEOUT_S,
    Output,
    agent_argument,
    asked,
    json_option,
    settings_of_host,
    source_option,
)

if TYPE_CHECKING:
    from corral.cowboy.investigate import Case


@click.command()
@agent_argument()
@click.argument("id_", metavar="ID")
@source_option
@click.option("--show-content", is_flag=True, help="Print what the message says, too.")
@json_option
@click.pass_obj
def explain(output: Output, agent: str, id_: str, source: str | None, show_content: bool) -> None:
    """Say what became of a message of AGENT: what is certain, what is not, what to do.

    ID is the id of an inbox entry, of a turn, of an entry of the outbox that answers it, or the
    message id that its producer gave it. Asks the daemon and reads Redis; when one of them does
    not answer, the rest is said, and that. Writes nothing.

    \b
    Examples:
      cowboy explain scout 1732935482123-0
      cowboy explain scout scout.a2a.1.1732935482123-0 --json
    """
    from corral.cowboy import investigate, view_case

    cases = investigate.cases_of(settings_of_host(), agent, id_, source)
    fields = [view_case.fields(case, content=show_content) for case in cases]
    text = "\n\n".join(view_case.text(case, content=show_content) for case in cases)
    output.show({"agent": agent, "id": id_, "explanations": fields}, text)


@click.command()
@agent_argument()
@click.argument("id_", metavar="ID")
@source_option
@click.option(
    "--reconciled",
    required=True,
    metavar="NOTE",
    help="What you found that the first run did; kept with the new entry and in the ledger.",
)
@click.option("--content", metavar="TEXT|-", help="What it said, when that is gone; - reads it.")
@json_option
@click.pass_obj
def resubmit(
    output: Output, agent: str, id_: str, source: str | None, reconciled: str, content: str | None
) -> None:
    """Send a message of AGENT again, to the same sender and channel, so that its reply is routed.

    Refused while its turn could still run, and when it has a reply. First find out with 'cowboy
    explain', and by looking at what the message asked for, what the first run did.

    \b
    Example:
      cowboy resubmit scout 1732935482123-0 --reconciled "no mail was sent, nothing written"
    """
    from corral.cowboy import investigate, resubmitting

    resubmitting.check_note(reconciled)
    settings = settings_of_host()
    cases = investigate.cases_of(settings, agent, id_, source)
    if len(cases) > 1:
        names = ", ".join(case.source.source for case in cases)
        raise UsageError(f"several sources could have {id_}: {names}", hint="choose with --source")
    (case,) = cases
    body = _body(content, case)
    again = resubmitting.decide(case.entry, case.known, case.evidence, reconciled, body)
    entry_id = _send(case, again)
    turn: Any = case.known.turn
    fields = {
        "entry_id": entry_id,
        "message_id": again.message_id,
        "resubmit_of": again.resubmit_of,
        "stream": case.source.stream,
        "recorded": _record(agent, turn["turn_id"], entry_id, reconciled),
    }
    text = f"entry {entry_id}, message {again.message_id}, in place of {again.resubmit_of}"
    if not fields["recorded"]:
        text += "\nthe daemon could not record it; the entry itself says what it replaces"
    output.show(fields, text)


def _body(content: str | None, case: "Case") -> bytes | None:
    import os

    limit = case.source.content_limit_bytes
    if content == "-":
        found = sys.stdin.buffer.read(limit + 1)
    elif content is None:
        return None
    else:
        found = os.fsencode(content)
    if not found.strip() or len(found) > limit:
        raise UsageError(f"the content must have 1 to {limit} bytes")
    return found


def _send(case: "Case", again: Any) -> str:
    from corral.cowboy import redisops
    from corral.cowboy.access import operator_endpoint

    endpoint = operator_endpoint(settings_of_host())
    return asyncio.run(
        redisops.add(endpoint, case.source, again.fields(), again.message_id, _REPEAT)
    )


_REPEAT = "repeat the same command: it is never taken twice"


def _record(agent: str, turn_id: str, entry_id: str, note: str) -> bool:
    request = {"op": "resubmitted", "turn_id": turn_id, "as": entry_id, "note": note}
    try:
        asked(agent, request, COMMAND_TIMEOUT_S)
    except CorralError:
        return False
    return True
