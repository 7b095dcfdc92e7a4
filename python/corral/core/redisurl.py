"""The address of Redis as a URL, which never holds a user or a password. Pure."""

from typing import Final
from urllib.parse import SplitResult, urlsplit

PORT: Final = 6379


def split(url: str, instead: str) -> SplitResult:
    """The parts of `unix:///path.sock`, `redis://host:port` or `rediss://host:port`.

    `instead`: what holds user and password. ValueError says what is wrong, without the URL.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for what is no port
    except ValueError:
        raise ValueError("is not a URL") from None
    if parts.scheme not in {"redis", "rediss", "unix"}:
        raise ValueError("must begin with redis://, rediss:// or unix:///")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"must not hold a user or password: {instead}")
    return parts
