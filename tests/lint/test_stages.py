"""The stage runner: what it runs, how it counts, and that it leaves nothing running."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import stages
from tests.bounded import Ending
from tests.contract import once
from tests.lint.repository import ROOT
from tests.vm.debian import VmError


def names(selection: stages.Selection) -> list[str]:
    return [stage.name for stage in selection.stages]


def test_everything_by_default_with_floor_after_ceiling() -> None:
    assert names(stages.parse([])) == [
        "lint",
        "unit",
        "unit (floor)",
        "nix",
        "contract",
        "contract (folders)",
        "contract (floor)",
        "contract (floor, folders)",
        "crash",
        "vm",
    ]


def test_every_folder_of_a_stage_exists() -> None:
    assert all((ROOT / "tests" / stage.folder).is_dir() for stage in stages.STAGES)


def test_named_stages_run_in_their_own_order() -> None:
    of_floor = ["contract (floor)", "contract (floor, folders)"]
    contract = ["contract", "contract (folders)", *of_floor]
    assert names(stages.parse(["contract", "lint"])) == ["lint", *contract]
    assert names(stages.parse(["unit (floor)"])) == ["unit (floor)"]


def test_what_runs_once_is_there_and_is_not_left_out_with_another_python(tmp_path: Path) -> None:
    folder = ROOT / "tests" / "contract"
    for name, why in once.ONCE.items():
        assert (folder / name).exists(), name
        assert why
    assert once.is_once(folder / "terminal" / "test_run.py", folder)
    assert once.is_once(folder / "tamq" / "test_fuzz.py", folder)
    assert not once.is_once(folder / "tamq" / "test_wire.py", folder)
    assert not once.is_once(folder / "test_transport.py", folder)
    assert not once.is_once(ROOT / "tests" / "unit" / "terminal" / "test_x.py", folder)
    assert stages.left_out(Path(sys.executable)) == ["-m", "not once"]
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho '(3, 99)'\n")
    other.chmod(0o755)
    assert stages.left_out(other) == []


@pytest.mark.parametrize("floor", [False, True])
def test_the_halves_of_a_folder_are_all_of_it_once(floor: bool) -> None:
    both = [stage for stage in stages.STAGES if stage.half and stage.floor is floor]
    halves = [path for stage in both for path in stage.paths()]
    found = [
        test
        for path in map(Path, halves)
        for test in ([path] if path.is_file() else sorted(path.rglob("test_*.py")))
    ]
    assert len(found) > len(halves)
    assert sorted(found) == sorted(Path("tests/contract").rglob("test_*.py"))


def test_what_works_alone_comes_last_and_the_order_names_stages() -> None:
    assert set(stages.EARLY) <= {stage.name for stage in stages.STAGES}
    order = [stage.name for stage in sorted(stages.STAGES, key=stages._turn)]
    assert order[:3] == ["lint", "unit", "unit (floor)"]
    assert order[-1] == "vm"
    assert [stage.name for stage in stages.STAGES if stage.alone] == ["vm"]


def test_a_stage_beside_others_is_given_its_time_and_tells_what_came_of_it() -> None:
    one = stages.parse(["--until", "5.5", "--lane", "told", "contract (folders)", "--", "-x"])
    assert names(one) == ["contract (folders)"]
    assert (one.results, one.until, one.options) == (Path("told"), 5.5, ["-x"])
    assert stages.Runner(one, 1, ci=True)._deadline == 5.5


def test_what_a_stage_does_not_tell_has_failed(tmp_path: Path) -> None:
    first, second = stages.STAGES[:2]
    told = stages.Result(first, passed=3, skipped=1, took_s=2.5, notes=["said"])
    (tmp_path / "told").write_text(json.dumps(stages._as_fields(told)))
    assert stages.told_of(first, tmp_path / "told", 0) == told
    unknown = stages.told_of(second, tmp_path / "nothing", -9)
    assert (unknown.stage, unknown.failed) == (second, 1)
    assert unknown.notes == ["did not run: its process ended with -9"]
    never = stages.told_of(second, tmp_path / "nothing", None)
    assert (never.failed, never.notes) == (1, ["did not run: it did not begin"])


def test_one_test_runs_once() -> None:
    selection = stages.parse(["tests/unit/test_x.py::test_y"])
    assert names(selection) == ["unit"]
    assert selection.tests == {"unit": ["tests/unit/test_x.py::test_y"]}
    assert names(stages.parse(["tests/contract/tamq/test_x.py"])) == ["contract"]


def test_options_go_to_pytest() -> None:
    assert stages.parse(["unit", "-x", "-k", "a or b"]).options == ["-x", "-k", "a or b"]
    assert stages.parse(["unit", "--", "--tb=short", "-k", "c"]).options == [
        "--tb=short",
        "-k",
        "c",
    ]
    assert names(stages.parse(["unit", "-k", "a"])) == ["unit"]


@pytest.mark.parametrize("what", ["moon", "tests", "tests/nowhere/test_x.py", "tests/conftest.py"])
def test_an_unknown_stage_is_refused_with_the_list(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stages.main([what]) == stages.EXIT_USAGE
    assert (
        f"{what}; the stages are: lint, unit, nix, contract, crash, vm" in capsys.readouterr().err
    )


def test_what_only_root_prepares_is_missed_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(_: object) -> None:
        raise VmError("no image", hint="as root: make it")

    monkeypatch.setattr("tests.vm.image.image", missing)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert stages.unprepared(stages.parse([])) is None
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert stages.unprepared(stages.parse(["lint", "crash"])) is None
    assert stages.main([]) == stages.EXIT_UNAVAILABLE
    assert capsys.readouterr().err == "corral: no image (as root: make it)\n"


def counted(tmp_path: Path, text: str, *, ended_by_itself: bool) -> tuple[int, int, int]:
    (tmp_path / "tally").write_text(text)
    result = stages.Result(stages.STAGES[0])
    stages.count(tmp_path / "tally", result, ended_by_itself=ended_by_itself)
    return result.passed, result.failed, result.skipped


def test_counting(tmp_path: Path) -> None:
    text = "collected\t4\npassed\ta\npassed\tb\nskipped\tc\n"
    assert counted(tmp_path, text, ended_by_itself=True) == (2, 0, 1)
    assert counted(tmp_path, text, ended_by_itself=False) == (2, 1, 1)
    assert counted(tmp_path, "failed\tmodule\ncollected\t0\n", ended_by_itself=True) == (0, 1, 0)


OUTCOMES = """
import pytest
def test_pass(): pass
def test_fail(): assert False
def test_skip(): pytest.skip("x")
@pytest.mark.xfail
def test_expected(): assert False
@pytest.fixture
def bad_end():
    yield
    raise RuntimeError
def test_teardown(bad_end): pass
@pytest.fixture
def bad_start(): raise RuntimeError
def test_setup(bad_start): pass
"""

START_SERVER = """
import subprocess
def test_forgets():
    subprocess.Popen(["sleep", "600"], start_new_session=True)
"""

RunStage = Callable[..., tuple[str, int]]


@pytest.fixture
def run(tmp_path: Path) -> RunStage:
    """Runs a made-up stage in a process of its own (it adopts orphans): its output and status."""

    def run_stage(text: str, *, ci: bool = False) -> tuple[str, int]:
        folder = tmp_path / "tests" / "lint"
        folder.mkdir(parents=True)
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:valkey\n")
        (folder / "test_made_up.py").write_text(text)
        program = (
            "import sys; from tests import stages as s;"
            "s.STAGES = (s.Stage('lint', bound_s=100),); sys.exit(s.main(['lint']))"
        )
        env = os.environ | {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}", "CI": str(ci).lower()}
        done = subprocess.run(
            [sys.executable, "-P", "-c", program],
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout, done.returncode

    return run_stage


def test_outcomes_are_counted_once_per_test(run: RunStage) -> None:
    out, status = run(OUTCOMES)
    assert out.splitlines()[-1] == "1 passed, 3 failed, 2 skipped"
    assert status == 1


def test_a_skip_fails_in_ci_only(run: RunStage) -> None:
    out, status = run("import pytest\ndef test_skip(): pytest.skip('x')\ndef test_p(): pass\n")
    assert (out.splitlines()[-1], status) == ("1 passed, 0 failed, 1 skipped", 0)


def test_a_skip_fails_in_ci(run: RunStage) -> None:
    out, status = run("import pytest\ndef test_skip(): pytest.skip('x')\n", ci=True)
    assert "skipped tests are failures in CI" in out
    assert status == 1


def test_a_stage_without_tests_fails(run: RunStage) -> None:
    out, status = run("")
    assert "nothing ran (pytest's exit status 5)" in out
    assert (out.splitlines()[-1], status) == ("0 passed, 1 failed, 0 skipped", 1)


def test_what_was_left_running_is_ended_and_fails(run: RunStage) -> None:
    out, status = run(START_SERVER)
    assert "left running: sleep (pid " in out
    assert (out.splitlines()[-1], status) == ("1 passed, 1 failed, 0 skipped", 1)


BOUNDED = """
import os, sys
from tests.bounded import Bounded
ending = Bounded().run(
    ["sh", "-c", "setsid sleep 600 & setsid sleep 601 & wait"], bound_s=2, env=os.environ
)
print(ending.timed_out, ending.status)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("nothing is left")
"""


def test_a_command_is_stopped_at_its_bound_with_all_that_it_started() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", BOUNDED],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["True -15", "nothing is left"]


def test_a_stage_that_was_stopped_is_not_a_success() -> None:
    result = stages.Result(stages.STAGES[0], passed=3)
    ending = Ending(-15, 60.0, timed_out=True)
    stages.judge(result, ending, stages.parse(["lint"]), bound_s=60, ci=False)
    assert (result.failed, result.notes) == (1, ["stopped after its bound of 60 s"])


def test_an_interrupted_stage_is_not_a_success() -> None:
    result = stages.Result(stages.STAGES[0], passed=3)
    selection = stages.parse(["lint"])
    stages.judge(result, Ending(-2, 1.0, interrupted=True), selection, bound_s=60, ci=False)
    assert result.interrupted
    assert result.failed == 1
