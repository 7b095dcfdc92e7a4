"""Answers of agents: whatever comes, a value of the right type or `BadAnswerError`."""

import base64
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corral.bridge.a2a import reading
from corral.bridge.a2a.reading import BadAnswerError, RpcError
from corral.bridge.ports import Artifact, Reply, Task, TaskState, TaskView

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
ANY = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)
KEYS = st.sampled_from([
    "task", "message", "kind", "status", "state", "id", "contextId", "parts", "text", "file",
    "bytes", "uri", "raw", "url", "data", "artifacts", "artifactId", "name", "mediaType",
    "filename", "history", "messageId", "role", "tasks", "nextPageToken", "jsonrpc", "result",
    "error", "code",
])  # fmt: skip
WORDS = st.sampled_from(["task", "message", "completed", "TASK_STATE_WORKING", "2.0", "a", ""])
SHAPED = st.recursive(
    LEAVES | WORDS,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, SHAPED)


def task(**fields: Any) -> dict[str, Any]:
    return {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}} | fields


def carried(text: str) -> bool:
    """Whether PostgreSQL and Matrix can carry the text."""
    text.encode()
    return "\0" not in text


def assert_carried(found: TaskView | Reply) -> None:
    texts = [found.text, found.context_id]
    if isinstance(found, TaskView):
        texts.append(found.task_id)
    for one in found.artifacts:
        texts += [one.artifact_id, one.name, one.text or "", one.url or "", one.media_type]
        assert (one.text is None) + (one.data is None) + (one.url is None) == 2
    assert all(carried(text) for text in texts)


# ---- anything at all ------------------------------------------------------------------------


@given(OBJECTS)
@example({"contextId": [], "parts": []})
def test_sent_is_a_task_a_reply_or_a_bad_answer(result: dict[str, Any]) -> None:
    try:
        answer = reading.sent(result, context_id="c")
    except BadAnswerError:
        return
    assert_carried(answer.view if isinstance(answer, Task) else answer)


@given(OBJECTS)
def test_view_is_a_view_or_a_bad_answer(result: dict[str, Any]) -> None:
    try:
        found = reading.view(result)
    except BadAnswerError:
        return
    assert_carried(found)


@given(SHAPED, SHAPED)
def test_parts_of_any_shape_never_cost_the_task(parts: object, artifacts: object) -> None:
    status = {"state": "completed", "message": {"parts": parts}}
    found = reading.view(task(status=status, artifacts=artifacts))
    assert found.state is TaskState.COMPLETED
    assert_carried(found)


@given(OBJECTS, st.text())
def test_list_is_a_list_or_a_bad_answer(result: dict[str, Any], ident: str) -> None:
    try:
        tasks, token = reading.listed(result)
    except BadAnswerError:
        return
    assert isinstance(token, str)
    assert all(isinstance(reading.has_message(one, ident), bool) for one in tasks)


@given(st.binary() | ANY.map(lambda value: json.dumps(value).encode()))
def test_envelope_of_anything(body: bytes) -> None:
    try:
        found = reading.envelope(body, "1")
    except BadAnswerError:
        return
    assert isinstance(found, dict | RpcError)


# ---- the envelope ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "a2a_answer_not_json"),
        (b"<html></html>", "a2a_answer_not_json"),
        (b'{"jsonrpc": "2.0", "id": "1", "resu', "a2a_answer_not_json"),
        (b"[" * 100_000, "a2a_answer_not_json"),
        (b'{"jsonrpc":"2.0","id":"1","result":{"n":NaN}}', "a2a_answer_not_json"),
        (b"9" * 10_000, "a2a_answer_not_json"),
        (b"[]", "a2a_answer_not_jsonrpc"),
        (b'{"id":"1","result":{}}', "a2a_answer_not_jsonrpc"),
        (b'{"jsonrpc":"2.0","id":"2","result":{}}', "a2a_answer_wrong_id"),
        (b'{"jsonrpc":"2.0","result":{}}', "a2a_answer_wrong_id"),
        (b'{"jsonrpc":"2.0","id":"2","error":{"code":-32602}}', "a2a_answer_wrong_id"),
        (b'{"jsonrpc":"2.0","id":"1","result":[]}', "a2a_answer_bad_shape"),
        (b'{"jsonrpc":"2.0","id":"1","error":[]}', "a2a_answer_not_jsonrpc"),
        (b'{"jsonrpc":"2.0","id":"1","error":{"code":"-32602"}}', "a2a_answer_not_jsonrpc"),
        (b'{"jsonrpc":"2.0","id":"1","error":{"code":true}}', "a2a_answer_not_jsonrpc"),
        (b'{"jsonrpc":"2.0","id":"1","error":{"code":1},"result":{}}', "a2a_answer_not_jsonrpc"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_answer_has_a_code(body: bytes, code: str) -> None:
    with pytest.raises(BadAnswerError) as found:
        reading.envelope(body, "1")
    assert found.value.code == code


def test_error_without_an_id_is_ours() -> None:
    body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"secret words"}}'
    assert reading.envelope(body, "1") == RpcError(-32700)


def test_error_and_a_null_result_are_an_error() -> None:
    body = b'{"jsonrpc":"2.0","id":"1","result":null,"error":{"code":-32601}}'
    assert reading.envelope(body, "1") == RpcError(-32601)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([{"reason": "tasks_full"}], "tasks_full"),
        ([{"detail": 1}, "x", {"reason": "R_2"}], "R_2"),
        ([{"reason": "secret words"}], ""),
        ([{"reason": 7}], ""),
        ({"reason": "tasks_full"}, ""),
        ("tasks_full", ""),
        (None, ""),
    ],
    ids=str,
)
def test_reason_of_an_error_is_a_word(data: object, reason: str) -> None:
    body = {"jsonrpc": "2.0", "id": "1", "error": {"code": -32050, "data": data}}
    assert reading.envelope(json.dumps(body).encode(), "1") == RpcError(-32050, reason)


# ---- tasks ----------------------------------------------------------------------------------

SPELLINGS = [(f"TASK_STATE_{one.name}", one) for one in TaskState] + [
    (one.value, one) for one in TaskState
]


@pytest.mark.parametrize(("name", "state"), SPELLINGS)
def test_states_of_both_versions(name: str, state: TaskState) -> None:
    assert reading.view(task(status={"state": name})).state is state


@pytest.mark.parametrize("state", [None, 7, "", "unknown", "TASK_STATE_UNSPECIFIED", ["working"]])
def test_state_that_we_do_not_know(state: object) -> None:
    """Of a new task it is no reason to forget its id; of a poll it is no answer."""
    shown = task(status={"state": state})
    answer = reading.sent({"task": shown}, context_id="")
    assert isinstance(answer, Task)
    assert answer.view.state is TaskState.SUBMITTED
    with pytest.raises(BadAnswerError, match="a2a_answer_bad_state"):
        reading.view(shown)


@pytest.mark.parametrize(
    "ident", [None, "", 7, ["t"], "a\0b", "a\nb", "\ud800", "x" * (reading.ID_MAX_CHARS + 1)]
)
def test_f46_id_that_cannot_be_kept_is_refused(ident: object) -> None:
    with pytest.raises(BadAnswerError, match="a2a_answer_bad_id"):
        reading.view(task(id=ident))
    assert reading.view(task(id="x" * reading.ID_MAX_CHARS)).state is TaskState.WORKING


def test_context_that_is_not_named_is_the_one_that_we_chose() -> None:
    for named in (None, ""):
        assert reading.view(task(contextId=named), context_id="ours").context_id == "ours"
    with pytest.raises(BadAnswerError, match="a2a_answer_bad_id"):
        reading.view(task(contextId=7), context_id="ours")


def test_f46_text_that_cannot_be_stored_is_replaced() -> None:
    message = {"parts": [{"text": "a\0b\ud800c"}]}
    found = reading.view(task(status={"state": "working", "message": message}))
    assert found.text == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"


@pytest.mark.parametrize(
    "result",
    [
        {"kind": "task"} | task(),
        task(),
        {"task": task()},
    ],
)
def test_both_versions_say_that_it_is_a_task(result: dict[str, Any]) -> None:
    assert isinstance(reading.sent(result, context_id=""), Task)


@pytest.mark.parametrize(
    "result",
    [
        {"kind": "message", "parts": [{"kind": "text", "text": "hi"}]},
        {"message": {"parts": [{"text": "hi"}], "contextId": "c"}},
    ],
)
def test_both_versions_say_that_it_is_a_message(result: dict[str, Any]) -> None:
    assert reading.sent(result, context_id="c") == Reply("hi", "c")


@pytest.mark.parametrize("result", [{}, {"task": None}, {"message": {}}, {"kind": "other"}])
def test_neither_task_nor_message_is_no_answer(result: dict[str, Any]) -> None:
    with pytest.raises(BadAnswerError):
        reading.sent(result, context_id="c")


# ---- parts ----------------------------------------------------------------------------------


def artifacts(*parts: dict[str, Any]) -> tuple[Artifact, ...]:
    return reading.view(
        task(artifacts=[{"artifactId": "a", "name": "n", "parts": list(parts)}])
    ).artifacts


def test_texts_of_an_artifact_are_one() -> None:
    assert artifacts({"text": "one"}, {"kind": "text", "text": "two"}) == (
        Artifact("a", "n", text="one\ntwo"),
    )


@pytest.mark.parametrize("old", [False, True])
def test_bytes_of_both_versions(old: bool) -> None:
    data = bytes(range(256))
    encoded = base64.b64encode(data).decode()
    part: dict[str, Any] = {"raw": encoded, "mediaType": "image/png", "filename": "f.png"}
    if old:
        file = {"bytes": encoded, "mimeType": "image/png", "name": "f.png"}
        part = {"kind": "file", "file": file}
    assert artifacts(part) == (Artifact("a/1", "f.png", None, data, "image/png"),)


def test_bytes_in_the_alphabet_of_urls() -> None:
    encoded = base64.urlsafe_b64encode(b"\xfb\xff\xfe").decode().rstrip("=")
    assert artifacts({"raw": encoded})[0].data == b"\xfb\xff\xfe"
    assert artifacts({"raw": "not base64!"}) == ()


def test_links_are_only_web_addresses() -> None:
    shown = artifacts(
        {"url": "https://example.org/x"},
        {"kind": "file", "file": {"uri": "file:///etc/passwd"}},
        {"url": "javascript:alert(1)"},
        {"url": "https://example.org/\nx"},
        {"url": "https://" + "x" * reading.URL_MAX_CHARS},
    )
    assert [one.url for one in shown] == ["https://example.org/x", None, None]
    assert shown[1].text == "file:///etc/passwd"


def test_media_type_is_a_media_type() -> None:
    part = {"raw": "aGk=", "mediaType": "text/html\r\nX-Evil: 1"}
    assert artifacts(part)[0].media_type == "application/octet-stream"


def test_data_is_a_document() -> None:
    [found] = artifacts({"kind": "data", "data": {"a": ["\0", "ü"]}})
    assert found.media_type == "application/json"
    assert json.loads(found.data or b"") == {"a": ["\0", "ü"]}


def test_part_of_a_later_kind_is_left_out() -> None:
    assert artifacts({"kind": "hologram", "hologram": {}}, {"text": "here"}) == (
        Artifact("a", "n", text="here"),
    )


def test_our_message_in_the_history() -> None:
    history = [{"messageId": "m", "role": "ROLE_AGENT"}, {"messageId": "n", "role": "user"}, 7]
    assert reading.has_message({"history": history}, "n")
    assert not reading.has_message({"history": history}, "m")
    assert not reading.has_message({"history": "n"}, "n")
