"""From `sources.json` to what the runner runs. Nothing else of the runner knows that file."""

from collections.abc import Mapping

from corral.core.errors import ConfigError
from corral.cowboy.config import EchoRunner, Runner, SourcesFile, TamqRunner
from corral.cowboy.runner.domain import REPLY_MAX_BYTES_LIMIT
from corral.cowboy.runner.plan import EchoPlan, ExecPlan, OutputRules, Plan, TamqPlan


def plans(sources: SourcesFile, inherited: Mapping[str, str] | None = None) -> dict[str, Plan]:
    """The plan of every source, by its name; its runs get ``inherited``, too.

    Raises `ConfigError` naming the key.
    """
    given = inherited or {}
    return {name: _plan(name, source.runner, given) for name, source in sources.sources.items()}


def _plan(name: str, runner: Runner, inherited: Mapping[str, str]) -> Plan:
    if runner.reply_max_bytes > REPLY_MAX_BYTES_LIMIT:
        raise ConfigError(
            f"sources.{name}.runner.reply_max_bytes: {runner.reply_max_bytes} is more than "
            f"{REPLY_MAX_BYTES_LIMIT}",
            hint="a reply travels in one frame of the runner protocol",
        )
    if isinstance(runner, EchoRunner):
        return EchoPlan(OutputRules(False, runner.reply_max_bytes))
    if isinstance(runner, TamqRunner):
        return TamqPlan(runner.repo, runner.socket, runner.turn_timeout_s)
    return ExecPlan(
        command=runner.command,
        environment={**inherited, **runner.environment},
        turn_timeout_s=runner.turn_timeout_s,
        output=OutputRules(runner.output == "json", runner.reply_max_bytes),
    )
