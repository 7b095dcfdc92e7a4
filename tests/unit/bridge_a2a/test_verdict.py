"""What is a definite refusal, and what is not: each line of the module's table."""

import pytest

from corral.bridge.a2a import verdict
from corral.bridge.a2a.verdict import Fault, Kind

REFUSED = [-32700, -32600, -32601, -32602, -32003, -32004, -32005, -32008, -32009]


@pytest.mark.parametrize("code", REFUSED)
def test_documented_refusals_are_definite(code: int) -> None:
    assert verdict.of_rpc(code).kind is Kind.REFUSED


@pytest.mark.parametrize("code", [-32603, -32006, -32007, -32000, -32099, 0, 1, 500, -(10**40)])
def test_all_other_codes_are_ambiguous(code: int) -> None:
    assert verdict.of_rpc(code).kind is Kind.AMBIGUOUS


def test_refusals_about_a_task() -> None:
    assert verdict.of_rpc(-32001) == Fault(Kind.GONE, "a2a_rpc_task_not_found")
    assert verdict.of_rpc(-32002).kind is Kind.NOT_CANCELABLE


def test_an_agent_without_room_has_begun_nothing() -> None:
    """By code and reason together: another server may use the code for something else."""
    assert verdict.of_rpc(-32050, "tasks_full") == Fault(Kind.NEVER_LEFT, "a2a_rpc_tasks_full")
    assert verdict.of_rpc(-32050).kind is Kind.AMBIGUOUS
    assert verdict.of_rpc(-32050, "other").kind is Kind.AMBIGUOUS
    assert verdict.of_rpc(-32603, "tasks_full").kind is Kind.AMBIGUOUS


def test_statuses() -> None:
    found = {status: verdict.of_status(status) for status in range(100, 600)}
    assert all(fault.code == f"a2a_http_{status}" for status, fault in found.items())
    of_kind = {kind: {one for one in found if found[one].kind is kind} for kind in Kind}
    assert of_kind[Kind.AUTH] == {401, 403}
    assert of_kind[Kind.REFUSED] == {404, 405, 413, 415, 422}
    assert len(of_kind[Kind.AMBIGUOUS]) == len(found) - 7


def test_body_never_makes_a_definite_refusal_of_a_servers_fault() -> None:
    assert not any(verdict.body_decides(status) for status in (401, 403, 408, 429, 500, 503, 599))
    assert all(verdict.body_decides(status) for status in (200, 400, 404, 422))
