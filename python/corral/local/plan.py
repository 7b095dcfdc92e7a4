"""A planned workload: what each sender will put into which inbox, and when. Pure and seeded."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from corral.local.agent import prompt_for
from corral.local.evidence import Binding, Label, sha, text

SECRET_WORD = "sesame-5d1f"  # noqa: S105 - planted in every message: no log may contain it


@dataclass(frozen=True)
class Planned:
    """One send. `fields` are the entry's fields as they go to Redis; `at_s` counts from the start.

    `target` (of a cancel) is the key of the send to cancel; the sender fills in its entry id, or
    its message_id when it has no entry id yet. `cancels` instead is a fixed name.
    """

    key: int
    at_s: float
    source: str
    label: Label
    fields: dict[bytes, bytes]
    action: str = "answer"
    target: int | None = None

    @property
    def binding(self) -> Binding:
        get = self.fields.get
        return Binding(
            sender=text(get(b"sender")),
            channel=text(get(b"channel")),
            thread=text(get(b"thread")),
            message_id=text(get(b"message_id")),
            traceparent=text(get(b"traceparent")),
        )

    def said(self, cancels: bytes) -> str:
        """What makes two sends the same message, as `inbound.md` has it."""
        names = (b"kind", b"content", b"sender", b"channel", b"thread")
        values = [self.fields.get(name, b"") for name in names]
        return sha(b"\0".join(b"%d:%s" % (len(v), v) for v in [*values, cancels]))


@dataclass(frozen=True)
class Mix:
    """How a workload is made up. Weights are relative; times are seconds.

    `work_s` bounds the time that the agent works on one message.
    """

    sources: tuple[str, ...]
    count: int
    duration_s: float
    senders: tuple[str, ...] = ("ada", "grace", "edsger")
    channels: tuple[str, ...] = ("ops", "build", "docs", "alerts", "lab")
    work_s: tuple[float, float] = (0.05, 0.35)
    large_bytes: int = 64 * 1024
    content_max_bytes: int = 1024 * 1024
    plain: bool = False  # only messages that the agent answers
    hang: bool = False  # also runs that end by their timeout


WEIGHTS: dict[str, int] = {
    "answer": 40,
    "binary": 6,
    "big_prompt": 4,
    "exit": 5,
    "garbage": 3,
    "big": 3,
    "orphan": 5,
    "duplicate": 8,
    "conflict": 5,
    "empty": 4,
    "missing": 2,
    "large": 2,
    "metadata": 3,
    "unknown": 2,
    "cancel": 8,
}


class Planner:
    """Draws a workload from a seeded generator."""

    def __init__(self, rng: random.Random, mix: Mix, *, prefix: str = "m") -> None:
        self.rng = rng
        self.mix = mix
        self.prefix = prefix
        self.planned: list[Planned] = []

    def plan(self) -> list[Planned]:
        """The whole workload, in the order of its times."""
        times = sorted(self.rng.uniform(0, self.mix.duration_s) for _ in range(self.mix.count))
        for at_s in times:
            kinds = ["answer"] if self.mix.plain else list(WEIGHTS)
            weights = [WEIGHTS[kind] for kind in kinds]
            self._add(self.rng.choices(kinds, weights)[0], at_s)
        if self.mix.hang and self.planned:
            self._add("hang", times[0])
        return sorted(self.planned, key=lambda planned: planned.at_s)

    def _add(self, kind: str, at_s: float) -> None:
        earlier = [p for p in self.planned if p.label == "normal" and p.at_s <= at_s]
        if kind in {"duplicate", "conflict", "cancel"} and not earlier:
            kind = "answer"
        if kind == "cancel":
            self._add_cancel(at_s, earlier)
        elif kind in {"duplicate", "conflict"}:
            self._add_again(kind, at_s, self.rng.choice(earlier))
        else:
            self._add_message(kind, at_s)

    def _put(
        self,
        at_s: float,
        source: str,
        label: Label,
        fields: dict[bytes, bytes],
        action: str = "answer",
        target: int | None = None,
    ) -> None:
        key = len(self.planned)
        self.planned.append(Planned(key, at_s, source, label, fields, action, target))

    def _envelope(self, key: int) -> dict[bytes, bytes]:
        sender = self.rng.choice(self.mix.senders)
        fields = {
            b"sender": sender.encode(),
            b"channel": self.rng.choice(self.mix.channels).encode(),
            b"message_id": b"%s-%s-%d" % (self.prefix.encode(), sender.encode(), key),
        }
        if self.rng.random() < 0.5:
            fields[b"thread"] = b"thread-%d" % self.rng.randrange(3)
        if self.rng.random() < 0.3:
            fields[b"traceparent"] = b"00-%032x-%016x-01" % (
                self.rng.getrandbits(128) | 1,
                self.rng.getrandbits(64) | 1,
            )
        return fields

    def _words(self, key: int) -> bytes:
        return b"%s message %d: please look at it" % (SECRET_WORD.encode(), key)

    def _add_message(self, kind: str, at_s: float) -> None:
        key = len(self.planned)
        fields = self._envelope(key)
        source = self.rng.choice(self.mix.sources)
        label: Label = "normal"
        action = kind if kind in {"exit", "garbage", "big", "orphan", "hang"} else "answer"
        work_s = self.rng.uniform(*self.mix.work_s)
        content = prompt_for(self._words(key), action=action, work_s=work_s)
        if kind == "binary":
            content = self.rng.randbytes(self.rng.randrange(1, 2000))
            content = b"\x00\xff" + content
        elif kind == "big_prompt":
            content += b"\n" + self.rng.randbytes(self.mix.large_bytes)
        elif kind == "empty":
            label, content = "empty", self.rng.choice([b"", b" ", b"\n\t "])
        elif kind == "large":
            label, content = "large", b"x" * (self.mix.content_max_bytes + 1)
        elif kind == "metadata":
            label = "metadata"
            fields[b"thread"] = self.rng.choice([b"\xff\xfe", b"nul\0", b"t" * 5000])
        elif kind == "unknown":
            label = "unknown"
            fields[b"kind"] = b"telegram"
        fields[b"content"] = content
        if kind == "missing":
            label = "empty"
            del fields[b"content"]
            fields[b"note"] = b"no content here"
        self._put(at_s, source, label, fields, action)

    def _add_again(self, kind: str, at_s: float, first: Planned) -> None:
        fields = dict(first.fields)
        if kind == "duplicate":
            self._put(at_s, first.source, "duplicate", fields, first.action)
            return
        fields[b"content"] = prompt_for(
            self._words(len(self.planned)) + b", other words", work_s=self.mix.work_s[0]
        )
        self._put(at_s, first.source, "conflict", fields)

    def _add_cancel(self, at_s: float, earlier: Sequence[Planned]) -> None:
        key = len(self.planned)
        fields = self._envelope(key)
        fields[b"kind"] = b"cancel"
        if self.rng.random() < 0.2:
            fields[b"cancels"] = self.rng.choice([b"1-1", b"no-such-message"])
            self._put(at_s, self.rng.choice(self.mix.sources), "cancel", fields)
            return
        # Late ones are mostly finished, the last ones mostly queued or running.
        first = self.rng.choice([earlier[-1], earlier[-1], self.rng.choice(list(earlier))])
        self._put(at_s, first.source, "cancel", fields, target=first.key)
