"""The gateway with armed crash points: `python -m tests.crash.armed_gateway POINT:N … --`.

Everything else comes from the environment, as for the service itself.
"""

import asyncio
import sys

from corral.core.settings import load
from corral.gateway import daemon
from corral.gateway.settings import GatewaySettings
from tests.harness import armed


def cli() -> None:
    asyncio.run(daemon.run(load(GatewaySettings)))


if __name__ == "__main__":
    armed.main(sys.argv[1:], cli)
