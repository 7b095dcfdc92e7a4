"""Loaded by the local Synapse (`modules:`): it retries an appservice soon, not after minutes.

A homeserver waits 2, 4, 8 … 512 s before it sends a transaction again. That is right for the
internet and too slow for a test or a demo. Only the delays change: what is sent again, in which
order and with which bytes stays Synapse's own.

Runs inside Synapse's environment, so it imports nothing of Corral; and Corral can import it where
there is no Synapse.
"""

from typing import Any


class QuickRetries:
    """`config`: `first_ms` and `max_ms`, the shortest and the longest pause in milliseconds."""

    def __init__(self, config: dict[str, int], _api: object) -> None:
        from synapse.appservice.scheduler import _Recoverer
        from synapse.util.duration import Duration

        first_ms, max_ms = config["first_ms"], config["max_ms"]

        def recover(self: Any) -> None:
            delay_ms = min(max_ms, first_ms * 2 ** (self.backoff_counter - 1))
            self.scheduled_recovery = self.clock.call_later(
                Duration(milliseconds=delay_ms),
                self.hs.run_as_background_process,
                "as-recoverer",
                self.retry,
            )

        _Recoverer.recover = recover

    @staticmethod
    def parse_config(config: dict[str, int]) -> dict[str, int]:
        return config
