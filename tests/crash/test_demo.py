"""`./corral demo` as it is run: exit status, table, and the page that shows the run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from corral.local.topology import base_environment
from tests.harness.homeserver import ready_to_start

BOUND_S = 240
PARTS = ("mentions", "wakes")


@pytest.mark.timeout(BOUND_S + 60)
def test_the_demo_holds_what_it_promises_and_draws_it(tmp_path: Path, seed: int) -> None:
    ready_to_start()
    argv = [sys.executable, "-m", "corral.local.demo", "--json", "--seed", str(seed)]
    done = subprocess.run(
        [*argv, "--report", "run.html"],
        env=base_environment(),
        cwd=tmp_path,
        capture_output=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    told = json.loads(done.stdout)
    assert told["ok"]
    assert told["seed"] == seed
    for part in (told["summary"], told["mentions"]["summary"]):
        assert part["answered"] + part["notices"] == part.get("asked", part.get("sent"))
        assert part["kills_in_flight"] > 0
    assert told["mentions"]["summary"]["answered_live"] > 0
    kills = [part["kills"] for part in (told["summary"], *(told[n]["summary"] for n in PARTS))]
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert page.count('class="kill"') == sum(kills)
    answered = told["summary"]["answered"] + told["mentions"]["summary"]["answered"]
    assert page.count('class="fine"') == answered
    assert 'class="lost"' not in page
