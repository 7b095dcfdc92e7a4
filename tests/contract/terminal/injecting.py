"""Injects once and dies at a point: `injecting.py POINT PROFILE BODY`, an address on stdin."""

import asyncio
import json
import sys

from corral.core import crashpoints
from corral.tamq.terminal import open_terminal
from corral.tamq.terminal.address import parse
from corral.tamq.terminal.profiles import BUILT_IN
from tests.contract.terminal.panes import wake


def main(point: str, profile: str, body: str) -> None:
    terminal = open_terminal(parse(json.load(sys.stdin)), BUILT_IN[profile])
    crashpoints.arm(point)
    asyncio.run(terminal.inject(wake(body)))


if __name__ == "__main__":
    main(*sys.argv[1:])
