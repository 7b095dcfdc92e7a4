"""Topologies as Nix expressions, and what the refusal of one must say."""

from dataclasses import dataclass

ECHO = '{ runner.kind = "echo"; }'


@dataclass(frozen=True)
class Refusal:
    name: str
    topology: str
    message: str


def agents(text: str) -> str:
    return f"{{ agents = {text}; }}"


def agent(text: str) -> str:
    """One agent `a` with one good source, and more options."""
    return agents(f"{{ a = {{ sources.s = {ECHO}; }} // {text}; }}")


def source(text: str) -> str:
    """One source `s`, good but for these options."""
    return agents(f"{{ a.sources.s = {ECHO} // {text}; }}")


def runner(text: str) -> str:
    return agents(f"{{ a.sources.s.runner = {text}; }}")


def exec_with(text: str) -> str:
    return runner(f'{{ kind = "exec"; command = [ "c" ]; }} // {text}')


def two(first: str, second: str) -> str:
    one = f"{{ sources.s = {ECHO}; }}"
    return agents(f"{{ a = {one} // {first}; b = {one} // {second}; }}")


# Every whole number of a source.
LIMITS = (
    "ack_attempts_max",
    "backlog_max",
    "block_ms",
    "channel_backlog_max",
    "content_max_bytes",
    "dispatch_attempts_max",
    "metadata_max_bytes",
    "outbox_attempts_max",
    "read_count",
    "reclaim_idle_ms",
    "retention_h",
    "trim_interval_ms",
    "turns_concurrent_max",
)
