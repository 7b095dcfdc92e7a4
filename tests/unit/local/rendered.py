"""A small rendered topology in the shape that `modules/lib` gives, for tests of its consumer."""

from typing import Any


def rendered(agent: str = "scout") -> dict[str, Any]:
    """One agent with one exec source and one echo source."""

    def source(name: str, runner: dict[str, Any]) -> dict[str, Any]:
        return {
            "stream": f"{agent}:{name}:inbox",
            "outbox": f"{agent}:{name}:outbox",
            "group": "cowboy",
            "consumer": f"harness-{name}",
            "reclaim_idle_ms": 600000,
            "read_count": 10,
            "ack": "dispatch",
            "on_interrupt": "notify",
            "runner": runner,
        }

    names = [f"agent-{agent}", f"source.{agent}.a2a", f"source.{agent}.echo"]
    acl = [f"user {name} on #@redis-{name}@ ~{agent}:* resetchannels -@all +@all" for name in names]
    return {
        "version": 1,
        "paths": {"config": "config", "state": "state", "runtime": "run"},
        "redis": {
            "socket": "run/redis/redis.sock",
            "acl": ["user default off", *acl],
            "settings": {"appendfsync": "always", "maxmemory": "64mb"},
        },
        "identities": {name: {"credential": f"redis-{name}"} for name in names},
        "agents": {
            agent: {
                "user": f"cowboy-{agent}",
                "identity": names[0],
                "sources_json": {
                    "version": 1,
                    "agent": agent,
                    "sources": {
                        "a2a": source("a2a", {"kind": "exec", "command": ["corral-demo-agent"]}),
                        "echo": source("echo", {"kind": "echo"}),
                    },
                },
                "sockets": {
                    "control": f"run/{agent}/control.sock",
                    "runner": f"run/{agent}/runner.sock",
                },
                "credentials": {"redis-password": f"redis-{names[0]}"},
            }
        },
        "credentials": {f"redis-{name}": {"owner": "cowboy", "units": []} for name in names},
    }
