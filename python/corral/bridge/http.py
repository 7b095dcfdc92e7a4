"""The appservice's side of HTTP: what a homeserver calls, and what watches the bridge.

A transaction is checked in this order, each step with its own answer, so that nothing is read for
a stranger: token (401, 403), size (413), JSON (400), meaning, ledger. It is answered 200 only when
it is committed; whatever fails on the way is 5xx, and the homeserver sends it again.

| answer | errcode | when |
| --- | --- | --- |
| 200 | | committed, now or before |
| 400 | `M_NOT_JSON`, `M_BAD_JSON`, `M_INVALID_PARAM` | the body or the transaction id is none |
| 401 | `M_MISSING_TOKEN` | no token |
| 403 | `M_FORBIDDEN` | a wrong one |
| 404, 405 | `M_NOT_FOUND`, `M_UNRECOGNIZED` | no such user or alias of ours; no such endpoint |
| 409 | `CORRAL_TRANSACTION_CONFLICT` | the id was used for other events |
| 413 | `M_TOO_LARGE` | above `body_max_bytes` |
| 500, 503 | `M_UNKNOWN` | a fault of ours; the ledger cannot be reached |

The token comes in the `Authorization` header, or, from old servers, in the query. It is never
logged, and neither is any content.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from aiohttp import web

from corral.bridge import events
from corral.bridge.events import Invite, Users
from corral.bridge.incoming import (
    Admission,
    Cancel,
    Classified,
    Committed,
    Conflict,
    Ignored,
    Incoming,
    Mention,
    Redaction,
    Refusal,
    Replay,
)
from corral.bridge.limits import Policy
from corral.core import logs
from corral.core.errors import CorralError
from corral.core.metrics import Metrics
from corral.core.weblog import wire_logger

TXN_ID_MAX_BYTES: Final = 255
AT_ONCE_MAX: Final = 4  # transactions that are held in memory together
PROBE_TIMEOUT_S: Final = 5.0
POWER_TIMEOUT_S: Final = 2.0  # in a transaction, which the homeserver waits for
CONFLICT: Final = "CORRAL_TRANSACTION_CONFLICT"

_log = logs.get(__name__)


@dataclass(frozen=True)
class Options:
    """`hs_token` proves the homeserver; `body_max_bytes` bounds a transaction; `clock` is
    monotonic, in seconds."""

    hs_token: str = field(repr=False)
    body_max_bytes: int = 16 * 1024 * 1024
    clock: Callable[[], float] = time.monotonic


class _Refused(Exception):
    """A request that is answered with an error of the specification's shape."""

    def __init__(self, status: int, errcode: str, error: str) -> None:
        super().__init__(errcode)
        self.status, self.errcode, self.error = status, errcode, error

    def response(self) -> web.Response:
        return web.json_response({"errcode": self.errcode, "error": self.error}, status=self.status)


class Counts:
    """What the intake counts; no label names a room, a user or a transaction."""

    def __init__(self, metrics: Metrics) -> None:
        self.transactions = metrics.counter(
            "transactions", "Transactions by what became of them", ["result"]
        )
        self.events = metrics.counter(
            "events", "Events by what they meant to the bridge", ["meaning"]
        )
        self.seconds = metrics.histogram("intake_seconds", "From the headers to the answer")
        self.age = metrics.gauge(
            "last_transaction_age_seconds", "Since the last transaction that was answered 200"
        )


class Intake:
    """Serves one appservice. `ready` answers why the bridge is not ready, or None. `accepting`
    says whether this process is the one that takes transactions. `powerful` answers whether a user
    may cancel what others asked for in a room; None: nobody may."""

    def __init__(
        self,
        options: Options,
        *,
        admission: Admission,
        users: Users,
        policy: Policy,
        metrics: Metrics,
        ready: Callable[[], Awaitable[str | None]],
        invited: Callable[[Sequence[Invite]], None] = lambda _: None,
        accepting: Callable[[], bool] = lambda: True,
        powerful: Callable[[str, str], Awaitable[bool]] | None = None,
    ) -> None:
        self._options = options
        self._admission = admission
        self._users = users
        self._policy = policy
        self._metrics = metrics
        self._ready = ready
        self._invited = invited
        self._accepting = accepting
        self._powerful = powerful
        self.heard: Callable[[Sequence[Any]], None] = lambda _: None  # what is committed
        self._counts = Counts(metrics)
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        self._token = _fingerprint(options.hs_token)
        self._last_s = options.clock()
        self._counts.age.set_function(lambda: options.clock() - self._last_s)

    def application(self) -> web.Application:
        """To be served by `runner` only."""
        app = web.Application(middlewares=[_answer_errors])
        v1 = "/_matrix/app/v1"
        for prefix in (v1, ""):  # the second is what old homeservers call
            app.router.add_put(f"{prefix}/transactions/{{txn_id}}", self._transaction)
            app.router.add_get(f"{prefix}/users/{{user_id}}", self._user)
            app.router.add_get(f"{prefix}/rooms/{{alias}}", self._alias)
        app.router.add_post(f"{v1}/ping", self._ping)
        app.router.add_get("/healthz", _healthy)
        app.router.add_get("/readyz", self._readiness)
        app.router.add_get("/metrics", self._expose)
        return app

    # ------------------------------------------------------------ transactions

    async def _transaction(self, request: web.Request) -> web.Response:
        began_s = self._options.clock()
        try:
            answer, result = await self._admit(request)
        except _Refused as refused:
            self._counts.transactions.labels(refused.errcode.lower()).inc()
            raise
        except Exception:
            self._counts.transactions.labels("failed").inc()
            raise
        self._counts.transactions.labels(result).inc()
        now_s = self._options.clock()
        self._counts.seconds.observe(now_s - began_s)
        if answer.status == 200:
            self._last_s = now_s
        return answer

    async def _admit(self, request: web.Request) -> tuple[web.Response, str]:
        self._authorize(request)
        if not self._accepting():
            raise _Refused(503, "M_UNKNOWN", "not the one that takes transactions now")
        txn_id = _transaction_id(request.match_info["txn_id"])
        async with self._at_once:
            body = await self._body(request)
            received = _events_of(body)
            incoming = await self._understood(txn_id, body, received)
            del body
            admitted = await self._admission.admit(incoming)
        if isinstance(admitted, Conflict):
            refused = _Refused(409, CONFLICT, "this transaction id had other events")
            return refused.response(), "conflict"
        if isinstance(admitted, Committed):
            self._count(incoming)
        self.heard(received)
        # A replay, too: the process that committed it may have died before it joined.
        if found := events.invites(received, self._users):
            self._invited(found)
        return web.json_response({}), _result(admitted)

    async def _understood(self, txn_id: str, body: bytes, received: list[Any]) -> Incoming:
        classified = events.classify(received, self._users, self._policy.unwelcome)
        if self._powerful is not None:
            classified = tuple([await self._with_power(one) for one in classified])
        return Incoming(
            txn_id=txn_id,
            body_digest=hashlib.sha256(body).digest(),
            events=events.digests(received),
            classified=self._policy.judge(classified, self._options.clock()),
        )

    async def _with_power(self, one: Classified) -> Classified:
        """Whoever may cancel for others is looked up now; no answer in time means no."""
        if not isinstance(one, Cancel) or self._powerful is None:
            return one
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POWER_TIMEOUT_S):
                return replace(one, by_power=await self._powerful(one.room_id, one.sender))
        return one

    def _count(self, incoming: Incoming) -> None:
        meanings = Counter(
            one.reason if isinstance(one, Ignored | Refusal) else type(one).__name__.lower()
            for one in incoming.classified
        )
        for meaning, count in meanings.items():
            self._counts.events.labels(meaning).inc(count)

    async def _body(self, request: web.Request) -> bytes:
        """The exact bytes, which are never more than the limit in memory."""
        limit = self._options.body_max_bytes
        too_large = _Refused(413, "M_TOO_LARGE", f"at most {limit} bytes are taken")
        if (request.content_length or 0) > limit:
            raise too_large
        parts, size = [], 0
        async for part in request.content.iter_any():
            size += len(part)
            if size > limit:
                raise too_large
            parts.append(part)
        return b"".join(parts)

    def _authorize(self, request: web.Request) -> None:
        header = request.headers.get("Authorization")
        token = None
        if header is not None and header[:7].lower() == "bearer ":
            token = header[7:].strip()
        elif header is None:
            token = request.query.get("access_token")
        if not token:
            raise _Refused(401, "M_MISSING_TOKEN", "the homeserver's token is missing")
        # Of equal length whatever was sent, so that the time tells nothing.
        if not hmac.compare_digest(_fingerprint(token), self._token):
            raise _Refused(403, "M_FORBIDDEN", "the homeserver's token is wrong")

    async def catch_up(self, missed: Sequence[Any]) -> int:
        """Admits what of these events no transaction brought, and counts it.

        Mentions, and wishes to cancel or remove one, which may come again without harm. Not what
        was said in a thread without a mention: it might be taken for the answer to a later
        question. CorralError when nobody knows whether they are in the ledger.
        """
        meant = events.classify(missed, self._users, self._policy.unwelcome)
        asking = [one for one in meant if isinstance(one, Mention)]
        wanted = {one.event_id for one in await self._admission.fresh(asking)}
        wanted |= {one.event_id for one in meant if isinstance(one, Cancel | Redaction)}
        fresh = [one for one in missed if one["event_id"] in wanted]
        if not fresh:
            return 0
        body = json.dumps(fresh).encode()
        txn_id = f"catch-up-{hashlib.sha256(body).hexdigest()[:32]}"
        incoming = await self._understood(txn_id, body, fresh)
        if isinstance(await self._admission.admit(incoming), Committed):
            self._count(incoming)
        self._counts.transactions.labels("caught_up").inc()
        return len(fresh)

    # ------------------------------------------------------------ other questions

    async def _ping(self, request: web.Request) -> web.Response:
        self._authorize(request)
        await self._body(request)
        return web.json_response({})

    async def _user(self, request: web.Request) -> web.Response:
        self._authorize(request)
        if request.match_info["user_id"] not in self._users.own:
            raise _Refused(404, "M_NOT_FOUND", "no user of ours")
        return web.json_response({})

    async def _alias(self, request: web.Request) -> web.Response:
        self._authorize(request)
        raise _Refused(404, "M_NOT_FOUND", "we have no room aliases")

    async def _readiness(self, _request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                reason = await self._ready()
        except TimeoutError:
            reason = "probe_timeout"
        except CorralError as error:
            reason = error.code
        if reason is None:
            return web.json_response({"ready": True})
        return web.json_response({"ready": False, "reason": reason}, status=503)

    async def _expose(self, _request: web.Request) -> web.Response:
        return web.Response(text=self._metrics.render(), content_type="text/plain")


def runner(app: web.Application) -> web.AppRunner:
    """Serves the application and logs no request line: the token may stand in it."""
    return web.AppRunner(app, access_log=None, logger=wire_logger("corral.bridge.wire"))


async def _healthy(_request: web.Request) -> web.Response:
    return web.json_response({"healthy": True})


@web.middleware
async def _answer_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Every way to fail has its status: never 200, and never a text that shows content."""
    try:
        return await handler(request)
    except _Refused as refused:
        return refused.response()
    except web.HTTPNotFound:
        return _Refused(404, "M_UNRECOGNIZED", "no such endpoint").response()
    except web.HTTPMethodNotAllowed:
        return _Refused(405, "M_UNRECOGNIZED", "no such method here").response()
    except CorralError as error:
        _log.error("request failed", code=error.code, **error.ids)
        return _Refused(503, "M_UNKNOWN", "not stored: send it again").response()
    except Exception as error:
        # Only where it happened: the text of an exception may quote an event.
        _log.error("request failed", code="internal", error=type(error).__name__, at=_place(error))
        return _Refused(500, "M_UNKNOWN", "not stored: send it again").response()


def _result(admitted: Committed | Replay) -> str:
    if isinstance(admitted, Committed):
        return "committed_epoch" if admitted.epoch else "committed"
    return "replay" if admitted.exact else "replay_rewritten"


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace else ""


def _fingerprint(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _transaction_id(txn_id: str) -> str:
    if "\0" in txn_id or not 0 < len(txn_id.encode("utf-8", "replace")) <= TXN_ID_MAX_BYTES:
        raise _Refused(400, "M_INVALID_PARAM", f"1 to {TXN_ID_MAX_BYTES} bytes, without NUL")
    return txn_id


def _events_of(body: bytes) -> list[Any]:
    try:
        content = _parsed(body)
    except (ValueError, RecursionError):
        raise _Refused(400, "M_NOT_JSON", "the body is not JSON") from None
    received = content.get("events") if isinstance(content, dict) else None
    if not isinstance(received, list):
        raise _Refused(400, "M_BAD_JSON", "the body has no list of events")
    return received


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:
        # A number of thousands of digits in one event must not hold up all the others.
        return json.loads(body, parse_int=str)
