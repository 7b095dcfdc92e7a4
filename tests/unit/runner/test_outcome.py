"""What a run's end and output mean: the whole table, and the strict envelope."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.cowboy.runner.domain import REPLY_OUTCOMES, RunOutcome, RunResult
from corral.cowboy.runner.outcome import Cause, End, classify
from corral.cowboy.runner.plan import OutputRules

TEXT = OutputRules(envelope=False, reply_max_bytes=10)
JSON = OutputRules(envelope=True, reply_max_bytes=10)
OK = End(exit_status=0)
KILLED = End(signal=9)


def envelope(state: str = "completed", text: object = "hi") -> bytes:
    return json.dumps({"state": state, "text": text}).encode()


@pytest.mark.parametrize(
    ("end", "output", "outcome", "detail"),
    [
        (OK, b"hi\n", "completed", ""),
        (OK, b"", "completed", ""),
        (OK, b"a\0b", "completed", ""),
        (OK, b"0123456789", "completed", ""),
        (OK, b"0123456789x", "reply_too_large", "more than 10 bytes"),
        (OK, "ééééé".encode(), "completed", ""),
        (OK, b"\xff", "output_invalid", "not UTF-8"),
        (OK, b"\xed\xa0\x80", "output_invalid", "not UTF-8"),
        (OK, "é".encode()[:1], "output_invalid", "not UTF-8"),
        (End(exit_status=3), b"hi", "exit_nonzero", "exit status 3"),
        (End(exit_status=3), b"\xff", "exit_nonzero", "exit status 3"),
        (End(signal=15), b"hi", "exit_nonzero", "signal 15"),
        (KILLED, b"hi", "exit_nonzero", "signal 9"),
        (End(signal=9, cause=Cause.KILL, note="cancel"), b"hi", "killed", "cancel"),
        (End(signal=9, cause=Cause.STOP, note="stop"), b"hi", "killed", "stop"),
        (End(signal=9, cause=Cause.TIMEOUT, note="after 1 s"), b"hi", "timeout", "after 1 s"),
        (End(signal=9, cause=Cause.TOO_LARGE), b"x" * 11, "reply_too_large", "more than 10 bytes"),
        # It had ended by itself when the kill came.
        (End(exit_status=0, cause=Cause.KILL, note="cancel"), b"hi", "completed", ""),
        (End(exit_status=0, cause=Cause.TIMEOUT, note="x"), b"hi", "completed", ""),
        (End(exit_status=4, cause=Cause.KILL), b"hi", "exit_nonzero", "exit status 4"),
        (End(exit_status=127, start_error="No such file or directory"), b"", "start_failed", None),
    ],
)
def test_every_end_has_its_outcome(
    end: End, output: bytes, outcome: str, detail: str | None
) -> None:
    result = classify(TEXT, end, output)
    expected = end.start_error if detail is None else detail
    reply = output if outcome == "completed" else b""
    assert result == RunResult(outcome, reply, expected or "", True)


@pytest.mark.parametrize(
    ("end", "detail"),
    [
        (End(signal=9, cause=Cause.KILL, note="cancel", went=False), "cancel"),
        (End(signal=9, went=False), "ended before it was told to go"),
        (End(exit_status=127, start_error="Permission denied", went=False), "Permission denied"),
    ],
)
def test_what_never_went_is_killed_and_says_so(end: End, detail: str) -> None:
    assert classify(TEXT, end, b"") == RunResult("killed", b"", detail, False)


@pytest.mark.parametrize("state", ["completed", "input_required", "failed"])
def test_an_envelope_gives_state_and_text(state: str) -> None:
    assert classify(JSON, OK, envelope(state, "grüße")) == RunResult(
        state, "grüße".encode(), "", True
    )


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"hi",
        b"null",
        b"[]",
        b'"completed"',
        b'{"state":"completed"}',
        b'{"text":"hi"}',
        b'{"state":"completed","text":"hi","more":1}',
        b'{"state":"completed","text":"hi","text":"ho"}',
        b'{"state":"killed","text":"hi"}',
        b'{"state":"Completed","text":"hi"}',
        b'{"state":null,"text":"hi"}',
        b'{"state":["completed"],"text":"hi"}',
        b'{"state":"completed","text":null}',
        b'{"state":"completed","text":7}',
        b'{"state":"completed","text":{"text":"hi","text":"ho"}}',
        b'{"state":"completed","text":"\\ud800"}',
        b'{"state":"completed","text":"hi"} trailing',
        b'{"state":"completed","text":"hi"}{"state":"completed","text":"hi"}',
        b"\xef\xbb\xbf" + envelope(),
        envelope().decode().encode("utf-16"),
        b'{"state":"completed","text":"\xff"}',
        b"[" * 60,
    ],
)
def test_anything_but_the_envelope_is_invalid_output(output: bytes) -> None:
    result = classify(JSON, OK, output)
    assert (result.outcome, result.reply) == ("output_invalid", b"")
    assert result.detail


def test_deeply_nested_output_is_invalid_and_no_crash() -> None:
    rules = OutputRules(envelope=True, reply_max_bytes=1_000_000)
    assert classify(rules, OK, b"[" * 1_000_000).outcome == "output_invalid"


@pytest.mark.parametrize(("length", "outcome"), [(10, "completed"), (11, "reply_too_large")])
def test_the_limit_counts_the_bytes_of_the_text_and_not_of_the_envelope(
    length: int, outcome: str
) -> None:
    escaped = b'{"state":"completed","text":"' + b"\\u0078" * length + b'"}'
    assert classify(JSON, OK, escaped).outcome == outcome


def test_no_reply_within_the_limit_is_refused_for_the_length_of_its_envelope() -> None:
    rules = OutputRules(envelope=True, reply_max_bytes=3000)
    escaped = b'{ "state": "input_required", "text": "' + b"\\u0000" * 3000 + b'" }\n'
    assert len(escaped) <= rules.read_max_bytes
    assert classify(rules, OK, escaped).outcome == "input_required"


ends = st.builds(
    End,
    exit_status=st.none(),
    signal=st.integers(1, 31),
    cause=st.none() | st.sampled_from(Cause),
    note=st.sampled_from(["", "cancel"]),
    start_error=st.none() | st.just("Exec format error"),
    went=st.booleans(),
) | st.builds(
    End,
    exit_status=st.integers(0, 255),
    cause=st.none() | st.sampled_from(Cause),
    went=st.booleans(),
)


@given(st.sampled_from([TEXT, JSON]), ends, st.binary(max_size=16))
def test_a_reply_is_text_within_the_limit_and_only_of_a_run_that_went_and_exited_0(
    rules: OutputRules, end: End, output: bytes
) -> None:
    result = classify(rules, end, output)
    assert result.went == end.went
    assert result.outcome in set(RunOutcome)
    if result.outcome in REPLY_OUTCOMES:
        assert (end.exit_status, end.start_error, end.went) == (0, None, True)
        assert len(result.reply) <= rules.reply_max_bytes
        assert result.reply.decode("utf-8") is not None
    else:
        assert result.reply == b""
