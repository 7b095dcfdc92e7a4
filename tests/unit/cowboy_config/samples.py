"""Documents for the tests of `sources.json`: a good one, and edits that make it bad."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
Edit = Callable[[Document], object]


def source(agent: str = "scout", name: str = "a2a", **changes: object) -> Document:
    """The settings of one source, all required keys and nothing else."""
    return {
        "stream": f"{agent}:{name}:inbox",
        "outbox": f"{agent}:{name}:outbox",
        "group": "cowboy",
        "consumer": f"harness-{name}",
        "reclaim_idle_ms": 600_000,
        "read_count": 10,
        "ack": "dispatch",
        "on_interrupt": "notify",
        "runner": {"kind": "exec", "command": ["/bin/cat"]},
        **changes,
    }


def document(**changes: object) -> Document:
    """A file with one source."""
    return {"version": 1, "agent": "scout", "sources": {"a2a": source()}, **changes}


def edited(edit: Edit) -> Document:
    """The good file with one edit."""
    copied = copy.deepcopy(document())
    edit(copied)
    return copied


def in_source(**changes: object) -> Edit:
    return lambda file: file["sources"]["a2a"].update(changes)


def in_runner(**changes: object) -> Edit:
    return lambda file: file["sources"]["a2a"]["runner"].update(changes)


def without(*path: str) -> Edit:
    """Removes the key at the end of the path."""

    def edit(file: Document) -> None:
        for key in path[:-1]:
            file = file[key]
        del file[path[-1]]

    return edit


def named(name: str) -> Edit:
    """Renames the source, with streams and consumer that follow the new name."""
    return lambda file: file.update(sources={name: source(name=name)})


def for_agent(agent: str) -> Edit:
    return lambda file: file.update(agent=agent, sources={"a2a": source(agent)})


@dataclass(frozen=True)
class Bad:
    """A refused file: the path that the error begins with, and whether the schema refuses too."""

    id: str
    edit: Edit
    path: str
    says: str = ""
    schema: bool = True


HOSTILE_NAMES = ["*", "a:b", "x" * 32, "Scout", "", "1a", "-a", "a b", "a/b", "..", "é", "a_b"]

BAD = [
    Bad("no version", without("version"), "version", "is missing"),
    Bad("other version", lambda f: f.update(version=2), "version", "reads version 1"),
    Bad("version is true", lambda f: f.update(version=True), "version", "whole number"),
    Bad("no agent", without("agent"), "agent", "is missing"),
    Bad("no sources", without("sources"), "sources", "is missing"),
    Bad("sources empty", lambda f: f.update(sources={}), "sources", "at least 1"),
    Bad("sources is a list", lambda f: f.update(sources=[]), "sources", "object"),
    Bad("source is null", lambda f: f["sources"].update(a2a=None), "sources.a2a", "object"),
    Bad("unknown key at the top", lambda f: f.update(extra=1), "extra", "unknown key"),
    Bad("unknown limit", lambda f: f.update(limits={"x": 1}), "limits.x", "unknown key"),
    Bad("limit of 0", lambda f: f.update(limits={"turns_concurrent_max": 0}),
        "limits.turns_concurrent_max"),
    Bad("misspelt key", in_source(raed_count=1), "sources.a2a.raed_count", "'read_count'"),
    Bad("read_count is text", in_source(read_count="10"), "sources.a2a.read_count", "whole number"),
    Bad("read_count is true", in_source(read_count=True), "sources.a2a.read_count", "whole number"),
    Bad("read_count is 1.5", in_source(read_count=1.5), "sources.a2a.read_count", "whole number"),
    Bad("read_count is null", in_source(read_count=None), "sources.a2a.read_count"),
    Bad("stream is missing", without("sources", "a2a", "stream"), "sources.a2a.stream", "missing"),
    Bad("stream of nobody", in_source(stream="*"), "sources.a2a.stream", "scout:a2a:inbox"),
    Bad("stream of another agent", in_source(stream="other:a2a:inbox"), "sources.a2a.stream",
        "scout:a2a:inbox", schema=False),
    Bad("outbox is the inbox", in_source(outbox="scout:a2a:inbox"), "sources.a2a.outbox",
        "the same stream as sources.a2a.stream"),
    Bad("outbox of another", in_source(outbox="scout:b:outbox"), "sources.a2a.outbox",
        "scout:a2a:outbox", schema=False),
    Bad("another group", in_source(group="other"), "sources.a2a.group", "cowboy"),
    Bad("another consumer", in_source(consumer="harness-b"), "sources.a2a.consumer",
        "harness-a2a", schema=False),
    Bad("unknown ack", in_source(ack="never"), "sources.a2a.ack", "'dispatch' or 'reply'"),
    Bad("unknown policy", in_source(on_interrupt="x"), "sources.a2a.on_interrupt", "'hold'"),
    Bad("runner without kind", in_source(runner={}), "sources.a2a.runner.kind", "is missing"),
    Bad("runner of no kind", in_source(runner={"kind": "x"}), "sources.a2a.runner.kind", "'exec'"),
    Bad("runner is null", in_source(runner=None), "sources.a2a.runner", "object"),
    Bad("runner with a tag as key", in_runner(exec=1), "sources.a2a.runner.exec", "unknown key"),
    Bad("echo with a command", in_source(runner={"kind": "echo", "command": ["/bin/cat"]}),
        "sources.a2a.runner.command", "is not a key of this part"),
    Bad("no command", without("sources", "a2a", "runner", "command"),
        "sources.a2a.runner.command", "is missing"),
    Bad("command is a shell line", in_runner(command="cat | sh"), "sources.a2a.runner.command",
        "list"),
    Bad("command is empty", in_runner(command=[]), "sources.a2a.runner.command", "at least 1"),
    Bad("program is empty", in_runner(command=[""]), "sources.a2a.runner.command.0"),
    Bad("program is relative", in_runner(command=["bin/x"]), "sources.a2a.runner.command.0",
        "absolute"),
    Bad("argument is a number", in_runner(command=["/bin/cat", 1]),
        "sources.a2a.runner.command.1", "string"),
    Bad("argument with NUL", in_runner(command=["/bin/cat", "a\0b"]),
        "sources.a2a.runner.command.1", "NUL"),
    Bad("unknown output", in_runner(output="xml"), "sources.a2a.runner.output", "'text'"),
    Bad("environment of the runner", in_runner(environment={"CORRAL_TURN_ID": "1"}),
        "sources.a2a.runner.environment.CORRAL_TURN_ID"),
    Bad("trace of the runner", in_runner(environment={"TRACEPARENT": "1"}),
        "sources.a2a.runner.environment.TRACEPARENT"),
    Bad("environment with =", in_runner(environment={"A=B": "1"}),
        "sources.a2a.runner.environment.A=B"),
    Bad("environment is a number", in_runner(environment={"A": 1}),
        "sources.a2a.runner.environment.A", "string"),
    Bad("environment with NUL", in_runner(environment={"A": "\0"}),
        "sources.a2a.runner.environment.A", "NUL"),
    Bad("channel over all", in_source(backlog_max=20, channel_backlog_max=21),
        "sources.a2a.channel_backlog_max", "more than backlog_max, 20", schema=False),
    Bad("channel default over all", in_source(backlog_max=20),
        "sources.a2a.channel_backlog_max", "(the default)", schema=False),
    Bad("read over all", in_source(backlog_max=9, channel_backlog_max=1, read_count=10),
        "sources.a2a.read_count", "more than backlog_max, 9", schema=False),
]  # fmt: skip

GOOD: dict[str, Edit] = {
    "as it is": lambda _: None,
    "every setting": lambda f: f.update(
        limits={"turns_concurrent_max": 1},
        sources={
            "a2a": source(
                runner={
                    "kind": "exec",
                    "command": ["agent", "", "two\nlines", "é"],
                    "output": "json",
                    "environment": {"HOME": "/var/lib/x", "_a": ""},
                    "turn_timeout_s": 1,
                    "reply_max_bytes": 1,
                },
                ack="reply",
                on_interrupt="hold",
                backlog_max=10,
                channel_backlog_max=10,
                read_count=10,
            ),
            "b": source(name="b", runner={"kind": "echo", "reply_max_bytes": 9}),
        },
    ),
    "shortest name": named("a"),
    "longest name": named("a" * 31),
    "longest agent": for_agent("a" + "-" * 30),
}
