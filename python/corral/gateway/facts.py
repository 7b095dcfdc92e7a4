"""What `corral-gateway doctor` looks at."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
)

from corral.core.clock import wall_ms
from corral.core.database import examine_database
from corral.core.errors import ConfigError, CorralError
from corral.core.findings import Finding
from corral.core.sqlite import SqliteReader
from corral.gateway import figures, store, tokens
from corral.gateway.doctor import (
    RedisFacts,
    SecretFacts,
    ServiceFacts,
    TaskFacts,
    of_redis,
    of_secret,
    of_service,
    of_tasks,
)
from corral.gateway.redislink import Stream, ask, connect
from corral.gateway.settings import GatewaySettings
from corral.gateway.stream import ADD, CONSUMER, GROUP

if TYPE_CHECKING:
    import redis.asyncio

ASK_TIMEOUT_S: Final = 5.0
NO_SCRIPT: Final = "0" * 40
NOTHING: Final = "corral-gateway-doctor"  # a field that is not there


async def examine(settings: GatewaySettings) -> list[Finding]:
    """Everything, one finding at least for each check."""
    found = [of_secret(one) for one in await asyncio.to_thread(secrets, settings)]
    found += of_tasks(await tasks(settings), settings.limits)
    found += of_service(await service(settings))
    for agent in settings.agents:
        found += of_redis(await redis_of(settings.stream(agent)))
    return found


# ---- secrets --------------------------------------------------------------------------------


def secrets(settings: GatewaySettings) -> list[SecretFacts]:
    """Blocks."""
    found, known = [], set[str]()
    for name, path in settings.clients.items():
        trouble = ""
        try:
            token = tokens.one(name, path)
        except ConfigError as error:
            trouble = error.message
        else:
            trouble = f"{path} holds another client's token" if token in known else ""
            known.add(token)
        found.append(_secret(f"client {name}", path, trouble))
    for agent, entry in settings.agents.items():
        trouble = ""
        try:
            empty = not settings.stream(agent).password()
        except ConfigError as error:
            trouble = error.message
        else:
            trouble = f"{entry.password_file} is empty" if empty else ""
        found.append(_secret(f"credential {agent}", entry.password_file, trouble))
    return found


def _secret(check: str, path: Path, trouble: str) -> SecretFacts:
    try:
        mode = path.stat().st_mode & 0o777
    except FileNotFoundError:
        return SecretFacts(check, str(path), missing=True)
    except OSError as error:
        return SecretFacts(check, str(path), trouble=f"{path}: {error.strerror}")
    return SecretFacts(check, str(path), mode, trouble=trouble)


# ---- tasks ----------------------------------------------------------------------------------


async def tasks(settings: GatewaySettings) -> TaskFacts:
    path = settings.database
    try:
        if not await asyncio.to_thread(path.exists):
            return TaskFacts(there=False)
        await asyncio.to_thread(examine_database, path, store.SCHEMA)
        async with SqliteReader(path) as reader:
            now = await figures.standing(reader)
    except OSError as error:
        return TaskFacts(error=CorralError(f"{path}: {error.strerror}", hint="run it as its user"))
    except CorralError as error:
        return TaskFacts(error=error)
    now_ms = wall_ms()
    return TaskFacts(
        open_tasks={client: now.open_of(client) for client in settings.clients},
        known=now.known,
        waiting_s={
            agent: (now_ms - oldest_ms) / 1000 for agent, (_, oldest_ms) in now.deliveries.items()
        },
    )


# ---- the service ----------------------------------------------------------------------------


async def service(settings: GatewaySettings) -> ServiceFacts:
    socket = str(settings.socket)
    timeout = aiohttp.ClientTimeout(total=ASK_TIMEOUT_S)
    connector = aiohttp.UnixConnector(socket)
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
            async with http.get("http://localhost/readyz") as answer:
                body: dict[str, Any] = await answer.json()
            refused = [name for name in settings.clients if not await _knows(http, settings, name)]
    except (aiohttp.ClientError, OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or type(error).__name__
        return ServiceFacts(socket, trouble=str(told))
    trouble = {str(leg): str(word) for leg, word in body.get("trouble", {}).items()}
    return ServiceFacts(socket, legs=trouble, refused=refused)


async def _knows(http: aiohttp.ClientSession, settings: GatewaySettings, client: str) -> bool:
    """Whether the service takes the token that is in the file now. A file without one is no
    question for it."""
    try:
        token = await asyncio.to_thread(tokens.one, client, settings.clients[client])
    except ConfigError:
        return True
    url = f"http://localhost/a2a/{next(iter(settings.agents))}/"
    headers = {"Authorization": f"Bearer {token}"}
    async with http.post(url, data=b"{}", headers=headers) as answer:
        return answer.status != 401


# ---- redis ----------------------------------------------------------------------------------


def probes(stream: Stream) -> dict[str, Sequence[str | int]]:
    """Each verb of the identity as a command that is let through, and then does nothing."""
    inbox, outbox, sent = stream.inbox, stream.outbox, stream.sent
    return {
        "XADD": ("XADD", inbox, "NOMKSTREAM", "MAXLEN", "none", "*", "content", ""),
        "HGET": ("HGET", sent, NOTHING),
        "HKEYS": ("HKEYS", sent),
        "HSET": ("HSET", sent, NOTHING, "", "half a pair"),
        "HDEL": ("HDEL", sent, NOTHING),
        "SCRIPT LOAD": ("SCRIPT LOAD", ADD),
        "EVALSHA": ("EVALSHA", NO_SCRIPT, 2, inbox, sent),
        "XGROUP CREATE": ("XGROUP CREATE", outbox, GROUP, "none"),
        "XACK": ("XACK", outbox, GROUP, "0-0"),
        "XTRIM": ("XTRIM", outbox, "MINID", "=", "0-0"),
    }


async def redis_of(stream: Stream) -> RedisFacts:
    where = stream.redis.where
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            client = await connect(stream, timeout_s=ASK_TIMEOUT_S)
    except ConfigError as error:
        return RedisFacts(stream.agent, where, unreachable=error.message)
    except AuthenticationError:
        return RedisFacts(stream.agent, where, unauthorized=True)
    except (RedisError, OSError, TimeoutError) as error:
        if isinstance(error.__cause__, AuthenticationError):
            return RedisFacts(stream.agent, where, unauthorized=True)
        return RedisFacts(stream.agent, where, unreachable=type(error).__name__)
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            return await _asked(client, stream)
    except (RedisError, OSError, TimeoutError) as error:
        return RedisFacts(stream.agent, where, unreachable=type(error).__name__)
    finally:
        with contextlib.suppress(RedisError, OSError):
            await client.aclose()


async def _asked(client: "redis.asyncio.Redis", stream: Stream) -> RedisFacts:
    denied, full, group = [], False, True
    reading = ("XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", 1, "STREAMS", stream.outbox, "0")
    for verb, words in {**probes(stream), "XREADGROUP": reading}.items():
        try:
            await ask(client, *words)
        except NoPermissionError:
            denied.append(verb)
        except OutOfMemoryError:
            full = True
        except ResponseError as error:
            group = group and not str(error).startswith("NOGROUP")
    where = stream.redis.where
    return RedisFacts(stream.agent, where, denied=denied, full=full, group=group)
