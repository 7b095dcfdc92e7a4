"""Redis, cowboy with an agent, and a gateway in front of it: the far side of the local bridge.

All of it is in one folder, which is kept. The agent's source `a2a` is the gateway's.
"""

import sys
from pathlib import Path
from typing import Any, Final

from corral.local.deployment import DAEMON, REDIS, RUNNER, Deployment, Options
from corral.local.front import GATEWAY, SOURCE, Front
from corral.local.up import leave_only, operator_variables

AGENT_NAME: Final = "scout"
PROCESSES: Final = (REDIS, RUNNER, DAEMON, GATEWAY)


class GatewaySide:
    """Use it as a context manager, which starts everything; `base` may be used again."""

    def __init__(self, base: Path) -> None:
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        options = Options(agent=AGENT_NAME, base=base, sweep=False, edit=_answers_in_capitals)
        self.deployment = Deployment(options)
        self.deployment.keep = True
        leave_only(AGENT_NAME, self.deployment.topology)
        self.supervisor = self.deployment.supervisor
        self.front = Front(self.deployment, base, {AGENT_NAME: "Answers in capitals."})
        self.supervisor.add(self.front.service())

    def variables(self) -> dict[str, str]:
        """For `corral-gateway`, and for `cowboy` as the operator; no secret is in them."""
        return {**self.front.variables(), **operator_variables(self.deployment)}

    async def start(self, timeout_s: float) -> None:
        """Everything, in order, each when the one before is ready."""
        await self.deployment.__aenter__()
        await self.deployment.start(RUNNER, DAEMON, GATEWAY, timeout_s=timeout_s)

    async def stop(self) -> None:
        """Ends what runs, also when not everything was started."""
        await self.supervisor.stop(GATEWAY, DAEMON, RUNNER)
        await self.deployment.__aexit__(None, None, None)


def _answers_in_capitals(sources: dict[str, Any]) -> None:
    code = Path(__file__).with_name("scout.py")
    sources["sources"][SOURCE]["runner"] = {
        "kind": "exec",
        "command": [sys.executable, "-S", "-E", "-I", str(code)],
        "turn_timeout_s": 3_600,
    }
