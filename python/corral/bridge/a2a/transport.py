"""HTTP over TCP and Unix sockets, with evidence of whether a request may have left.

The evidence is aiohttp's own signal that it writes the header, not the class of an exception: the
signal comes before the first byte is given to the socket, so without it nothing has left. What
has an effect (`fresh`) gets a connection of its own: on one that was kept, the server's goodbye
and our header may cross, and an answer that never comes would be ambiguous for nothing.

Redirects are answers, cookies are not kept, proxies of the environment are not used, and
compression is not asked for.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final

import aiohttp
from aiohttp import ClientTimeout, TraceConfig

from corral.bridge.a2a.target import Address
from corral.core import logs

CONNECTIONS_MAX: Final = 100
HEADERS_MAX_BYTES: Final = 8190  # of each line

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No whole answer. `left`: at least the header's first byte may have been written."""

    code: str
    left: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one call."""

    connect_s: float  # from the call to a connection, waiting for a free one included
    total_s: float
    answer_max_bytes: int


@dataclass(slots=True)
class _Evidence:
    left: bool = False


class Transport:
    """The connections of one process. Belongs to one event loop; `close` when done."""

    def __init__(self, *, connections_max: int = CONNECTIONS_MAX) -> None:
        self._connections_max = connections_max
        self._sessions: dict[tuple[str | None, bool], aiohttp.ClientSession] = {}

    async def close(self) -> None:
        """Calls that run get no answer."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    async def call(
        self,
        method: str,
        address: Address,
        *,
        headers: dict[str, str],
        limits: Limits,
        body: bytes | None = None,
        fresh: bool = False,
    ) -> Answer | NoAnswer:
        """One request. Raises nothing but cancellation."""
        evidence = _Evidence()
        try:
            async with self._session(address.socket, fresh).request(
                method,
                address.url,
                data=body,
                headers=headers,
                timeout=ClientTimeout(total=limits.total_s, connect=limits.connect_s),
                allow_redirects=False,
                trace_request_ctx=evidence,
            ) as response:
                if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                    return NoAnswer("a2a_answer_encoded", evidence.left)
                found = await _read(response, limits.answer_max_bytes)
                if found is None:
                    return NoAnswer("a2a_answer_too_large", evidence.left)
                return Answer(response.status, found)
        except Exception as error:  # whatever it is, the evidence decides
            code = code_of(error)
            if code == "a2a_fault":
                _log.warning("unforeseen fault of a call", kind=type(error).__name__)
            return NoAnswer(code, evidence.left)

    def _session(self, socket: str | None, fresh: bool) -> aiohttp.ClientSession:
        session = self._sessions.get((socket, fresh))
        if session is None:
            session = self._sessions[socket, fresh] = _new_session(
                socket, fresh, self._connections_max
            )
        return session


def _new_session(socket: str | None, fresh: bool, limit: int) -> aiohttp.ClientSession:
    connector: aiohttp.BaseConnector
    if socket is None:
        connector = aiohttp.TCPConnector(limit=limit, force_close=fresh)
    else:
        connector = aiohttp.UnixConnector(socket, limit=limit, force_close=fresh)
    trace = TraceConfig()
    trace.on_request_headers_sent.append(_header_is_written)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trace_configs=[trace],
        auto_decompress=False,
        trust_env=False,
        max_line_size=HEADERS_MAX_BYTES,
        max_field_size=HEADERS_MAX_BYTES,
        headers={"Accept-Encoding": "identity", "User-Agent": "corral-bridge"},
    )


async def _header_is_written(
    _session: aiohttp.ClientSession,
    context: SimpleNamespace,
    _params: aiohttp.TraceRequestHeadersSentParams,
) -> None:
    context.trace_request_ctx.left = True


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """The body; None when it is longer than allowed (the rest is not read)."""
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > max_bytes:
            response.close()
            return None
        parts.append(part)
    return b"".join(parts)


def code_of(error: Exception) -> str:
    """The stable word for an exception of aiohttp or the system."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return "a2a_connect_timeout"
        case TimeoutError():
            return "a2a_timeout"
        case aiohttp.ClientConnectorDNSError():
            return "a2a_dns"
        case aiohttp.ClientSSLError():
            return "a2a_tls"
        case aiohttp.ClientConnectorError():
            return "a2a_connect"
        case aiohttp.ClientPayloadError() | aiohttp.ServerConnectionError():
            return "a2a_disconnected"
        case aiohttp.ClientOSError() | OSError():
            return "a2a_disconnected"
        case aiohttp.ClientResponseError():
            return "a2a_bad_http"
    return "a2a_fault"
