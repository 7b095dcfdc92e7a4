"""`corral-vm COMMAND`: runs as root in the machine, in the namespace that Redis is in.

    client    sends a planned workload, reads the answers, ends when everything is answered
    judge     reconciles what was sent, seen, done and remembered (daemon and runner stopped)
    ledger    prints the rows of the ledgers, without content

What must outlive a power failure is written to disk before the next step. Kills are noted by the
script that calls this, `corral-vm.sh`.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

NAMESPACE = Path("/etc/cowboy/namespace.json")
INSIDE = "CORRAL_VM_INSIDE"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="corral-vm")
    commands = top.add_subparsers(dest="command", required=True)
    client = commands.add_parser("client")
    client.add_argument("--agent", default="scout")
    client.add_argument("--sources", default="", help="by comma; default all of the agent")
    client.add_argument("--seed", type=int, default=1)
    client.add_argument("--count", type=int, default=0, help="messages; 0: only wait for answers")
    client.add_argument("--seconds", type=float, default=5.0, help="within which they are sent")
    client.add_argument("--plain", action="store_true", help="only messages that are answered")
    client.add_argument("--patience", type=float, default=300.0, help="seconds until it gives up")
    judge = commands.add_parser("judge")
    judge.add_argument("--agent", default="scout")
    commands.add_parser("ledger")
    return top


def enter_namespace() -> None:
    """Becomes the same program inside the namespace that the host's topology names."""
    if os.environ.get(INSIDE) or not NAMESPACE.exists():
        return
    path = json.loads(NAMESPACE.read_text(encoding="utf-8"))["path"]
    os.environ[INSIDE] = "1"
    again = [sys.executable, "-I", "-m", "tests.vm.programs.main", *sys.argv[1:]]
    os.execvp("nsenter", ["nsenter", f"--net={path}", *again])


# Each is imported in the namespace, and only when it is wanted.


def _client(chosen: argparse.Namespace) -> int:
    enter_namespace()
    from tests.vm.programs import client

    return client.run(client.Order(**{k: v for k, v in vars(chosen).items() if k != "command"}))


def _judge(chosen: argparse.Namespace) -> int:
    enter_namespace()
    from tests.vm.programs import judge

    return judge.run(chosen.agent)


def _ledger(_: argparse.Namespace) -> int:
    from tests.vm.programs import judge

    return judge.show_ledgers()


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "client": _client,
    "judge": _judge,
    "ledger": _ledger,
}


def main() -> int:
    chosen = parser().parse_args()
    return COMMANDS[chosen.command](chosen)


if __name__ == "__main__":
    sys.exit(main())
