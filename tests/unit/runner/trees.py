"""Programs whose descendants hide, each in its own way; and the worlds that hold them together."""

from pathlib import Path

from corral.cowboy.runner import cgroup
from corral.cowboy.runner.domain import Go
from tests.unit.runner.world import Daemon, World, shell, wait_lines


def in_cgroup(world: World) -> bool:
    """Whether runs get cgroups: as the launch says, where this machine lets them."""
    runs = Path(world.launch.runs)
    runs.mkdir(mode=0o700, exist_ok=True)
    return world.launch.use_cgroups and cgroup.choose(runs)[0] is not None


# Each script appends the pids of what it started to a file, and then stays.
STAY = "exec sleep 1000"
TREES = {
    "children": f"(SIT; :) & SIT & {STAY}",
    "session": f"setsid SIT & {STAY}",
    "double-fork": f"(setsid sh -c 'SIT & exit' &) ; {STAY}",
    "ignores-signals": f"trap '' TERM INT HUP; setsid SIT & {STAY}",
    "stopped": f"sh -c 'SIT & kill -STOP $$' & {STAY}",
}
# These hide from everything but a cgroup and a living parent.
HIDDEN = {
    "no-token": f"setsid env -i SIT & {STAY}",
    "no-token-orphaned": f"(setsid env -i SIT &) ; {STAY}",
}


class Families:
    """One source for each tree; the pids of what each has started."""

    def __init__(self, world: World, trees: dict[str, str], ending: str = STAY) -> None:
        self._directory = world.directory
        self._sit = world.directory / "sit"
        self._sit.write_text(f"#!/bin/sh\necho $$ >> $1; {STAY}\n")
        self._sit.chmod(0o755)
        world.programs({name: self._command(name, trees[name], ending) for name in trees})

    def _command(self, name: str, script: str, ending: str) -> tuple[str, ...]:
        pids = str(self.file(name))
        script = script.removesuffix(STAY) + ending
        for word, meaning in (
            ("SIT", f"{self._sit} {pids}"),
            ("PIDS", pids),
            ("COUNT", str(self.count(name))),
        ):
            script = script.replace(word, meaning)
        return shell(script)

    def file(self, name: str) -> Path:
        return self._directory / f"pids.{name}"

    def count(self, name: str) -> int:
        return 2 if name == "children" else 1

    def start(self, daemon: Daemon, name: str) -> list[int]:
        """Leader and descendants of the turn that is called like its source."""
        leader = daemon.prepare(name, source=name).run.pid
        daemon.send(Go(name, 1))
        return [leader, *self.descendants(name)]

    def descendants(self, name: str) -> list[int]:
        return [int(line) for line in wait_lines(self.file(name), self.count(name))]
