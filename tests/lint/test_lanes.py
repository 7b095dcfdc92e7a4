"""Processes side by side: how many, in which order, what is shown of them, how they are ended."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lanes import Job, Lanes
from tests.lint.repository import ROOT

# Says its name, waits until all that it is to meet have begun, notes who runs beside it.
MEETS = """
import json, pathlib, sys, time
folder, name, *others = sys.argv[1:]
here = pathlib.Path(folder)
(here / name).touch()
while not all((here / other).exists() for other in others):
    time.sleep(0.01)
running = sorted(path.name for path in here.iterdir() if path.suffix != ".over")
over = sorted(path.stem for path in here.glob("*.over"))
print(json.dumps({"name": name, "begun": running, "over": over}))
(here / f"{name}.over").touch()
"""


def job(folder: Path, name: str, *meets: str, alone: bool = False) -> Job:
    return Job(name, [sys.executable, "-c", MEETS, str(folder), name, *meets], alone)


def test_so_many_run_at_once_and_what_runs_alone_does(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    met, printed = tmp_path / "met", tmp_path / "printed"
    met.mkdir()
    printed.mkdir()
    jobs = [
        job(met, "a", "b"),
        job(met, "b", "a"),
        job(met, "c", "d", "a.over"),
        job(met, "d", "c"),
        job(met, "alone", alone=True),
        job(met, "after"),
    ]
    statuses = Lanes(printed, os.environ, side_by_side=2).run(jobs)
    assert statuses == dict.fromkeys(["a", "b", "c", "d", "alone", "after"], 0)
    said = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [one["name"] for one in said] == ["a", "b", "c", "d", "alone", "after"]
    told = {one["name"]: one for one in said}
    assert not {"c", "d"} & set(told["a"]["begun"])
    assert told["alone"]["over"] == ["a", "b", "c", "d"]
    assert "after" not in told["alone"]["begun"]
    assert "alone" in told["after"]["over"]


STOPPED = """
import os, signal, sys
from pathlib import Path
from tests.lanes import Job, Lanes
signal.signal(signal.SIGTERM, signal.default_int_handler)
child = "print('begun', flush=True); import signal; signal.pause()"
jobs = [Job("one", [sys.executable, "-c", child]), Job("two", ["sh", "-c", "exit 3"], alone=True)]
print(Lanes(Path(sys.argv[1]), os.environ).run(jobs))
"""


def test_a_wish_to_stop_is_passed_on_and_nothing_else_begins(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", STOPPED, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == f"{{'one': {-signal.SIGTERM}}}\n"
    assert process.returncode == 0
