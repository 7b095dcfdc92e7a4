"""Frames: every message survives the wire, nothing else gets in, limits are exact."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.cowboy.runner import domain
from corral.cowboy.runner.domain import (
    FRAME_MAX_BYTES,
    Event,
    Finished,
    Forget,
    Go,
    Hello,
    Kill,
    Prepared,
    PrepareRequest,
    Query,
    Refused,
    Rejected,
    Request,
    RunIdentity,
    RunOutcome,
    RunPhase,
    RunResult,
    RunState,
    Welcome,
)
from corral.cowboy.runner.frames import FrameError, FrameSplitter

TURN = "scout.a2a.1.1732935482123-0"

turns = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._~-]{0,100}\Z")
attempts = st.integers(1, domain.ATTEMPT_MAX)
texts = st.text(st.characters(codec="utf-8"), max_size=40)
octets = st.binary(max_size=80)
results = st.builds(
    RunResult,
    st.sampled_from([outcome.value for outcome in RunOutcome]),
    octets,
    texts,
    st.booleans(),
)
requests: st.SearchStrategy[Request] = st.one_of(
    st.builds(Hello, st.integers(0, 9), texts, texts),
    st.builds(
        PrepareRequest,
        turn=turns,
        attempt=attempts,
        source=texts,
        prompt=octets,
        entry=texts,
        sender=st.none() | octets,
        channel=st.none() | octets,
        session=texts,
        resumed=st.booleans(),
        traceparent=st.none() | octets,
    ),
    st.builds(Go, turns, attempts),
    st.builds(Query, st.lists(st.tuples(turns, attempts), max_size=5).map(tuple)),
    st.builds(Kill, turns, attempts, texts),
    st.builds(Forget, turns, attempts),
)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Welcome, st.integers(0, 9), texts, texts),
    st.builds(Rejected, texts),
    st.builds(
        Prepared,
        turns,
        attempts,
        st.builds(RunIdentity, st.integers(0, 9), st.integers(0, 9), texts),
    ),
    st.builds(Refused, turns, attempts, texts),
    st.builds(Finished, turns, attempts, results),
    st.builds(RunState, turns, attempts, st.just(RunPhase.FINISHED), results),
    st.builds(
        RunState,
        turns,
        attempts,
        st.sampled_from([phase for phase in RunPhase if phase is not RunPhase.FINISHED]),
        st.none(),
    ),
)


@given(requests)
def test_every_request_survives_the_wire(request: Request) -> None:
    frame = domain.encode_request(request)
    assert frame.count(b"\n") == 1
    assert frame.endswith(b"\n")
    assert domain.decode_request(frame[:-1]) == request


@given(events)
def test_every_event_survives_the_wire(event: Event) -> None:
    frame = domain.encode_event(event)
    assert frame.count(b"\n") == 1
    assert frame.endswith(b"\n")
    assert domain.decode_event(frame[:-1]) == event


@given(st.binary(max_size=200))
def test_noise_is_refused_with_the_typed_error_only(noise: bytes) -> None:
    for decode in (domain.decode_request, domain.decode_event):
        with pytest.raises(FrameError):
            decode(noise)


def encoded(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


GO: dict[str, Any] = {"op": "go", "turn": TURN, "attempt": 1}
PREPARE: dict[str, Any] = {
    "op": "prepare",
    "turn": TURN,
    "attempt": 1,
    "source": "a2a",
    "prompt": "aGk=",
    "entry": "1-0",
    "sender": None,
    "channel": None,
    "session": "00",
    "resumed": False,
    "traceparent": None,
}


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b"", "JSON"),
        (b"[]", "object"),
        (b"\xff", "JSON"),
        (b"[" * 100_000, "JSON"),
        (encoded(op="start"), "op"),
        (encoded(op=7), "op"),
        (encoded(turn=TURN), "op"),
        (encoded(**{**GO, "turn": ""}), "turn"),
        (encoded(**{**GO, "turn": "../../etc/passwd"}), "turn"),
        (encoded(**{**GO, "turn": ".hidden"}), "turn"),
        (encoded(**{**GO, "turn": "a\n"}), "turn"),
        (encoded(**{**GO, "turn": None}), "turn"),
        (encoded(**{**GO, "attempt": 0}), "attempt"),
        (encoded(**{**GO, "attempt": True}), "attempt"),
        (encoded(**{**GO, "attempt": 1.0}), "attempt"),
        (encoded(**{**GO, "attempt": domain.ATTEMPT_MAX + 1}), "attempt"),
        (encoded(**{**PREPARE, "prompt": "a"}), "prompt"),
        (encoded(**{**PREPARE, "prompt": "aGk=\n"}), "prompt"),
        (encoded(**{**PREPARE, "prompt": None}), "prompt"),
        (encoded(**{**PREPARE, "prompt": "é"}), "prompt"),
        (encoded(**{**PREPARE, "sender": 1}), "sender"),
        (encoded(**{**PREPARE, "resumed": 1}), "resumed"),
        (encoded(**{**PREPARE, "session": None}), "session"),
        (encoded(op="hello", protocol="1", agent="a", ledger="l"), "protocol"),
        (encoded(op="hello", protocol=-1, agent="a", ledger="l"), "protocol"),
        (encoded(op="query", turns={}), "turns"),
        (encoded(op="query", turns=[[TURN]]), "turns"),
        (encoded(op="query", turns=[[TURN, "1"]]), "attempt"),
    ],
)
def test_a_bad_request_is_refused_and_the_error_names_its_key(line: bytes, key: str) -> None:
    with pytest.raises(FrameError, match=key):
        domain.decode_request(line)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (encoded(ev="gone", turn=TURN, attempt=1), "ev"),
        (encoded(ev="state", turn=TURN, attempt=1, state="asleep"), "state"),
        (encoded(ev="state", turn=TURN, attempt=1, state="finished"), "result"),
        (encoded(ev="prepared", turn=TURN, attempt=1, run=[]), "run"),
        (
            encoded(
                ev="finished",
                turn=TURN,
                attempt=1,
                result={"outcome": "won", "reply": "", "detail": "", "went": True},
            ),
            "outcome",
        ),
    ],
)
def test_a_bad_event_is_refused_and_the_error_names_its_key(line: bytes, key: str) -> None:
    with pytest.raises(FrameError, match=key):
        domain.decode_event(line)


def test_an_error_never_repeats_a_value() -> None:
    with pytest.raises(FrameError) as caught:
        domain.decode_request(encoded(**{**PREPARE, "prompt": "very private"}))
    assert "private" not in str(caught.value)


def test_unknown_keys_are_ignored() -> None:
    assert domain.decode_request(encoded(**GO, later="addition")) == Go(TURN, 1)


@pytest.mark.parametrize(("length", "fits"), [(160, True), (161, False)])
def test_turn_max_chars(length: int, fits: bool) -> None:
    line = encoded(op="go", turn="t" * length, attempt=1)
    assert domain.TURN_MAX_CHARS == 160
    if fits:
        assert domain.decode_request(line) == Go("t" * length, 1)
    else:
        with pytest.raises(FrameError, match="turn"):
            domain.decode_request(line)


@pytest.mark.parametrize(("count", "fits"), [(1000, True), (1001, False)])
def test_query_max_turns(count: int, fits: bool) -> None:
    line = domain.encode_request(Query(((TURN, 1),) * count))
    assert domain.QUERY_MAX_TURNS == 1000
    if fits:
        assert domain.decode_request(line) == Query(((TURN, 1),) * count)
    else:
        with pytest.raises(FrameError, match="turns"):
            domain.decode_request(line)


def rejected_of(frame_bytes: int) -> Rejected:
    bare = len(domain.encode_event(Rejected("")))
    return Rejected("x" * (frame_bytes - bare))


def test_frame_max_bytes_when_encoding() -> None:
    assert len(domain.encode_event(rejected_of(FRAME_MAX_BYTES))) == FRAME_MAX_BYTES
    with pytest.raises(FrameError, match=str(FRAME_MAX_BYTES)):
        domain.encode_event(rejected_of(FRAME_MAX_BYTES + 1))


def test_the_largest_reply_and_the_largest_prompt_fit_a_frame() -> None:
    payload = b"\xff" * domain.REPLY_MAX_BYTES_LIMIT
    result = RunResult("completed", payload, "x" * 1000, True)
    finished = Finished("t" * 160, 1, result)
    assert domain.decode_event(domain.encode_event(finished)[:-1]) == finished
    metadata = b"m" * 65_536
    request = PrepareRequest(
        "t" * 160, 1, "s" * 31, payload, "e", metadata, metadata, "0" * 64, True, metadata
    )
    assert domain.decode_request(domain.encode_request(request)[:-1]) == request


@given(
    st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=8),
    st.data(),
)
def test_lines_are_found_however_the_stream_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    splitter = FrameSplitter(64)
    found = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += list(splitter.feed(stream[:size]))
        stream = stream[size:]
    assert found == lines


@pytest.mark.parametrize("piece", [1, 7, 100])
@pytest.mark.parametrize(("length", "fits"), [(63, True), (64, False)])
def test_a_line_of_max_bytes_with_its_newline_passes_and_no_longer_one(
    length: int, fits: bool, piece: int
) -> None:
    stream = b"x" * length + b"\n"
    pieces = [stream[at : at + piece] for at in range(0, len(stream), piece)]
    splitter = FrameSplitter(64)
    if fits:
        assert [line for part in pieces for line in splitter.feed(part)] == [b"x" * length]
    else:
        with pytest.raises(FrameError, match="64"):
            [line for part in pieces for line in splitter.feed(part)]


def test_an_endless_line_is_refused_before_its_end_and_not_collected() -> None:
    splitter = FrameSplitter(64)
    assert list(splitter.feed(b"x" * 63)) == []
    with pytest.raises(FrameError):
        list(splitter.feed(b"y"))
