"""What `cowboy status` finds out about one agent: the daemon's word, else what Redis knows."""

import asyncio
from typing import Any, Final

from corral.core.errors import CorralError
from corral.cowboy.control import ask
from corral.cowboy.settings import CowboySettings

STATUS_TIMEOUT_S: Final = 5.0


def of_agent(settings: CowboySettings, agent: str) -> dict[str, Any]:
    """The part of `cowboy status --json` about one agent.

    `sources` and `daemon` are the daemon's answer; `error` says why there is none, and then
    `redis` is what the streams show, or `redis_error` why that is not known either. An agent is
    healthy only when its daemon says so of each of its sources.
    """
    report: dict[str, Any] = {
        "agent": agent,
        "healthy": False,
        "sources": [],
        "daemon": {},
        "error": None,
        "redis": None,
        "redis_error": None,
    }
    try:
        answer = ask(settings.control_socket(agent), {"op": "status"}, STATUS_TIMEOUT_S)
    except CorralError as error:
        report["error"] = error.as_dict()
        return report | _seen_in_redis(settings, agent)
    sources = answer.pop("sources", [])
    healthy = answer.pop("healthy", True) is True and bool(sources)
    report["healthy"] = healthy and all(source.get("healthy") is True for source in sources)
    return report | {"sources": sources, "daemon": answer}


def _seen_in_redis(settings: CowboySettings, agent: str) -> dict[str, Any]:
    from corral.cowboy import redisops  # slow to import, and seldom needed

    try:
        endpoint = settings.redis_endpoint(redisops.OPERATOR)
        sources = settings.load_sources(agent).sources.values()
        return {"redis": asyncio.run(redisops.look(endpoint, sources))}
    except CorralError as error:
        return {"redis_error": error.as_dict()}
