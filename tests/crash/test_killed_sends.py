"""The bridge and the agent that it calls are killed around their calls: who starts what, how often.

`./corral chaos bridge --sends 500` is the same at length.
"""

import pytest

from corral.bridge.domain import Reason
from tests.crash.conftest import KEEP_IN
from tests.harness.send_sides import ThroughGateway
from tests.harness.send_trial import Result, Trial, run_trial


def judged(trial: Trial) -> Result:
    result = run_trial(trial, KEEP_IN)
    assert result.ok, "\n".join([str(result), *result.violations[:20]])
    return result


def test_an_idempotent_target_is_never_left_uncertain(seed: int) -> None:
    result = judged(Trial("gateway", seed))
    assert set(result.ends) == {Reason.ANSWERED}
    assert set(result.begun.values()) == {1}
    assert all(result.kills[one] for one in ("one", "gateway"))


@pytest.mark.parametrize("to", ["sdk", "sdk-reconciled"])
def test_an_agent_of_the_sdk_never_starts_twice(to: str, seed: int) -> None:
    result = judged(Trial(to, seed, sends=20))
    assert max(result.begun.values()) == 1
    assert result.killed_ends[Reason.CALL_UNCERTAIN]


def test_what_is_sent_again_without_a_contract_is_caught() -> None:
    result = run_trial(Trial("sdk", 7, sends=10, plant="send-again"))
    assert any("was begun 2 times" in one for one in result.violations), str(result)


def test_an_end_that_is_left_uncertain_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThroughGateway, "agent", {})
    result = run_trial(Trial("gateway", 7, sends=10))
    assert any("ended call_uncertain" in one for one in result.violations), str(result)
