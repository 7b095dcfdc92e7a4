"""`cowboy turns …`: look at turns, and decide about them."""

import click

from corral.cowboy.cli import (
    COMMAND_TIMEOUT_S,
    EXIT_UNHEALTHY,
    Output,
    agent_argument,
    asked,
    json_option,
    source_option,
    turn_argument,
    turn_id_of,
)


@click.group(no_args_is_help=False)
def turns() -> None:
    """Look at turns, and decide about those that are held."""


@turns.command("list")
@agent_argument()
@source_option
@click.option("--state", help="Only in this state, as held.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="At most so many."
)
@json_option
@click.pass_obj
def turns_list(
    output: Output, agent: str, source: str | None, state: str | None, limit: int
) -> None:
    """List turns of AGENT that are not finished, oldest first.

    \b
    Examples:
      cowboy turns list scout
      cowboy turns list scout --state held --json
    """
    from corral.core.clock import wall_ms
    from corral.cowboy import view

    answer = asked(agent, {"op": "turns", "source": source, "state": state}, COMMAND_TIMEOUT_S)
    found = answer.get("turns", [])
    shown, more = found[:limit], len(found[limit:]) + answer.get("more", 0)
    text = view.turns(shown, wall_ms())
    output.show({"turns": shown, "more": more}, f"{text}\n{more} more" if more else text)


@turns.command("show")
@agent_argument()
@turn_argument
@json_option
@click.pass_obj
def turns_show(output: Output, agent: str, turn_id: str) -> None:
    """Show what the ledger knows of one turn, without its content.

    \b
    Example:
      cowboy turns show scout scout.a2a.1.1732935482123-0
    """
    from corral.cowboy import view

    request = {"op": "turn", "turn_id": turn_id_of(agent, turn_id)}
    found = asked(agent, request, COMMAND_TIMEOUT_S).get("turn", {})
    output.show(found, view.fields(found))


def _decision(op: str, done: str, what: str) -> None:
    """Adds the command `turns OP`: a decision about a held turn."""

    @turns.command(op, help=f"{what}\n\n\b\nExample:\n  cowboy turns {op} scout {_TURN}")
    @agent_argument()
    @turn_argument
    @json_option
    @click.pass_obj
    def decide(output: Output, agent: str, turn_id: str) -> None:
        request = {"op": op, "turn_id": turn_id_of(agent, turn_id)}
        answer = asked(agent, request, COMMAND_TIMEOUT_S)
        output.show({"turn_id": turn_id, **answer}, f"{done} {turn_id}")


_TURN = "scout.a2a.1.1732935482123-0"
_decision("release", "released", "Let a held turn run again, as a resumed turn.")
_decision("abandon", "abandoned", "End a held turn; its sender is told.")


@turns.command("cancel")
@agent_argument()
@turn_argument
@json_option
@click.pass_obj
def turns_cancel(output: Output, agent: str, turn_id: str) -> int:
    """Cancel a turn that is not answered yet; its sender is told.

    A turn that runs is cancelled once its run, with all that it started, is over. Exit status 1
    when it is not cancelled: it ended by itself first, or its run has not ended within 8 seconds.

    \b
    Example:
      cowboy turns cancel scout scout.a2a.1.1732935482123-0
    """
    request = {"op": "cancel", "turn_id": turn_id_of(agent, turn_id)}
    answer = asked(agent, request, COMMAND_TIMEOUT_S)
    if answer.get("cancelled"):
        text = f"cancelled {turn_id}"
    elif answer.get("state") == "dispatched":
        text = f"not over yet: the run of {turn_id} was told to end; look at it with 'turns show'"
    else:
        text = f"too late: {turn_id} is {answer.get('state')} ({answer.get('outcome')})"
    output.show(answer, text)
    return 0 if answer.get("cancelled") else EXIT_UNHEALTHY
