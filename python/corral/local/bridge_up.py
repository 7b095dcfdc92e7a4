"""`./corral up --bridge [--dir DIR] [--synapse-database sqlite|postgres]`: until Ctrl-C.

PostgreSQL, Synapse, the bridge and two agents: one that echoes, and one behind a gateway, Redis and
cowboy. The directory is kept: accounts, rooms, jobs and tasks are there again at the next start.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from corral.local import gateway_side
from corral.local.bridge_stack import (
    BRIDGE,
    PERSON,
    PROCESSES,
    START_TIMEOUT_S,
    BridgeStack,
    Options,
)
from corral.local.up import tell, until_asked

DEFAULT_DIR = Path(".corral") / "bridge"


def parse(argv: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="./corral up --bridge", allow_abbrev=False)
    parser.add_argument("--bridge", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--dir", type=Path, default=DEFAULT_DIR, help="kept; default: %(default)s")
    parser.add_argument(
        "--synapse-database", choices=["sqlite", "postgres"], default="sqlite",
        help="where the homeserver keeps its data; default: %(default)s",
    )  # fmt: skip
    given = parser.parse_args(argv)
    return Options(given.dir.resolve(), given.synapse_database, gateway=True)


async def up(options: Options) -> None:
    """Runs everything until it is cancelled."""
    async with BridgeStack(options) as stack:
        side = stack.side
        if side is not None:
            print(
                f"up: starting {', '.join(gateway_side.PROCESSES)} …", file=sys.stderr, flush=True
            )
            await side.start(START_TIMEOUT_S)
        for name in PROCESSES:
            print(f"up: starting {name} …", file=sys.stderr, flush=True)
            await stack.start(name)
        person = await stack.person()
        async with person:
            await stack.room(person)
        say_how(stack)
        supervisors = [stack.supervisor, *([side.supervisor] if side is not None else [])]
        await asyncio.gather(
            *(tell(one) for one in supervisors), *(one.failure() for one in supervisors)
        )


def say_how(stack: BridgeStack) -> None:
    """How to take part with any Matrix client, and without one."""
    print(
        f"up: {' '.join(PROCESSES)}; logs in {stack.supervisor.logs}; Ctrl-C ends it\n"
        "log in with any Matrix client:\n"
        f"  homeserver {stack.homeserver.url}   user {PERSON}   "
        f"password {stack.facts['password']}\n"
        f"  in the room 'Try the bridge': @echo hello\n"
        f"                                @echo slow 10 some text\n"
        f"                                @echo ask Which colour?\n"
        f"                                @scout hello   (through gateway, Redis and cowboy)\n"
        "or without one, in another shell:\n"
        f"  ./corral say --dir {stack.base} hello\n"
        f"  ./corral say --dir {stack.base} --agent scout hello",
        flush=True,
    )


def main(argv: Sequence[str]) -> int:
    try:
        options = parse(argv)
    except SystemExit as error:
        return 64 if error.code else 0
    logs = options.directory / "logs"

    async def work() -> None:
        options.directory.chmod(0o711)
        await up(options)

    return until_asked(options.directory, work, f"{logs / BRIDGE}.log and the others there")
