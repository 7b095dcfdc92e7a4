"""The deterministic ids of the bridge: what is done again after a kill has the id it had before.

Every id is a SHA-256 over a versioned tag and length-delimited fields (`corral.core.ids`). A tag
ends in its version: a change of the fields needs a new tag, since stored ids keep their meaning.
"""

import functools
from enum import StrEnum

from corral.core.ids import digest, hex_id


class Stage(StrEnum):
    """What a Matrix event of ours is to its job: part of its transaction id."""

    PRIMARY = "primary"  # the direct reply, or the placeholder
    EDIT = "edit"  # of the placeholder, into the result
    PART = "part"  # a further part of a long answer
    ARTIFACT = "artifact"
    NOTICE = "notice"  # of a job that was denied at admission


def job(event_id: str, ghost: str) -> str:
    """The job for a mention (32 hex digits): one for each event and mentioned ghost."""
    return hex_id("corral.bridge.job/1", event_id, ghost)


@functools.lru_cache(maxsize=1_024)  # one transaction asks for each of its mentions three times
def seen(event_id: str, ghost: str) -> bytes:
    """What is remembered of a mention for ever (32 bytes)."""
    return digest("corral.bridge.seen/1", event_id, ghost)


def message(job_id: str) -> str:
    """The A2A message id of a job's first message (64 hex digits)."""
    return hex_id("corral.bridge.message/1", job_id, length=64)


def context(job_id: str) -> str:
    """The A2A context id of a conversation that begins with this job (32 hex digits)."""
    return hex_id("corral.bridge.context/1", job_id)


def matrix_txn(stage: Stage, slot: int, job_id: str, ghost: str) -> str:
    """The Matrix transaction id of one event of ours (64 hex digits).

    It includes the ghost: homeservers remember ids for each appservice, not for each ghost.
    """
    return hex_id("corral.bridge.matrix/1", stage.value, str(slot), job_id, ghost, length=64)


def control(job_id: str, kind: str, source_event: str, slot: int) -> str:
    """The id of a control (32 hex digits). `source_event` is empty for those of the worker."""
    return hex_id("corral.bridge.control/1", job_id, kind, source_event, str(slot))


def control_txn(control_id: str) -> str:
    """The Matrix transaction id of what a control posts (64 hex digits)."""
    return hex_id("corral.bridge.control-txn/1", control_id, length=64)


def control_message(control_id: str) -> str:
    """The A2A message id of a continuation (64 hex digits)."""
    return hex_id("corral.bridge.control-message/1", control_id, length=64)


def fingerprint(kind: str, source_event: str, sender: str, generation: int, text: str) -> bytes:
    """What an intake control was when it came, kept when its text is scrubbed (32 bytes)."""
    return digest(
        "corral.bridge.fingerprint/1", kind, source_event, sender, str(generation), _utf8(text)
    )


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
