"""What `cowboy status` finds out about one agent: the daemon's word, else what Redis knows."""

import asyncio
from typing import Any, Final

from corral.core.errors import CorralError
from corral.cowboy.access import is_set_up, operator_endpoint
from corral.cowboy.control import ask
from corral.cowboy.settings import CowboySettings

STATUS_TIMEOUT_S: Final = 5.0


def of_agent(settings: CowboySettings, agent: str) -> dict[str, Any]:
    """The part of `cowboy status --json` about one agent.

    `sources` and `daemon` are the daemon's answer; `error` says why there is none. `redis` is what
    the streams show, or `redis_error` why that is not known; neither is there when the daemon has
    answered and no way to Redis is set up. An agent is healthy only when its daemon says so of
    each of its sources.
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
    report |= {"sources": sources, "daemon": answer}
    # A host without an operator's credential still has the daemon's word.
    return report | (_seen_in_redis(settings, agent) if is_set_up(settings) else {})


def _seen_in_redis(settings: CowboySettings, agent: str) -> dict[str, Any]:
    from corral.cowboy import redisops  # slow to import

    try:
        endpoint = operator_endpoint(settings)
        sources = settings.load_sources(agent).sources.values()
        return {"redis": asyncio.run(redisops.look(endpoint, sources))}
    except CorralError as error:
        return {"redis_error": error.as_dict()}
