"""The program `cowboy`: one command per operator's task, and the two services.

Commands ask the daemon's control socket; none opens its ledger. Exit codes: 0 done, 1 unhealthy,
64 usage, 69 unavailable, 70 internal, 74 storage, 78 configuration, 130 interrupted.
Each command imports what it needs when it runs, so that the services start fast and the runner
loads no Redis client.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import click

from corral import __version__
from corral.core.cli import log_level_option
from corral.core.errors import UsageError
from corral.cowboy.cli import (
    COMMAND_TIMEOUT_S,
    EXIT_UNHEALTHY,
    EntryGroup,
    Output,
    agent_argument,
    asked,
    json_option,
    settings_of_host,
    source_argument,
)
from corral.cowboy.cli_doctor import doctor
from corral.cowboy.cli_inspect import explain, resubmit
from corral.cowboy.cli_reply import reply
from corral.cowboy.cli_turns import turns

BACKUP_TIMEOUT_S: Final = 600.0

ADOPTION = """\
Adopting makes the ledger that the daemon has now the one that serves the agent's streams.

cowboy refused because the streams were last served by another ledger, or by a later copy of this
one: it was lost, moved, or restored from a backup. What only that other ledger knew is unknown
from here on:
  - an entry that it had started, and that is still pending in Redis, starts the agent again;
  - an entry that it had acknowledged is not offered again: only the outbox shows its answer;
  - a turn that is open in the present ledger is closed as the runner says; when its run is long
    over, the sender is told "interrupted" even if an answer was given.
So first make sure that no other daemon serves this agent and that the right ledger cannot be
brought back, and look in the outbox for what was answered since the backup.
"""


@click.group(
    cls=EntryGroup,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="cowboy")
def cli() -> None:
    """Carries messages from an agent's inboxes to the agent, and its answers back.

    Settings come from the environment (COWBOY_...), see the reference of settings.
    """


@cli.command()
@agent_argument()
@log_level_option
def run(agent: str, log_level: str) -> None:
    """Run the daemon of AGENT: all its sources, until SIGTERM.

    \b
    Example:
      cowboy run scout
    """
    from corral.core import logs

    logs.configure("cowboy", level=log_level)
    from corral.cowboy.daemon import run_daemon

    asyncio.run(run_daemon(settings_of_host(), agent))


@cli.command()
@agent_argument()
@log_level_option
def runner(agent: str, log_level: str) -> int:
    """Run the runner of AGENT: it starts the agent's runs and outlives the daemon.

    \b
    Example:
      cowboy runner scout
    """
    from corral.core import logs

    logs.configure("cowboy-runner", level=log_level)
    from corral.cowboy.runner import main as service
    from corral.cowboy.runner.configured import plans
    from corral.cowboy.runner.inherited import for_runs

    settings = settings_of_host()
    inherited = for_runs(os.environ) if settings.runs_inherit else {}
    return service.main(
        service.RunnerOptions(
            agent=agent,
            plans=plans(settings.load_sources(agent), inherited),
            socket=settings.runner_socket(agent),
            runs=settings.runs_path(agent),
            daemon_uid=settings.daemon_uid(),
        )
    )


@cli.command()
@agent_argument()
@source_argument
@click.option("--content", required=True, metavar="TEXT|-", help="What to say; - reads it.")
@click.option("--channel", help="Channel; turns of one channel run in order.")
@click.option("--sender", help="Who sends.")
@click.option("--thread", help="Thread, given back with the answer.")
@click.option("--message-id", help="Id of the message; made up when absent.")
@json_option
@click.pass_obj
def send(
    output: Output,
    agent: str,
    source: str,
    content: str,
    channel: str | None,
    sender: str | None,
    thread: str | None,
    message_id: str | None,
) -> None:
    """Add one message to the inbox of SOURCE of AGENT.

    Prints the entry's id and the message's id. The same command again, with the same --message-id,
    is not taken twice: text, sender, channel and thread are what makes it the same.
    Use "--content -" for what must not show in the process list.

    \b
    Examples:
      cowboy send scout a2a --content "what changed today?" --channel ops
      cowboy send scout a2a --content - < question.txt
    """
    if message_id == "":
        raise UsageError("--message-id is empty", hint="leave it out, or give an id")
    from corral.core.ids import new_uuid
    from corral.cowboy import redisops
    from corral.cowboy.access import operator_endpoint

    settings = settings_of_host()
    config = settings.load_sources(agent).sources.get(source)
    if config is None:
        raise UsageError(f"agent {agent} has no source {source!r}", hint="see its sources.json")
    if content == "-":
        body = sys.stdin.buffer.read(config.content_limit_bytes + 1)
    else:
        body = os.fsencode(content)
    message = redisops.Message(body, message_id or new_uuid(), sender, channel, thread)
    endpoint = operator_endpoint(settings)
    try:
        entry_id = asyncio.run(redisops.send(endpoint, config, message))
    except KeyboardInterrupt:
        raise redisops.uncertain(message.message_id) from None
    fields = {"entry_id": entry_id, "message_id": message.message_id, "stream": config.stream}
    output.show(fields, f"entry {entry_id}, message {message.message_id}")


@cli.command("check-config")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
@click.pass_obj
def check_config(output: Output, file: Path) -> int:
    """Check FILE, a sources.json, and name every fault by the path of its key.

    \b
    Example:
      cowboy check-config /etc/cowboy/scout/sources.json
    """
    from corral.cowboy.config import load_sources
    from corral.cowboy.strictjson import RefusedError

    try:
        sources = load_sources(file)
    except RefusedError as error:
        faults = [{"path": fault.path, "message": fault.message} for fault in error.problems]
        fields = {"ok": False, "file": str(file), "errors": faults, "error": error.as_dict()}
        output.show(fields, "\n".join(str(fault) for fault in error.problems))
        return error.exit_code
    names = list(sources.sources)
    output.show(
        {"ok": True, "file": str(file), "agent": sources.agent, "sources": names, "errors": []},
        f"ok: agent {sources.agent}, sources {', '.join(names)}",
    )
    return 0


@cli.command()
@agent_argument(required=False)
@json_option
@click.pass_obj
def status(output: Output, agent: str | None) -> int:
    """Show how AGENT is, or all agents of this host; exit status 1 when one is unhealthy.

    Asks the daemon. When it cannot be asked, shows what Redis knows, if COWBOY_REDIS_URL and the
    credential of an identity that may look (the operator's) are set.

    \b
    Examples:
      cowboy status
      cowboy status scout --json
    """
    from corral.cowboy import report, view

    settings = settings_of_host()
    names = [agent] if agent else settings.agents()
    reports = [report.of_agent(settings, name) for name in names]
    healthy = bool(reports) and all(one["healthy"] for one in reports)
    text = "\n\n".join(view.agent_status(one) for one in reports)
    output.show(
        {"healthy": healthy, "agents": reports}, text or f"no agents in {settings.config_dir}"
    )
    return 0 if healthy else EXIT_UNHEALTHY


@cli.command()
@agent_argument()
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def adopt(output: Output, agent: str, yes: bool) -> None:
    """Let the daemon's present ledger serve the streams of AGENT.

    For a source that is blocked because another ledger served it before. Says what that can lead
    to, and asks, unless --yes is given.

    \b
    Example:
      cowboy adopt scout
    """
    if not yes:
        if output.as_json or not sys.stdin.isatty():
            raise UsageError("adopt needs --yes where nobody can be asked", hint=ADOPTION)
        click.echo(ADOPTION)
        click.confirm(f"Adopt the present ledger for {agent}?", abort=True)
    answer = asked(agent, {"op": "adopt"}, COMMAND_TIMEOUT_S)
    adopted, states = answer.get("adopted") or [], answer.get("states") or {}
    lines = [f"adopted {source}: now {states.get(source, 'unknown')}" for source in adopted]
    output.show(answer, "\n".join(lines) or f"nothing to adopt: no source of {agent} is blocked")


@cli.command()
@agent_argument()
@json_option
@click.pass_obj
def backup(output: Output, agent: str) -> None:
    """Write a consistent copy of the ledger of AGENT; prints its path.

    \b
    Example:
      cowboy backup scout
    """
    answer = asked(agent, {"op": "backup"}, BACKUP_TIMEOUT_S)
    output.show(answer, str(answer.get("path", "done")))


@cli.command()
def schema() -> None:
    """Print the JSON Schema of sources.json.

    \b
    Example:
      cowboy schema > sources.schema.json
    """
    from corral.cowboy.config import schema_text

    click.echo(schema_text(), nl=False)


for _command in (turns, doctor, explain, resubmit, reply):
    cli.add_command(_command)


if __name__ == "__main__":
    cli()
