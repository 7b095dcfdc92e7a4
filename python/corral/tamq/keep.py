"""Keeps the session of `tamq run` registered, whatever happens to TAMQ meanwhile."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from corral.core.backoff import Backoff
from corral.tamq.client import AsyncClient
from corral.tamq.errors import InvalidStateError, NotFoundError, TamqError

HEARTBEAT_S: Final = 10.0
RETRY_FIRST_S: Final = 0.25
RETRY_MAX_S: Final = 5.0


async def keep_registered(client: AsyncClient, fields: Mapping[str, object]) -> None:
    """Register, then send heartbeats until cancelled; then unregister.

    Registers again when TAMQ lost the session. Ends when somebody detached it. Raises the error
    with which TAMQ refuses it for good.
    """
    endpoint_id: str | None = None
    pause = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
    try:
        while True:
            try:
                endpoint_id = await _once(client, fields, endpoint_id)
                pause.reset()
                await asyncio.sleep(HEARTBEAT_S)
            except NotFoundError:
                endpoint_id = None
                await asyncio.sleep(pause.next_s())
            except InvalidStateError:  # detached
                endpoint_id = None
                return
            except TamqError as error:
                if not error.retryable:
                    endpoint_id = None
                    raise
                await asyncio.sleep(pause.next_s())
    finally:
        if endpoint_id is not None:
            with contextlib.suppress(TamqError):
                await client.request({"op": "unregister", "endpoint_id": endpoint_id})


async def _once(client: AsyncClient, fields: Mapping[str, object], known: str | None) -> str:
    if known is None:
        return str((await client.request(fields))["endpoint_id"])
    await client.request({"op": "heartbeat", "endpoint_id": known})
    return known
