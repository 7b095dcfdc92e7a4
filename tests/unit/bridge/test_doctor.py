"""What doctor concludes from facts: each fault alone, and nothing where all is well."""

from dataclasses import replace

import pytest

from corral.bridge.a2a.examination import Examination, Severity
from corral.bridge.a2a.examination import Finding as AgentFinding
from corral.bridge.doctor import (
    CLOCK_OFF_MAX_S,
    HomeserverFacts,
    LedgerFacts,
    of_agent,
    of_homeserver,
    of_ledger,
)
from corral.bridge.errors import LedgerError
from corral.core.errors import CorralError, ForeignDatabaseError
from corral.core.findings import Finding, Level

WELL = LedgerFacts(workers_alive=1)
SENDER = "@bridge:corral.test"
GOOD = HomeserverFacts(sender=SENDER, ghosts={"scout": ""}, rooms=(("!r", "scout", ""),))


def ledger(facts: LedgerFacts) -> dict[str, Level]:
    return codes(list(of_ledger(facts, room_capacity=4, capacity=10)))


def homeserver(facts: HomeserverFacts) -> dict[str, Level]:
    return codes(list(of_homeserver(facts, url="http://hs", sender=SENDER)))


def codes(findings: list[Finding]) -> dict[str, Level]:
    for one in findings:
        assert one.text
        assert (one.level is Level.OK) == (one.code == "ok")
        assert one.level is Level.OK or one.hint
    return {one.code: one.level for one in findings if one.level is not Level.OK}


def test_where_all_is_well_nothing_is_found() -> None:
    assert ledger(WELL) == {}
    assert homeserver(GOOD) == {}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LedgerError("no answer", hint="start it"), "database_unreachable"),
        (ForeignDatabaseError("schema 1", hint="start the bridge once"), "schema_wrong"),
    ],
)
def test_without_a_database_nothing_else_is_said_of_it(error: CorralError, code: str) -> None:
    assert ledger(LedgerFacts(error)) == {code: Level.FAULT}


@pytest.mark.parametrize(
    ("wrong", "code", "level"),
    [
        ({"writable": False}, "database_read_only", Level.FAULT),
        ({"clock_off_s": CLOCK_OFF_MAX_S + 1}, "clock_off", Level.FAULT),
        ({"clock_off_s": -600.0}, "clock_off", Level.FAULT),
        ({"workers_alive": 0}, "worker_dead", Level.FAULT),
        ({"waiting": 1}, "jobs_waiting", Level.FAULT),
        ({"open_jobs": 10}, "queue_full", Level.FAULT),
        ({"open_jobs": 8}, "queue_nearly_full", Level.WARNING),
        ({"fullest_room": 4}, "room_queue_full", Level.FAULT),
        ({"wedged_txn": "7"}, "txn_id_wedge", Level.FAULT),
        ({"ambiguous": 1}, "jobs_unresolved", Level.WARNING),
    ],
)
def test_each_fault_of_the_ledger_is_found_alone(
    wrong: dict[str, object], code: str, level: Level
) -> None:
    assert ledger(replace(WELL, **wrong)) == {code: level}  # type: ignore[arg-type]


def test_at_the_limit_the_clock_is_right_and_the_queue_has_room() -> None:
    assert ledger(replace(WELL, clock_off_s=CLOCK_OFF_MAX_S, open_jobs=7, fullest_room=3)) == {}


def test_behind_a_pooler_no_worker_has_a_session() -> None:
    assert ledger(LedgerFacts(pooled=True)) == {}


def test_the_cure_of_the_wedge_is_named() -> None:
    found = list(of_ledger(replace(WELL, wedged_txn="1"), room_capacity=4, capacity=10))
    [wedge] = [one for one in found if one.code == "txn_id_wedge"]
    assert "BRIDGE_TXN_CONFLICT=epoch" in wedge.hint


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"reachable": "no_answer"}, "homeserver_unreachable"),
        ({"token": "m_unknown_token"}, "as_token_wrong"),
        ({"sender": "@other:corral.test"}, "registration_differs"),
        ({"ping": "m_bad_status"}, "hs_token_wrong"),
        ({"ping": "m_connection_failed"}, "bridge_unreachable"),
        ({"ping": "m_forbidden"}, "registration_differs"),
        ({"ping": "http_404"}, "ping_http_404"),
        ({"ghosts": {"scout": "m_exclusive"}}, "ghost_not_ours"),
        ({"rooms": (("!r", "scout", "not_in_room"),)}, "ghost_not_in_room"),
        ({"rooms": (("!r", "scout", "may_not_speak"),)}, "ghost_may_not_speak"),
        ({"rooms": (("!r", "scout", "no_answer"),)}, "room_unknown"),
    ],
)
def test_each_fault_of_the_homeserver_is_found_alone(wrong: dict[str, object], code: str) -> None:
    assert homeserver(replace(GOOD, **wrong)) == {code: Level.FAULT}  # type: ignore[arg-type]


def test_what_is_wrong_with_an_agent_keeps_its_code() -> None:
    problem = AgentFinding("card_version_mismatch", Severity.ERROR, "it differs", "look")
    assert codes(list(of_agent(Examination("scout", (problem,))))) == {
        "card_version_mismatch": Level.FAULT
    }
    assert codes(list(of_agent(Examination("scout", (), None, "http://x", "1.0")))) == {}
