"""`corral-vm COMMAND`: runs as root in the machine, in the namespace that Redis is in.

    client    sends a planned workload, reads the answers, ends when everything is answered
    judge     reconciles what was sent, seen, done and remembered (daemon and runner stopped)
    left      notes what the judge looks at, and judges nothing
    ledger    prints the rows of the ledgers, without content
    leaks     looks for the words of a file where nobody may find them
    plant     puts a word in each of these places, for a control

On a machine with a bridge, outside of any namespace:

    mention   mentions the agent in rooms, ends when every mention has its end
    rooms     reconciles what was mentioned, answered and done
    chain     the same where bridge, gateway and cowboy are on the way (daemon stopped)
    export    notes for it what is known where gateway and cowboy are, when that is elsewhere
    agent     the A2A agent itself
    release   the bridge's unit runs a later release, or again the one that is installed

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
    client.add_argument("--patience", type=float, default=600.0, help="seconds until it gives up")
    judge = commands.add_parser("judge")
    judge.add_argument("--agent", default="scout")
    left = commands.add_parser("left")
    left.add_argument("--agent", default="scout")
    commands.add_parser("ledger")
    mention = commands.add_parser("mention")
    mention.add_argument("--seed", type=int, default=1)
    mention.add_argument("--count", type=int, default=1)
    mention.add_argument("--seconds", type=float, default=1.0, help="within which they are sent")
    mention.add_argument("--rooms", type=int, default=1)
    mention.add_argument("--words", default="echo", help="what the agent is told to do")
    mention.add_argument("--work", type=float, help="seconds that the demo's agent works on each")
    mention.add_argument("--no-wait", action="store_true")
    mention.add_argument("--patience", type=float, default=600.0, help="seconds until it gives up")
    commands.add_parser("rooms")
    chain = commands.add_parser("chain")
    chain.add_argument("--agent", default="scout")
    chain.add_argument("--exported", type=Path, help="by the machine that the agent is on")
    commands.add_parser("export").add_argument("--agent", default="scout")
    agent = commands.add_parser("agent", add_help=False)
    agent.add_argument("arguments", nargs=argparse.REMAINDER)
    release = commands.add_parser("release")
    release.add_argument("--later", type=int, default=0, help="migrations more; 0: the installed")
    release.add_argument("--unusable", action="store_true", help="for the installed release")
    leaks = commands.add_parser("leaks")
    leaks.add_argument("words", type=Path, help="a file; one of its lines is enough")
    leaks.add_argument("--allow", action="append", default=[], help="files that begin with it")
    commands.add_parser("plant").add_argument("words", type=Path)
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


def _left(chosen: argparse.Namespace) -> int:
    enter_namespace()
    from tests.vm.programs import judge

    judge.kept(chosen.agent)
    return 0


def _ledger(_: argparse.Namespace) -> int:
    from tests.vm.programs import judge

    return judge.show_ledgers()


def _mention(chosen: argparse.Namespace) -> int:
    from tests.vm.programs import mentions

    given = {key: value for key, value in vars(chosen).items() if key != "command"}
    return mentions.run(mentions.Order(**given))


def _rooms(_: argparse.Namespace) -> int:
    from tests.vm.programs import mentions

    return mentions.judge()


def _chain(chosen: argparse.Namespace) -> int:
    from tests.vm.programs import chain

    return chain.run(chosen.agent, chosen.exported)


def _export(chosen: argparse.Namespace) -> int:
    from tests.vm.programs import chain

    return chain.export(chosen.agent)


def _agent(chosen: argparse.Namespace) -> int:
    from corral.local import a2a_agent

    sys.argv[1:] = chosen.arguments
    a2a_agent.main()
    return 0


def _release(chosen: argparse.Namespace) -> int:
    from tests.vm.programs import release

    if chosen.later:
        return release.later(chosen.later, usable=not chosen.unusable)
    return release.installed()


def _leaks(chosen: argparse.Namespace) -> int:
    from tests.vm.programs import leaks

    return leaks.run(chosen.words, chosen.allow)


def _plant(chosen: argparse.Namespace) -> int:
    from tests.vm.programs import leaks

    return leaks.plant(chosen.words)


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "agent": _agent,
    "chain": _chain,
    "client": _client,
    "export": _export,
    "judge": _judge,
    "leaks": _leaks,
    "ledger": _ledger,
    "left": _left,
    "mention": _mention,
    "plant": _plant,
    "release": _release,
    "rooms": _rooms,
}


def main() -> int:
    chosen = parser().parse_args()
    return COMMANDS[chosen.command](chosen)


if __name__ == "__main__":
    sys.exit(main())
