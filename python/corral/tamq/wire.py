"""Frames of protocol 0.1, for server and clients. Pure: no I/O.

One connection carries one request and one answer: each a JSON object on one line of UTF-8, newline
included at most `FRAME_MAX_BYTES` long.

    {"op": "ping", "protocol": "0.1"}
    {"ok": true, "protocol": "0.1", "capabilities": […], "instance": "…"}
    {"ok": false, "error": {"code": "…", "message": "…", "retryable": false}}
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from corral.tamq.errors import IncompatibleProtocolError, InvalidRequestError, TamqError, from_wire

PROTOCOL: Final = "0.1"
BOUNDED_DELIVERY: Final = "bounded_delivery_ack_v1"
IDEMPOTENT_SEND: Final = "idempotent_send_v1"
REQUIRED_CAPABILITIES: Final = frozenset({BOUNDED_DELIVERY, IDEMPOTENT_SEND})
CAPABILITIES: Final = (
    BOUNDED_DELIVERY,
    IDEMPOTENT_SEND,
    "endpoint_resolution_v1",
    "operator_rebind_v1",
)

FRAME_MAX_BYTES: Final = 131_072
BODY_MAX_BYTES: Final = 8_192  # of UTF-8
METADATA_MAX_BYTES: Final = 4_096  # of compact JSON in UTF-8
ID_MAX_BYTES: Final = 256  # client ids, keys, correlation ids
REPO_MAX_BYTES: Final = 128


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


# Made once: the functions of the module `json` make one for each call that is not their default.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
quoted: Final = json.encoder.encode_basestring  # a text as JSON
_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def encode(fields: Mapping[str, object]) -> bytes:
    """One frame. `InvalidRequestError` when it is too long or holds what JSON or UTF-8 cannot."""
    try:
        frame = _ENCODER.encode(fields).encode() + b"\n"
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidRequestError(f"not to be written as JSON: {type(error).__name__}") from None
    if len(frame) > FRAME_MAX_BYTES:
        raise InvalidRequestError(f"a line is at most {FRAME_MAX_BYTES} bytes")
    return frame


def compact(value: object) -> str:
    """JSON as it is measured, stored and sent. `ValueError` for NaN and for a lone surrogate."""
    text = _ENCODER.encode(value)
    text.encode()  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
    return text


def decode(line: bytes) -> dict[str, Any]:
    """The object of one line. `InvalidRequestError` says what is wrong with it."""
    if len(line) > FRAME_MAX_BYTES:
        raise InvalidRequestError(f"a line is at most {FRAME_MAX_BYTES} bytes")
    try:
        value = _DECODER.decode(line.decode())
    except UnicodeDecodeError:
        raise InvalidRequestError("a line must be UTF-8") from None
    except RecursionError:
        raise InvalidRequestError("the JSON is nested too deeply") from None
    except ValueError:
        raise InvalidRequestError("a line must be JSON") from None
    if not isinstance(value, dict):
        raise InvalidRequestError("a line must be a JSON object")
    return value


def answer(line: bytes) -> dict[str, Any]:
    """The fields of an answer without `ok`. Raises the error that it carries, if it is one."""
    fields = decode(line)
    if fields.pop("ok", None) is True:
        return fields
    raise from_wire(fields.get("error"))


def refusal(error: TamqError) -> bytes:
    """The frame that refuses."""
    return encode({"ok": False, "error": error.wire()})


def check_protocol(value: object) -> None:
    """`IncompatibleProtocolError` unless the major version is ours; minor versions may differ."""
    if not isinstance(value, str):
        raise InvalidRequestError('protocol: must be a text, as "0.1"')
    if value.partition(".")[0] != PROTOCOL.partition(".")[0]:
        raise IncompatibleProtocolError(
            f"protocol {value[:20]!r} is not {PROTOCOL}", hint="the major versions must be the same"
        )


def check_peer(pong: Mapping[str, Any]) -> None:
    """What a client checks of the answer to a ping before it asks for anything else."""
    check_protocol(pong.get("protocol"))
    told = pong.get("capabilities")
    missing = REQUIRED_CAPABILITIES.difference(
        (one for one in told if isinstance(one, str)) if isinstance(told, list) else ()
    )
    if missing:
        raise IncompatibleProtocolError(
            f"TAMQ lacks {', '.join(sorted(missing))}", hint="run a newer release of TAMQ"
        )
