"""Growing pauses between attempts."""

import random
from dataclasses import dataclass, field


@dataclass
class Backoff:
    """Pauses that grow by `factor` from `initial_s` up to `max_s` seconds.

    `jitter` is the share of a pause that chance may take away: 0.1 gives 90 to 100 % of it. No
    pause is longer than `max_s`. `ValueError` for values that would not back off.
    """

    initial_s: float
    max_s: float
    factor: float = 2.0
    jitter: float = 0.1
    rng: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.initial_s <= self.max_s:
            raise ValueError(f"0 < initial_s <= max_s, not {self.initial_s} and {self.max_s}")
        if self.factor < 1:
            raise ValueError(f"factor must be at least 1, not {self.factor}")
        if not 0 <= self.jitter < 1:
            raise ValueError(f"jitter must be in [0, 1), not {self.jitter}")
        self._pause_s = self.initial_s

    def next_s(self) -> float:
        """The next pause in seconds."""
        pause_s = self._pause_s
        self._pause_s = min(self.max_s, pause_s * self.factor)
        return pause_s * (1 - self.jitter * self.rng.random())

    def reset(self) -> None:
        """Start again at `initial_s`, after something went well."""
        self._pause_s = self.initial_s
