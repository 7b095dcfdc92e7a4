"""`cowboy doctor`: every check by its name, with the fix in one line."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from corral.cowboy.cli import EXIT_UNHEALTHY, Output, agent_argument, json_option, settings_of_host

if TYPE_CHECKING:
    from corral.cowboy.examined import Finding


@click.command()
@agent_argument(required=False)
@click.option(
    "--probe-acl",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Also try each identity with its secret in DIR/redis-IDENTITY; leaves ACL LOG entries.",
)
@click.option("--all", "show_all", is_flag=True, help="Show what is in order, too.")
@json_option
@click.pass_obj
def doctor(output: Output, agent: str | None, probe_acl: Path | None, show_all: bool) -> int:
    """Check AGENT, or all agents of this host: what is wrong, and how to repair it.

    Looks at files, disks, clock, network namespace, Redis, daemon and ledger. Writes nothing.
    Exit status 1 when a check failed or could not run: a check that did not run is not green.

    \b
    Examples:
      sudo cowboy doctor
      cowboy doctor scout --all
      sudo cowboy doctor scout --probe-acl /var/lib/cowboy/secrets
    """
    from corral.cowboy import view_doctor

    settings = settings_of_host()
    names = [agent] if agent else settings.agents()
    found = {name: _findings(name, probe_acl) for name in names}
    healthy = bool(found) and all(view_doctor.is_green(one) for one in found.values())
    reports = [view_doctor.fields(name, findings) for name, findings in found.items()]
    text = "\n\n".join(
        view_doctor.text(name, findings, show_all=show_all) for name, findings in found.items()
    )
    output.show(
        {"healthy": healthy, "agents": reports}, text or f"no agents in {settings.config_dir}"
    )
    return 0 if healthy else EXIT_UNHEALTHY


def _findings(agent: str, secrets: Path | None) -> "Sequence[Finding]":
    from corral.core.errors import CorralError
    from corral.cowboy import probing
    from corral.cowboy.diagnosis import diagnose
    from corral.cowboy.examination import examine
    from corral.cowboy.examined import Finding, Result

    settings = settings_of_host()
    findings = diagnose(examine(settings, agent))
    if secrets is None:
        asked = "not asked for: --probe-acl"
        return [*findings, Finding("acl", Result.ABSENT, asked)]
    sources: Any = {}
    try:
        sources = settings.load_sources(agent).sources
    except CorralError as error:
        text = f"could not be probed: {error.message}"
        return [*findings, Finding("acl", Result.UNKNOWN, text, "repair the configuration")]
    return [*findings, *probing.probe_all(settings, agent, sources, secrets)]
