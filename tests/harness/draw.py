"""Draws a trial from a seed: its server, policies, workload and faults. Pure."""

import random
from collections.abc import Mapping, Sequence

from corral.local.faults import Fault
from corral.local.plan import Mix
from tests.contract.proxy import Cut
from tests.harness.armed import Arm
from tests.harness.trial import Cutting, Trial

DAEMON, RUNNER, REDIS = "daemon", "runner", "redis"
TARGETS = (
    (DAEMON,),
    (RUNNER,),
    (REDIS,),
    (DAEMON, RUNNER),
    (DAEMON, REDIS),
    (DAEMON, RUNNER, REDIS),
)
TARGET_WEIGHTS = (30, 26, 18, 14, 7, 5)
DURATION_S = 1.8
COUNT = (25, 40)
FAULTS = (2, 5)
PAUSE_S = (0.05, 0.5)
STALL_S = (0.01, 0.15)
HANG_SHARE = 0.1  # of the trials have a run that ends by its timeout
HANG_S = 4
NTH_MAX = 8  # of a point that is passed often
SELDOM = ("attach", "recover", "held", "interrupted", "cancel", "drain")

# Limits small enough that a trial meets them, by source.
VARIANTS: tuple[Mapping[str, Mapping[str, object]], ...] = (
    {},
    {"a2a": {"on_interrupt": "hold"}, "chat": {"on_interrupt": "hold"}},
    {"a2a": {"on_interrupt": "hold"}, "chat": {"ack": "dispatch", "on_interrupt": "hold"}},
    {"a2a": {"ack": "reply"}, "chat": {"ack": "dispatch"}},
    {"a2a": {"channel_backlog_max": 1}, "chat": {"channel_backlog_max": 2}},
    {"a2a": {"turns_concurrent_max": 1, "read_count": 1}, "chat": {"on_interrupt": "hold"}},
    {"a2a": {"backlog_max": 10, "channel_backlog_max": 3, "turns_concurrent_max": 3}},
    {"chat": {"dispatch_attempts_max": 1}, "a2a": {"on_interrupt": "resume"}},
)


def draw(
    seed: int,
    points: Sequence[str],
    *,
    server: str | None = None,
    protocol: int | None = None,
    servers: Sequence[str] = (),
) -> Trial:
    """The trial of a seed. `server` and `protocol` fix what is otherwise drawn too."""
    rng = random.Random(f"inbound:{seed}")
    kinds = list(servers) or ["redis"]
    chosen_server = rng.choice(kinds)
    chosen_protocol = rng.choice((2, 3))
    variant = dict(rng.choice(VARIANTS))
    hang = rng.random() < HANG_SHARE
    if hang:
        for name in ("a2a", "chat"):
            variant[name] = {**variant.get(name, {}), "runner": {"turn_timeout_s": HANG_S}}
    mix = Mix(
        sources=("a2a", "chat", "echo") if rng.random() < 0.6 else ("a2a", "chat"),
        count=rng.randint(*COUNT),
        duration_s=DURATION_S,
        channels=tuple(f"room-{number}" for number in range(rng.randint(2, 6))),
        work_s=(0.03, rng.choice((0.15, 0.3, 0.5))),
        hang=hang,
    )
    faults = [_fault(rng) for _ in range(rng.randint(*FAULTS))]
    arms = {process: _arms(rng, process, points) for process in (DAEMON, RUNNER)}
    cuts = [_cut(rng) for _ in range(rng.choice((0, 0, 2, 4)))]
    return Trial(
        name=f"seed-{seed}",
        seed=seed,
        server=server or chosen_server,
        protocol=protocol or chosen_protocol,
        variant=variant,
        mix=mix,
        before_start=rng.choice((0, 0, 4)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
        cuts=tuple(sorted(cuts, key=lambda cutting: cutting.at_s)),
        arms=arms,
    )


def _fault(rng: random.Random) -> Fault:
    # Later than the first sends, and into the tail in which the last turns end.
    at_s = rng.uniform(0.15, DURATION_S + 0.3)
    processes = rng.choices(TARGETS, TARGET_WEIGHTS)[0]
    dice = rng.random()
    if dice < 0.15:
        return Fault(at_s, "pause", processes[:1], rng.uniform(*PAUSE_S))
    if dice < 0.35:
        return Fault(at_s, "stall", processes[:1], rng.uniform(*STALL_S))
    return Fault(at_s, "kill", processes)


def _cut(rng: random.Random) -> Cutting:
    kinds = [cut for cut in Cut if cut is not Cut.HOLD]
    kind = Cut.HOLD if rng.random() < 0.1 else rng.choice(kinds)
    needle = rng.choice((b"EVALSHA", b"in_reply_to", b"XREADGROUP", b"XTRIM"))
    return Cutting(rng.uniform(0.0, DURATION_S), needle, kind)


def _arms(rng: random.Random, process: str, points: Sequence[str]) -> Mapping[int, tuple[str, ...]]:
    """Armed points of a process's first starts: most starts have one, the last have none."""
    own = [point for point in points if _belongs(point, process)]
    arms: dict[int, tuple[str, ...]] = {}
    for start in range(rng.choice((0, 1, 1, 2, 3))):
        point = rng.choice(own)
        seldom = any(word in point for word in SELDOM)
        nth = 1 if seldom else min(rng.randint(1, NTH_MAX), rng.randint(1, NTH_MAX))
        victims = rng.choices(
            (("self",), ("redis",), ("self", "redis"), (_other(process),)), (70, 10, 10, 10)
        )[0]
        arms[start] = (str(Arm(point, nth, victims)),)
    return arms


def _belongs(point: str, process: str) -> bool:
    return point.startswith("runner.") == (process == RUNNER)


def _other(process: str) -> str:
    return RUNNER if process == DAEMON else DAEMON
