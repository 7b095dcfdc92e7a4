"""The stages of `./corral test`: `python -m tests.stages [STAGE | TEST]… [-k EXPR] [-- …]`.

Each stage is a pytest run of one folder, in its own process group and within a time bound; fast
stages come first. When all are run, three of them run side by side (tests/lanes.py), and after them
`vm`, which needs the whole machine; `--one-by-one` is without that. `contract` is two halves: the
files in its folder, and its folders. `unit` and `contract` run again with the oldest supported
dependencies, in an environment of their own, less the tests in which these have no part
(tests/contract/once.py). What was started and left running fails a stage, and so does a stage in
which nothing was found to run. With CI=true a skipped test is a failure, too.

The last line is `N passed, N failed, N skipped`. Exit status: 0, 1 (a failure), 64 (usage), 69 (not
root, and root has not built the image of the test machine).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from tests import seeds
from tests.bounded import Bounded, Ending
from tests.lanes import Job, Lanes
from tests.vm import image
from tests.vm.debian import VmError

ROOT = Path(__file__).resolve().parent.parent
TOTAL_BOUND_CI_S = 78 * 60
NOTHING_COLLECTED = 5
EXIT_USAGE = 64
EXIT_UNAVAILABLE = 69


class Half(Enum):
    """Of a folder's tests: the files in it, or what is in its own folders."""

    FILES = ""
    FOLDERS = "folders"


@dataclass(frozen=True)
class Stage:
    folder: str
    bound_s: int
    floor: bool = False
    half: Half | None = None
    alone: bool = False

    @property
    def name(self) -> str:
        of_it = [*(["floor"] if self.floor else []), *([self.half.value] if self.half else [])]
        said = ", ".join(filter(None, of_it))
        return f"{self.folder} ({said})" if said else self.folder

    def paths(self) -> list[str]:
        """What pytest is told to run."""
        whole = Path("tests") / self.folder
        match self.half:
            case None:
                return [str(whole)]
            case Half.FILES:
                return [str(path) for path in sorted(whole.glob("test_*.py"))]
            case Half.FOLDERS:
                return [str(path.parent) for path in sorted(whole.glob("*/__init__.py"))]


# As they run one by one. `./corral --help` and its completions list the folders, too.
STAGES = (
    Stage("lint", bound_s=600),
    Stage("unit", bound_s=900),
    Stage("unit", bound_s=900, floor=True),
    Stage("nix", bound_s=900),
    Stage("contract", bound_s=2400, half=Half.FILES),
    Stage("contract", bound_s=2400, half=Half.FOLDERS),
    Stage("contract", bound_s=2400, floor=True, half=Half.FILES),
    Stage("contract", bound_s=2400, floor=True, half=Half.FOLDERS),
    Stage("crash", bound_s=2400),
    Stage("vm", bound_s=2400, alone=True),
)
# Side by side the long ones begin early, so that none is left to run on its own.
EARLY = ("lint", "unit", "unit (floor)", "crash")


@dataclass
class Result:
    stage: Stage
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    took_s: float = 0.0
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)

    def fail(self, note: str, count: int = 1) -> None:
        self.failed += count
        self.notes.append(note)


@dataclass(frozen=True)
class Selection:
    """What to run: stages; within them perhaps only some tests, which may then be nowhere.

    `results`: this is one stage beside others, and tells there what came of it; `until`, of the
    monotonic clock, is when all must have ended.
    """

    stages: tuple[Stage, ...]
    tests: dict[str, list[str]]
    options: list[str]
    narrowed: bool
    one_by_one: bool = False
    results: Path | None = None
    until: float | None = None


class UsageError(Exception):
    """The command line names something that does not exist; the message lists what does."""


# ---- the command line -----------------------------------------------------------------------


def parse(arguments: Sequence[str]) -> Selection:
    own, _, rest = _split(list(arguments))
    parser = argparse.ArgumentParser(prog="./corral test", allow_abbrev=False)
    parser.add_argument("what", nargs="*", metavar="STAGE|TEST", help=_names())
    parser.add_argument("-k", metavar="EXPR", help="only tests whose name matches, as in pytest")
    parser.add_argument("--one-by-one", action="store_true", help="one stage after the other")
    parser.add_argument("--lane", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parsed, unknown = parser.parse_known_args(own)
    if parsed.lane is not None:
        lane = tuple(stage for stage in STAGES if stage.name in parsed.what)
        told, until = parsed.lane, parsed.until
        return Selection(lane, {}, [*unknown, *rest], narrowed=False, results=told, until=until)
    options = [*unknown, *rest, *(["-k", parsed.k] if parsed.k else [])]
    folders = {stage.folder for stage in STAGES}
    stages: list[Stage] = []
    tests: dict[str, list[str]] = {}
    for what in parsed.what:
        named = [stage for stage in STAGES if what in {stage.folder, stage.name}]
        parts = Path(what.split("::")[0]).parts
        if named:
            stages += named
        elif parts[:1] == ("tests",) and len(parts) > 1 and parts[1] in folders:
            tests.setdefault(parts[1], []).append(what)
        else:
            raise UsageError(f"no stage or test {what}; the stages are: {_names()}")
    narrowed = bool(tests or parsed.k)
    whole = [one for one in STAGES if not one.floor and one.half is not Half.FOLDERS]
    wanted = [*stages, *(stage for stage in whole if stage.folder in tests)]
    chosen = tuple(stage for stage in STAGES if stage in wanted) if wanted else STAGES
    if narrowed and not any(stage.floor and stage.name in parsed.what for stage in STAGES):
        chosen = tuple(stage for stage in chosen if not stage.floor)
    return Selection(chosen, tests, options, narrowed, parsed.one_by_one)


def _split(arguments: list[str]) -> tuple[list[str], str, list[str]]:
    if "--" not in arguments:
        return arguments, "", []
    at = arguments.index("--")
    return arguments[:at], "--", arguments[at + 1 :]


def _names() -> str:
    return ", ".join(dict.fromkeys(stage.folder for stage in STAGES))


# ---- one stage ------------------------------------------------------------------------------


class Runner:
    def __init__(self, selection: Selection, seed: int, *, ci: bool) -> None:
        self._selection = selection
        self._ci = ci
        self._bounded = Bounded()
        self._deadline = selection.until or deadline(ci=ci)
        self._env = os.environ | {
            seeds.VARIABLE: str(seed),
            "PYTHONHASHSEED": str(seed),
            "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}",
            "PYTHONUNBUFFERED": "1",
        }

    def run(self, stage: Stage) -> Result:
        result = Result(stage)
        python = self._floor_python(result) if stage.floor else Path(sys.executable)
        if python is None:
            return result
        bound_s = min(stage.bound_s, self._deadline - time.monotonic())
        if bound_s <= 0:
            result.fail("did not run: no time was left")
            return result
        with tempfile.TemporaryDirectory(prefix="corral-test-") as scratch:
            tally = Path(scratch) / "tally"
            ending = self._bounded.run(
                self._argv(python, stage, tally), bound_s=bound_s, env=self._env
            )
            count(tally, result, ended_by_itself=ending.status >= 0 and not ending.timed_out)
        judge(result, ending, self._selection, bound_s=bound_s, ci=self._ci)
        return result

    def _argv(self, python: Path, stage: Stage, tally: Path) -> list[str]:
        tests = self._selection.tests.get(stage.folder) or stage.paths()
        own = ["-q", "--no-header", "-p", "tests.tally", "--tally", str(tally)]
        python_argv = [str(python), "-P", "-m", "pytest"]
        if stage.floor:
            own += left_out(python)
        return [*python_argv, *own, *self._selection.options, *tests]

    def _floor_python(self, result: Result) -> Path | None:
        """The environment with the oldest dependencies, made on demand by the entry script."""
        venv = os.environ.get("CORRAL_VENV") or str(ROOT / ".venv")
        made = subprocess.run([ROOT / "corral", "setup", "--floor"], check=False)
        if made.returncode != 0:
            result.fail("did not run: its environment could not be made")
            return None
        return Path(f"{venv}-floor") / "bin" / "python"


def deadline(*, ci: bool) -> float:
    """By the monotonic clock: when all stages must have ended, if they begin now."""
    return time.monotonic() + (TOTAL_BOUND_CI_S if ci else 24 * 3600)


def left_out(python: Path) -> list[str]:
    """The options that leave out what runs once: none where the floor's Python is an older one."""
    asked = "import sys; print(sys.version_info[:2])"
    versions = [
        subprocess.run([each, "-c", asked], capture_output=True, text=True, check=True).stdout
        for each in (python, sys.executable)
    ]
    return ["-m", "not once"] if versions[0] == versions[1] else []


def judge(
    result: Result, ending: Ending, selection: Selection, *, bound_s: float, ci: bool
) -> None:
    """Add the failures that no test stands for."""
    result.took_s = ending.took_s
    result.interrupted = ending.interrupted
    ran = result.passed + result.failed + result.skipped
    if ending.interrupted:
        result.fail("interrupted")
    elif ending.timed_out:
        result.fail(f"stopped after its bound of {bound_s:.0f} s", count=not result.failed)
    elif not ran and not (selection.narrowed and ending.status == NOTHING_COLLECTED):
        result.fail(f"nothing ran (pytest's exit status {ending.status})")
    elif ending.status not in {0, 1, NOTHING_COLLECTED} and not result.failed:
        result.fail(f"pytest ended with status {ending.status}")
    if ending.leftovers:
        result.fail(f"left running: {', '.join(ending.leftovers)}")
    if ci and result.skipped:
        result.notes.append("skipped tests are failures in CI")


def count(tally: Path, result: Result, *, ended_by_itself: bool) -> None:
    """Add up the plugin's lines; tests that a killed run never finished count as failed."""
    collected = finished = 0
    for line in tally.read_text().splitlines() if tally.exists() else []:
        kind, _, what = line.partition("\t")
        match kind:
            case "collected":
                collected = int(what)
                continue
            case "passed":
                result.passed += 1
            case "failed":
                result.failed += 1
            case "skipped":
                result.skipped += 1
        finished += 1
    if not ended_by_itself and collected > finished:
        result.fail(f"{collected - finished} tests did not end", count=collected - finished)


# ---- all of them ----------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    try:
        selection = parse(arguments)
    except UsageError as error:
        print(f"corral: {error}", file=sys.stderr)
        return EXIT_USAGE
    # A polite end (a time limit around us) ends the stage and its processes as Control-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ci = os.environ.get("CI") == "true"
    if selection.results is None and (missing := unprepared(selection)):
        print(f"corral: {missing}", file=sys.stderr)
        return EXIT_UNAVAILABLE
    seed = seeds.choose()
    if selection.results is not None:
        results = _run_all(selection, Runner(selection, seed, ci=ci))
        selection.results.write_text(json.dumps(_as_fields(results[0])))
        return 0
    print(f"{seeds.VARIABLE}={seed} (set it to repeat this run)", flush=True)
    if selection.stages == STAGES and not selection.narrowed and not selection.one_by_one:
        results = _run_side_by_side(selection, seed, deadline(ci=ci))
    else:
        results = _run_all(selection, Runner(selection, seed, ci=ci))
    if selection.narrowed and not any(r.passed + r.failed + r.skipped for r in results):
        results[0].fail("no test matches")
    return _report(results, ci=ci)


def unprepared(selection: Selection) -> str | None:
    """What only root can prepare and did not: said before the other stages, not after them."""
    if os.geteuid() == 0 or all(stage.folder != "vm" for stage in selection.stages):
        return None
    try:
        image.image(lambda _: None)
    except VmError as error:
        return str(error)
    return None


def _run_all(selection: Selection, runner: Runner) -> list[Result]:
    results: list[Result] = []
    for stage in selection.stages:
        print(f"\n== {stage.name}", flush=True)
        result = runner.run(stage)
        print(f"== {_line(result)}", flush=True)
        results.append(result)
        if result.interrupted:
            break
    return results


def _run_side_by_side(selection: Selection, seed: int, until: float) -> list[Result]:
    """Each stage is run by a process like this one, which owns what the stage leaves behind."""
    with tempfile.TemporaryDirectory(prefix="corral-lanes-") as scratch:
        told = {stage.name: Path(scratch) / f"{n}.json" for n, stage in enumerate(STAGES)}
        this = [sys.executable, "-P", "-m", "tests.stages", "--until", str(until)]
        jobs = [
            Job(
                stage.name,
                [*this, "--lane", str(told[stage.name]), stage.name, "--", *selection.options],
                stage.alone,
            )
            for stage in sorted(STAGES, key=_turn)
        ]
        lanes = Lanes(Path(scratch), os.environ | {seeds.VARIABLE: str(seed)})
        statuses = lanes.run(jobs)
        return [told_of(stage, told[stage.name], statuses.get(stage.name)) for stage in STAGES]


def _turn(stage: Stage) -> tuple[bool, int]:
    """What runs alone comes last; before it, what is not named in EARLY."""
    return stage.alone, EARLY.index(stage.name) if stage.name in EARLY else len(EARLY)


def told_of(stage: Stage, file: Path, status: int | None) -> Result:
    """What a stage's process told of it; one that told nothing has failed."""
    if file.exists():
        return Result(stage, **json.loads(file.read_text()))
    result = Result(stage)
    how = "it did not begin" if status is None else f"its process ended with {status}"
    result.fail(f"did not run: {how}")
    return result


def _as_fields(result: Result) -> dict[str, Any]:
    return {name: value for name, value in vars(result).items() if name != "stage"}


def _line(result: Result) -> str:
    counts = f"{result.passed} passed, {result.failed} failed, {result.skipped} skipped"
    return "; ".join([f"{result.stage.name}: {counts} in {result.took_s:.0f} s", *result.notes])


def _report(results: Sequence[Result], *, ci: bool) -> int:
    print(f"\n{'stage':<20}{'passed':>8}{'failed':>8}{'skipped':>8}{'time':>8}")
    for one in results:
        print(
            f"{one.stage.name:<20}{one.passed:>8}{one.failed:>8}{one.skipped:>8}"
            f"{one.took_s:>6.0f} s{''.join(f'  {note}' for note in one.notes)}"
        )
    passed = sum(one.passed for one in results)
    failed = sum(one.failed for one in results)
    skipped = sum(one.skipped for one in results)
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed or (ci and skipped) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
