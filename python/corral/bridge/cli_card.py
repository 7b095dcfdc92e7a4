"""`a2a-bridge card AGENT`: what an agent's card says, and what is wrong with it."""

import click

from corral.core.cli import Output, json_option
from corral.core.errors import UsageError


@click.command()
@click.argument("agent")
@json_option
@click.pass_obj
def card(output: Output, agent: str) -> int:
    """Fetch the card of AGENT, ask one harmless question, and say what is wrong.

    Exit status 1 when messages to the agent would fail. Nothing is changed at the agent.

    \b
    Example:
      a2a-bridge card scout
    """
    import asyncio

    from corral.bridge import service
    from corral.bridge.a2a.examination import examine
    from corral.bridge.settings import BridgeSettings
    from corral.core.settings import load

    targets = service.agent_targets(load(BridgeSettings))
    if agent not in targets:
        raise UsageError(f"no agent {agent!r} in the settings", hint=f"there are {list(targets)}")
    found = asyncio.run(examine(targets[agent]))
    retention_s = found.card.idempotent_for_s if found.card else None
    fields = {
        "agent": agent,
        "healthy": found.healthy,
        "name": found.card.name if found.card else None,
        "protocol": found.protocol or None,
        "endpoint": found.endpoint or None,
        "idempotent_for_s": retention_s,
        "findings": [
            {"code": one.code, "severity": one.severity, "text": one.text, "hint": one.hint}
            for one in found.findings
        ],
    }
    lines = [f"{agent}: {fields['name']!r}, A2A {found.protocol}, at {found.endpoint}"]
    if found.card is None or not found.endpoint:
        lines = [f"{agent}: cannot be used as it is"]
    if retention_s is not None:
        lines.append(f"     knows a message again for {retention_s:g} s")
    for one in found.findings:
        lines += [f"{one.severity}: {one.text} [{one.code}]", f"     {one.hint}"]
    output.show(fields, "\n".join(lines))
    return 0 if found.healthy else 1
