"""`./corral demo` ends when it is asked to; its wakes, and the agent in a terminal, for real."""

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corral.local import wait
from corral.local.agent import answer, prompt_for
from corral.local.deployment import Deployment, Options
from corral.local.mentions_model import LIVE
from corral.local.pilot import PILOT_SESSION, PROCESSES, REPO, Pilot, woken_in
from corral.local.supervisor import Supervisor, left_behind
from corral.local.topology import base_environment, private_base
from corral.local.wakes import Wakes
from corral.local.wakes_model import judge

ENDS_WITHIN_S = 30.0
PATIENCE_S = 60.0


@pytest.mark.parametrize("after_ms", [0, 2, 5, 12, 40])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_interrupted_while_its_readers_connect(
    tmp_path: Path, number: signal.Signals, after_ms: int
) -> None:
    # A client that is cancelled while it connects may go on as if it had not been.
    printed = tmp_path / "printed"
    with (
        printed.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-m", "corral.local.demo", "--seed", "6"],
            env=base_environment(),
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=file,
        ) as process,
    ):
        try:
            wait.until(lambda: "while nothing runs" in printed.read_text(), 60, "it to begin")
            moment = time.monotonic() + after_ms / 1000
            wait.until(lambda: time.monotonic() >= moment, 5, "the moment")
            process.send_signal(number)
            assert process.wait(ENDS_WITHIN_S) == 130
        finally:
            process.kill()


async def test_its_wakes_keep_what_is_promised(tmp_path: Path, seed: int) -> None:
    """TAMQ with a session in tmux and one on a pty, killed three times, as the demo shows it."""
    base = private_base()  # short enough for sockets, whatever the test's own folder is called
    try:
        async with Wakes(base / "wakes", random.Random(seed)) as wakes:
            await wakes.play()
            evidence = await wakes.evidence()
        report = judge(evidence)
        wakes.keep(evidence, tmp_path / "kept")
        assert not report.violations, (tmp_path / "kept" / "tamq.log").read_text()
        assert report.summary.killed_between >= 1
        assert report.summary.sessions_alive == 2
        assert not left_behind(str(base))
    finally:
        shutil.rmtree(base)


async def test_a_turn_whose_session_is_killed_is_ended_by_the_next_one() -> None:
    prompt = prompt_for(b"close issue 7", work_s=1.0)
    said: dict[str, str | bytes] = {"content": prompt, "sender": "ada", "message_id": "m-1"}
    async with Deployment(Options(others={LIVE: woken_in("wakes")})) as deployment:
        wakes = Wakes(deployment.base / "wakes", random.Random(1), repos=[REPO])
        pilot = Pilot(deployment, wakes.environment)
        supervisor = Supervisor(deployment.base / "live")
        for service in pilot.services():
            supervisor.add(service)

        async with wakes, pilot:
            try:
                await supervisor.start(*PROCESSES, timeout_s=PATIENCE_S)
                words = [word for pair in said.items() for word in pair]
                entry = (await deployment.ask("XADD", f"{LIVE}:a2a:inbox", "*", *words)).decode()
                await wait.until_true(pilot.at_work, PATIENCE_S, "the session to begin")
                assert supervisor.kill(PILOT_SESSION)
                await wait.until_true(lambda: not pilot.at_work(), PATIENCE_S, "it to be answered")
                left = await pilot.left(supervisor)
                ((_, fields),) = await deployment.ask("XRANGE", f"{LIVE}:a2a:outbox", "-", "+")
            finally:
                await supervisor.abandon()
    (turn,) = left.turns
    assert (turn.entry_id, turn.outcome, turn.starts) == (entry, "completed", 2)
    assert fields[b"content"] == answer(prompt, turn.turn_id)
    assert not left.trouble
    events = [one.ev for one in left.effects]
    assert events == ["shown", "start", "shown", "start", "end", "taken"]
