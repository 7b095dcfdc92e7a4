"""Frames and fields: every limit at it and one past it, and what is no request."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.tamq import requests, wire
from corral.tamq.domain import AckMode, Policy, State
from corral.tamq.errors import (
    CODES,
    BodyTooLargeError,
    IncompatibleProtocolError,
    InvalidRequestError,
    MetadataTooLargeError,
    TamqError,
    from_wire,
)
from corral.tamq.requests import MessageId, Page, Register, Retry, Send

SEND: dict[str, Any] = {
    "client_id": "engine",
    "idempotency_key": "k",
    "sender_repo": "local",
    "target_repo": "shop",
    "body": "go",
}


def frame_of(size: int) -> bytes:
    empty = len(wire.encode({"a": ""}))
    return json.dumps({"a": "x" * (size - empty)}, separators=(",", ":")).encode() + b"\n"


def test_a_frame_at_the_limit_and_one_past_it() -> None:
    whole = frame_of(wire.FRAME_MAX_BYTES)
    assert len(whole) == wire.FRAME_MAX_BYTES
    fields = wire.decode(whole)
    assert wire.encode(fields) == whole
    with pytest.raises(InvalidRequestError, match="at most 131072 bytes"):
        wire.decode(frame_of(wire.FRAME_MAX_BYTES + 1))
    with pytest.raises(InvalidRequestError, match="at most 131072 bytes"):
        wire.encode({"a": fields["a"] + "x"})


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"\xff\n", "UTF-8"),
        (b'{"a": "\xed\xa0\x80"}\n', "UTF-8"),
        (b"nonsense\n", "JSON"),
        (b'{"a": NaN}\n', "JSON"),
        (b"[1]\n", "object"),
        (b"7\n", "object"),
        (b"[" * 100_000 + b"\n", "nested"),
        (b'{"a":' * 20_000 + b"\n", "nested"),
        (b'{"a": ' + b"1" * 5_000 + b"}\n", "JSON"),
        (b"", "JSON"),
    ],
)
def test_what_is_no_frame(line: bytes, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        wire.decode(line)


@given(st.binary(max_size=300))
def test_bytes_are_an_object_or_refused(line: bytes) -> None:
    with contextlib.suppress(InvalidRequestError):
        assert isinstance(wire.decode(line), dict)


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.99", "0"])
def test_minor_versions_are_admitted(version: str) -> None:
    wire.check_protocol(version)


@pytest.mark.parametrize("version", ["1.0", "1", "10.1", "", "x"])
def test_another_major_version_is_not(version: str) -> None:
    with pytest.raises(IncompatibleProtocolError):
        wire.check_protocol(version)


def test_a_version_is_a_text() -> None:
    with pytest.raises(InvalidRequestError):
        wire.check_protocol(0.1)


def test_both_capabilities_are_required_and_others_ignored() -> None:
    both = [wire.BOUNDED_DELIVERY, wire.IDEMPOTENT_SEND]
    wire.check_peer({"protocol": "0.1", "capabilities": [*both, "unheard_of_v7", 5]})
    for missing in both:
        left = [one for one in both if one != missing]
        with pytest.raises(IncompatibleProtocolError, match=missing):
            wire.check_peer({"protocol": "0.1", "capabilities": left})
    for capabilities in (None, "bounded_delivery_ack_v1"):
        with pytest.raises(IncompatibleProtocolError):
            wire.check_peer({"protocol": "0.1", "capabilities": capabilities})


@pytest.mark.parametrize("code", sorted(CODES))
def test_an_error_comes_back_as_it_was(code: str) -> None:
    error = CODES[code]("what", hint="do", ids={"message_id": "1"})
    with pytest.raises(CODES[code]) as caught:
        wire.answer(wire.refusal(error))
    assert caught.value.wire() == error.wire()
    assert caught.value.retryable is (code in {"unavailable", "busy"})


def test_the_codes_are_those_of_the_contract() -> None:
    assert set(CODES) == {
        "incompatible_protocol", "unauthorized", "invalid_request", "body_too_large",
        "metadata_too_large", "unknown_repo", "unavailable", "ambiguous_endpoint",
        "idempotency_conflict", "not_found", "invalid_state", "busy",
    }  # fmt: skip


@pytest.mark.parametrize("given", [None, 5, {}, {"code": "from_the_future", "ids": 3}])
def test_an_error_of_another_release_is_an_error(given: Any) -> None:
    error = from_wire(given)
    assert type(error) is TamqError
    assert error.retryable is False


# ---- fields ----


@pytest.mark.parametrize("letter", ["a", "é", "字", "🙂"])
def test_a_body_at_the_limit_and_one_past_it(letter: str) -> None:
    count, rest = divmod(wire.BODY_MAX_BYTES, len(letter.encode()))
    body = letter * count + "." * rest
    assert Send.parse({**SEND, "body": body}).body == body
    with pytest.raises(BodyTooLargeError, match="8193 bytes of UTF-8, at most 8192"):
        Send.parse({**SEND, "body": body + "."})


def metadata_of(size: int) -> dict[str, str]:
    return {"字": "é" * ((size - len('{"字":""}'.encode())) // 2)}


def test_metadata_at_the_limit_and_one_past_it() -> None:
    whole = metadata_of(wire.METADATA_MAX_BYTES)
    pad = wire.METADATA_MAX_BYTES - len(wire.compact(whole).encode())
    whole["字"] += "x" * pad
    encoded = Send.parse({**SEND, "metadata": whole}).metadata
    assert encoded is not None
    assert len(encoded.encode()) == wire.METADATA_MAX_BYTES
    assert json.loads(encoded) == whole
    whole["字"] += "x"
    with pytest.raises(MetadataTooLargeError, match="4097 bytes of JSON, at most 4096"):
        Send.parse({**SEND, "metadata": whole})


BAD: dict[str, list[object]] = {
    "client_id": ["", None, 5, "x" * 257, "é" * 129, "a\0b", "\ud800"],
    "idempotency_key": ["", None, [], "x" * 257],
    "sender_repo": ["", None, "x" * 129],
    "target_repo": ["", None, "x" * 129],
    "body": ["", None, 5, ["a"], "a\0b", "a\udfffb"],
    "endpoint_id": ["", 5],
    "correlation_id": ["", 5, "x" * 257],
    "provenance": ["", 5, "x" * 65],
    "metadata": [[], "x", 5, {"a": "\0"}, {"a\0": 1}, {"a": [{"b": "\0"}]}, {"a": "\ud800"}],
}


@pytest.mark.parametrize(("name", "value"), [(name, one) for name in BAD for one in BAD[name]])
def test_a_bad_field_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{name}: "):
        Send.parse({**SEND, name: value})


def test_fields_at_their_limits_and_unknown_ones() -> None:
    sent = Send.parse({
        **SEND, "client_id": "é" * 128, "sender_repo": "x" * 128, "provenance": "x" * 64, "new": 1
    })  # fmt: skip
    assert sent.metadata is None


@pytest.mark.parametrize(
    "value", [None, 5, "", "42", "42-" + "a" * 31, "42-" + "A" * 32, "0-" + "a" * 32,
              "4 2-" + "a" * 32, "42-" + "a" * 32 + "\n", "9" * 19 + "-" + "a" * 32]
)  # fmt: skip
def test_what_is_no_message_id(value: object) -> None:
    with pytest.raises(InvalidRequestError, match="message_id"):
        MessageId.parse(value)


def test_a_message_id_comes_back() -> None:
    text = "42-" + "0f" * 16
    assert str(MessageId.parse(text)) == text


REGISTER: dict[str, Any] = {"repos": ["shop"], "terminal": {"kind": "pty"}, "profile": "shell"}


def test_an_endpoint_has_1_to_32_repositories_and_1_to_9_attempts() -> None:
    most = Register.parse({**REGISTER, "repos": [f"r{n}" for n in range(32)]})
    assert len(most.repos) == 32
    for repos in ([], [f"r{n}" for n in range(33)], "shop", ["a", 5], [""]):
        with pytest.raises(InvalidRequestError, match="repos"):
            Register.parse({**REGISTER, "repos": repos})
    for attempts in (1, 9):
        policy = {"delivery_max_attempts": attempts, "delivery_ack_mode": "injected"}
        assert Register.parse({**REGISTER, "policy": policy}).policy == Policy(
            attempts, AckMode.INJECTED
        )
    bad: list[object] = [
        {"delivery_max_attempts": 0}, {"delivery_max_attempts": 10},
        {"delivery_max_attempts": True}, {"delivery_ack_mode": "never"}, 5,
    ]  # fmt: skip
    for policy_given in bad:
        with pytest.raises(InvalidRequestError, match=r"delivery_|policy"):
            Register.parse({**REGISTER, "policy": policy_given})


def test_a_terminal_is_an_object_of_at_most_2048_bytes() -> None:
    room = requests.TERMINAL_MAX_BYTES - len('{"a":""}')
    whole = {"a": "x" * room}
    assert Register.parse({**REGISTER, "terminal": whole}).terminal == whole
    bad: list[object] = [{"a": "x" * (room + 1)}, None, [], {"a": "\ud800"}]
    for terminal in bad:
        with pytest.raises(InvalidRequestError, match="terminal"):
            Register.parse({**REGISTER, "terminal": terminal})


def test_a_page_is_1_to_100_long() -> None:
    page = Page.parse({"limit": 100, "state": "failed", "cursor": "7"})
    assert (page.limit, page.state, page.before) == (100, State.FAILED, 7)
    for fields in ({"limit": 0}, {"limit": 101}, {"state": "lost"}, {"cursor": 5},
                   {"cursor": "-1"}, {"bodies": "yes"}):  # fmt: skip
        with pytest.raises(InvalidRequestError):
            Page.parse(fields)


def test_a_retry_says_who_and_why() -> None:
    fields = {"message_id": "42-" + "0f" * 16, "actor": "op", "why": "x" * 512}
    assert Retry.parse(fields).actor == "op"
    for change in ({"why": ""}, {"why": "x" * 513}, {"actor": None}):
        with pytest.raises(InvalidRequestError):
            Retry.parse({**fields, **change})
