"""mautrix's request sender with what a service needs beside it.

What is changed, and why: nothing is retried inside (the ledger decides that), no request is logged
(it would show content), no redirect is followed, answers are bounded, and an error keeps the
pause that a 429 asks for.
"""

import json
from typing import Any, Final

from aiohttp import ClientResponse, ClientSession
from mautrix.api import HTTPAPI, Method
from mautrix.errors import MatrixConnectionError, MatrixRequestError
from yarl import URL

ANSWER_MAX_BYTES: Final = 32 * 1024 * 1024
RETRY_AFTER_DEFAULT_MS: Final = 1_000
RETRY_AFTER_MAX_MS: Final = 10 * 60 * 1_000


class HomeserverError(MatrixRequestError):
    """An answer other than 2xx. `errcode` is the specification's, or empty."""

    def __init__(self, status: int, errcode: str, retry_after_ms: int) -> None:
        super().__init__(f"HTTP {status} {errcode}".strip())
        self.http_status = status
        self.errcode = errcode
        self.retry_after_ms = retry_after_ms


class BadAnswerError(MatrixConnectionError):
    """2xx, but not what the specification says: too long, or no JSON object."""


class Api(HTTPAPI):
    """One homeserver, as one appservice. `request` raises `HomeserverError` for its answers,
    `MatrixConnectionError` or `TimeoutError` where there is none."""

    def __init__(self, base_url: str, token: str, session: ClientSession) -> None:
        super().__init__(base_url, token, client_session=session, default_retry_count=0)

    async def _send(
        self,
        method: Method,
        url: URL,
        content: Any,
        query_params: dict[str, str],
        headers: dict[str, str],
    ) -> tuple[Any, ClientResponse]:
        async with self.session.request(
            str(method),
            url,
            data=content,
            params=query_params,
            headers=headers,
            allow_redirects=False,
        ) as response:
            raw = await _bounded(response)
            answer = _object(raw)
            if not 200 <= response.status < 300:
                fields = answer or {}
                errcode = fields.get("errcode")
                raise HomeserverError(
                    response.status,
                    errcode if isinstance(errcode, str) else "",
                    _retry_after_ms(fields, response.headers.get("Retry-After")),
                )
            if answer is None:
                raise BadAnswerError("not a JSON object")
            return answer, response

    def _log_request(self, *_args: Any, **_more: Any) -> None: ...

    def _log_request_done(self, *_args: Any, **_more: Any) -> None: ...


async def _bounded(response: ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > ANSWER_MAX_BYTES:
            raise BadAnswerError("too long")
        parts.append(part)
    return b"".join(parts)


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _retry_after_ms(fields: dict[str, Any], header: str | None) -> int:
    """Current servers say it in a header (seconds), older ones in the body (milliseconds)."""
    value: float = RETRY_AFTER_DEFAULT_MS
    in_body = fields.get("retry_after_ms")
    if header is not None and header.isascii() and header.isdigit():
        value = int(header) * 1_000
    if isinstance(in_body, int | float) and not isinstance(in_body, bool):
        value = in_body
    # The comparison is written so that NaN ends at the default, too.
    return int(value) if 0 < value <= RETRY_AFTER_MAX_MS else _outside(value)


def _outside(value: float) -> int:
    return RETRY_AFTER_MAX_MS if value > RETRY_AFTER_MAX_MS else RETRY_AFTER_DEFAULT_MS
