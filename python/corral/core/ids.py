"""Deterministic identifiers: the same input gives the same id in every process and release."""

import functools
import hashlib
from typing import Final

# Part of every digest. A change of the encoding needs a new version here, never an edit: ids that
# are already stored must keep their meaning.
_VERSION: Final = b"corral-id/1"
HEX_LENGTH_MIN: Final = 16
HEX_LENGTH_MAX: Final = 64


def digest(domain_tag: str, *fields: bytes | str) -> bytes:
    """SHA-256 (32 bytes) over the domain tag and the fields, each preceded by its length.

    `("ab", "c")` and `("a", "bc")` differ, and so do equal fields under two domain tags. A
    `str` counts as its UTF-8 bytes. `ValueError` for an empty tag, `UnicodeEncodeError` for
    text that has no UTF-8 form.
    """
    parts = [_tagged(domain_tag)]
    for field in fields:
        data = field.encode() if isinstance(field, str) else field
        parts += (len(data).to_bytes(8, "big"), data)
    return hashlib.sha256(b"".join(parts)).digest()


@functools.lru_cache(maxsize=64)  # there are few, and each is used for every event
def _tagged(domain_tag: str) -> bytes:
    if not domain_tag:
        raise ValueError("the domain tag must not be empty")
    data = domain_tag.encode()
    return _VERSION + len(data).to_bytes(8, "big") + data


def hex_id(domain_tag: str, *fields: bytes | str, length: int = 32) -> str:
    """The first `length` lower-case hex digits of `digest` (4 bits each; 16 to 64)."""
    if not HEX_LENGTH_MIN <= length <= HEX_LENGTH_MAX:
        raise ValueError(f"length must be {HEX_LENGTH_MIN} to {HEX_LENGTH_MAX}, not {length}")
    return digest(domain_tag, *fields).hex()[:length]


def new_uuid() -> str:
    """A random UUID (version 4) in its 36-character form."""
    import uuid  # rarely needed, and a tenth of what this module costs to import

    return str(uuid.uuid4())
