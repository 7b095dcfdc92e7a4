"""Runs a runner process for tests: `python -m tests.unit.runner.launch FILE`.

FILE is the JSON of a `Launch`. The only difference to the packaged runner is that this one can be
armed with a crash point.
"""

import json
import resource
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from corral.core import crashpoints, logs
from corral.core.errors import CorralError
from corral.cowboy.runner import main as runner
from corral.cowboy.runner.plan import EchoPlan, ExecPlan, OutputRules, Plan


@dataclass(frozen=True)
class Program:
    """One source's program; no command means echo."""

    command: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    envelope: bool = False
    turn_timeout_s: float = 60.0
    reply_max_bytes: int = 65_536

    def plan(self) -> Plan:
        output = OutputRules(self.envelope, self.reply_max_bytes)
        if not self.command:
            return EchoPlan(output)
        return ExecPlan(self.command, self.environment, self.turn_timeout_s, output)


@dataclass(frozen=True)
class Launch:
    agent: str
    socket: str
    runs: str
    programs: dict[str, Program]
    use_cgroups: bool = False
    daemon_uid: int | None = None
    crash_at: str | None = None
    crash_nth: int = 1
    nofile: int | None = None
    stop_linger_s: float = 2.0

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), "utf-8")


def _read(path: Path) -> Launch:
    fields = json.loads(path.read_text("utf-8"))
    programs = {name: Program(**program) for name, program in fields["programs"].items()}
    return Launch(**{**fields, "programs": programs})


def run(launch: Launch) -> int:
    logs.configure("runner", json=True, level="debug")
    if launch.nofile is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (launch.nofile, launch.nofile))
    if launch.crash_at is not None:
        crashpoints.arm(launch.crash_at, launch.crash_nth)
    runner.STOP_LINGER_S = launch.stop_linger_s
    options = runner.RunnerOptions(
        agent=launch.agent,
        plans={name: program.plan() for name, program in launch.programs.items()},
        socket=Path(launch.socket),
        runs=Path(launch.runs),
        daemon_uid=launch.daemon_uid,
        use_cgroups=launch.use_cgroups,
    )
    try:
        return runner.main(options)
    except CorralError as error:
        sys.stderr.write(f"{error.code}: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(run(_read(Path(sys.argv[1]))))
