"""`./corral vm`: the machines of the tests, by hand."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from corral.core.errors import CorralError
from tests import seeds
from tests.vm import scenario
from tests.vm.image import image
from tests.vm.machine import Machine
from tests.vm.scenario import named, say


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="./corral vm", description=__doc__, allow_abbrev=False)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="the scenarios, each with what it shows")
    build = commands.add_parser("image", help="build the machine's image if there is none")
    build.add_argument("--rebuild", action="store_true", help="even if there is one")
    run = commands.add_parser("run", help="run scenarios")
    run.add_argument("scenario", nargs="+", choices=scenario.names(), metavar="SCENARIO")
    run.add_argument("--seed", type=int, help="repeat a run (default: chance, printed)")
    debug = commands.add_parser("debug", help="boot a scenario's machines and give a root shell")
    debug.add_argument("scenario", choices=scenario.names(), metavar="SCENARIO")
    debug.add_argument("--seed", type=int, help="as for run")
    return top


def main(arguments: Sequence[str]) -> int:
    chosen = parser().parse_args(arguments)
    # A polite end clears up as Control-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = getattr(chosen, "seed", None)
    seed = seeds.choose() if seed is None else seed
    try:
        match chosen.command:
            case "list":
                return _list()
            case "image":
                say(str(image(say, rebuild=chosen.rebuild).folder))
                return 0
            case "run":
                failed = [run for one in chosen.scenario if (run := scenario.run(named(one), seed))]
                return 1 if failed else 0
            case _:
                return _debug(chosen.scenario, seed)
    except CorralError as error:
        say(f"corral: {error}")
        return error.exit_code


def _list() -> int:
    for name in scenario.names():
        text = (scenario.SCENARIOS / f"{name}.py").read_text(encoding="utf-8")
        first = text.removeprefix('"""').splitlines()[0].rstrip('"')
        say(f"{name:<14} {first}")
    return 0


def _debug(name: str, seed: int) -> int:
    """Boots the machines, without the script, and hands their consoles over."""
    with scenario.prepared(named(name), seed) as run:
        run.names()
        run.start_all()
        for machine in run.machines:
            machine.succeed("true")
        say("a root shell of the machine; end with exit or Control-D (the machine is then gone)")
        if len(run.machines) > 1:
            shown = " and ".join(f"@{machine.name}" for machine in run.machines)
            say(f"there are several: {shown} lead from one to another")
        _converse({f"@{one.name}": one for one in run.machines}, sys.stdin.fileno())
    return 0


def _converse(machines: dict[str, Machine], terminal: int) -> None:
    """Line by line: the console has no echo, so this terminal's own editing serves."""
    machine = next(iter(machines.values()))
    while machine.booted:
        if os.isatty(terminal):
            sys.stdout.write(f"{machine.name}# ")
            sys.stdout.flush()
        line = sys.stdin.readline()
        if not line or line.strip() == "exit":
            return
        if line.strip() in machines:
            machine = machines[line.strip()]
            continue
        status, out = machine.execute(f"set +eu; {line.strip()} 2>&1" if line.strip() else "true")
        sys.stdout.write(out)
        if status:
            say(f"(exit status {status})")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
