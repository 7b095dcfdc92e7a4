"""What clients ask: whatever comes, a call or an error with a JSON-RPC code."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.gateway import domain, wire
from corral.gateway.domain import Limits, State, Task
from corral.gateway.errors import GatewayError, PushUnsupportedError
from corral.gateway.wire import Call, Envelope, Method

LIMITS = Limits(parts_max=3, id_max_chars=10, page_max=20)
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
KEYS = st.sampled_from([
    "message", "configuration", "messageId", "contextId", "taskId", "role", "parts", "text",
    "blocking", "returnImmediately", "historyLength", "id", "pageSize", "pageToken", "status",
    "statusTimestampAfter",
])  # fmt: skip
SHAPED = st.recursive(
    LEAVES | st.sampled_from(["ROLE_USER", "user"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
METHODS = st.sampled_from([*Method, "message/send", "message/stream", "tasks/get", "x"])


def message(old: bool = False, **fields: Any) -> dict[str, Any]:
    role = "user" if old else "ROLE_USER"
    return {"message": {"messageId": "m", "role": role, "parts": [{"text": "hi"}]} | fields}


def read(method: str, params: dict[str, Any], version: str | None) -> Call:
    return wire.read(Envelope("1", method, params), version, LIMITS)


# ---- anything -------------------------------------------------------------------------------


@given(METHODS, st.dictionaries(KEYS, SHAPED), st.sampled_from([None, "1.0", "0.3", "x", ""]))
def test_anything_is_a_call_or_an_error(
    method: str, params: dict[str, Any], version: str | None
) -> None:
    try:
        call = read(method, params, version)
    except GatewayError as error:
        assert error.rpc_code != GatewayError.rpc_code  # noqa: PT017  each fault has a code
        return
    assert call.send is None or call.send.message_id


@given(st.binary() | SHAPED.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_a_request_or_an_error(body: bytes) -> None:
    with pytest.raises(GatewayError):
        wire.envelope(body)


# ---- envelopes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"[" * 100_000, -32700),
        (b"\xff", -32700),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"x"}', -32700),
        (b"[]", -32600),
        (b'{"id":"1","method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":"1"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":[],"method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":"1","method":"x","params":[]}', -32600),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_request(body: bytes, code: int) -> None:
    with pytest.raises(GatewayError) as found:
        wire.envelope(body)
    assert found.value.rpc_code == code


# ---- versions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "version", "code"),
    [
        ("SendMessage", "1.0", None),
        ("SendMessage", "1.1", None),
        ("SendMessage", None, -32009),
        ("SendMessage", "0.3", -32009),
        ("SendMessage", "2.0", -32009),
        ("message/send", None, None),
        ("message/send", "0.3", None),
        ("message/send", "1.0", -32009),
        ("tasks/list", None, -32601),
        ("Other", "1.0", -32601),
        ("CreateTaskPushNotificationConfig", "1.0", -32003),
        ("tasks/pushNotificationConfig/set", "0.3", -32003),
        ("GetExtendedAgentCard", "1.0", -32007),
        ("agent/getAuthenticatedExtendedCard", None, -32007),
    ],
)
def test_methods_belong_to_a_version(method: str, version: str | None, code: int | None) -> None:
    """A request without the header speaks 0.3."""
    params = message(old="/" in method)
    if code is None:
        assert read(method, params, version).method is Method.SEND
    else:
        with pytest.raises(GatewayError) as found:
            read(method, params, version)
        assert found.value.rpc_code == code


@pytest.mark.parametrize(
    ("old", "configuration", "waits"),
    [
        (False, {}, True),
        (False, {"returnImmediately": True}, False),
        (True, {}, True),
        (True, {"blocking": True}, True),
        (True, {"blocking": False}, False),
    ],
)
def test_whether_a_call_waits(old: bool, configuration: dict[str, Any], waits: bool) -> None:
    method, version = ("message/send", "0.3") if old else ("SendMessage", "1.0")
    call = read(method, message(old=old) | {"configuration": configuration}, version)
    assert call.wait is waits


@pytest.mark.parametrize(
    ("old", "name"), [(False, "taskPushNotificationConfig"), (True, "pushNotificationConfig")]
)
def test_nobody_waits_for_a_call_that_never_comes(old: bool, name: str) -> None:
    method, version = ("message/send", "0.3") if old else ("SendMessage", "1.0")
    config = {"configuration": {name: {"url": "http://me/"}}}
    with pytest.raises(PushUnsupportedError):
        read(method, message(old=old) | config, version)


# ---- messages -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"messageId": "x" * 10}, None),
        ({"messageId": "x" * 11}, -32602),
        ({"messageId": ""}, -32602),
        ({"messageId": "a\n"}, -32602),
        ({"messageId": 7}, -32602),
        ({"contextId": "a\0"}, -32602),
        ({"contextId": ""}, None),
        ({"taskId": []}, None),
        ({"taskId": 7}, -32602),
        ({"role": "ROLE_AGENT"}, -32602),
        ({"parts": [{"text": "x"}] * 3}, None),
        ({"parts": [{"text": "x"}] * 4}, -32602),
        ({"parts": [{"text": " \n"}]}, -32602),
        ({"parts": []}, -32602),
        ({"parts": "x"}, -32602),
        ({"parts": ["x"]}, -32602),
        ({"parts": [{"raw": "aGk="}]}, -32005),
        ({"parts": [{"text": "x"}, {"data": {}}]}, -32005),
        ({"parts": [{"text": "a\0b"}]}, -32602),
        ({"parts": [{"text": "\ud800"}]}, -32602),
    ],
)
def test_messages(fields: dict[str, Any], code: int | None) -> None:
    if code is None:
        assert read("SendMessage", message(**fields), "1.0").send is not None
    else:
        with pytest.raises(GatewayError) as found:
            read("SendMessage", message(**fields), "1.0")
        assert found.value.rpc_code == code


def test_parts_are_one_text() -> None:
    call = read("SendMessage", message(parts=[{"text": "one"}, {"text": "two"}]), "1.0")
    assert call.send is not None
    assert call.send.text == "one\ntwo"


# ---- lists ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "count"),
    [({}, 20), ({"pageSize": 5}, 5), ({"pageSize": 20}, 20), ({"pageSize": 21}, 20)],
)
def test_pages_have_a_limit(params: dict[str, Any], count: int) -> None:
    listing = read("ListTasks", params, "1.0").listing
    assert listing is not None
    assert listing.count == count


@pytest.mark.parametrize(
    "params",
    [
        {"pageToken": "x"},
        {"pageToken": "9" * 19},
        {"pageSize": -1},
        {"status": "TASK_STATE_SLEEPING"},
        {"statusTimestampAfter": "yesterday"},
        {"contextId": 7},
    ],
)
def test_what_cannot_be_listed(params: dict[str, Any]) -> None:
    with pytest.raises(GatewayError) as found:
        read("ListTasks", params, "1.0")
    assert found.value.rpc_code == -32602


# ---- answers --------------------------------------------------------------------------------


@pytest.mark.parametrize("state", State)
def test_states_in_both_versions(state: State) -> None:
    task = Task("t", "a", "c", "ctx", state, 1, "hi", 0, 1_000)
    new = wire.shown(task, old=False, history=0)["status"]
    old = wire.shown(task, old=True, history=0)["status"]
    assert new["state"] == f"TASK_STATE_{state.name}"
    assert old["state"] == state.value
    assert new["timestamp"] == old["timestamp"] == "1970-01-01T00:00:01.000Z"


def test_transitions_of_the_table() -> None:
    """The table in the module's text says what the code does."""
    lines = [line.split("|") for line in (domain.__doc__ or "").splitlines() if line[:3] == "| `"]
    table = {
        State(left.strip(" `")): {State(one.strip(" `")) for one in right.split(",") if one.strip()}
        for _, left, right, _ in lines
    }
    assert table == domain.TRANSITIONS


def test_same_message_has_the_same_ids() -> None:
    assert domain.task_id("ann", "m") == domain.task_id("ann", "m")
    assert domain.task_id("ann", "m") != domain.task_id("bob", "m")
    assert domain.task_id("ann", "m") != domain.context_id("ann", "m")
