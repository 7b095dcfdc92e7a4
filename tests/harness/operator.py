"""An operator who decides about held turns, by chance, while everything is being killed."""

import random
import time
from contextlib import suppress

from corral.core.errors import UnavailableError
from corral.local import wait
from corral.local.deployment import Deployment
from corral.local.evidence import Seen

PACE_S = 0.2
ANSWER_TIMEOUT_S = 20.0
DECISIONS = ("release", "abandon", "leave")
WEIGHTS = (6, 3, 1)


class Operator:
    """Decides once about each notice of a hold. What was decided is noted before it is said."""

    def __init__(self, deployment: Deployment, rng: random.Random) -> None:
        self.deployment = deployment
        self.rng = rng
        self.released: dict[str, int] = {}
        self.abandoned: list[str] = []
        self._decided: set[str] = set()  # outbox ids of notices
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    async def run(self) -> None:
        """Looks now and then until stopped."""
        while not self._stopped:
            await self.work()
            await wait.at(time.monotonic() + PACE_S)

    async def work(self) -> int:
        """Decides about every notice that is new; how many there were."""
        new = [
            seen
            for seen in list(self.deployment.board.seen.values())
            if seen.outcome == "held" and seen.outbox_id not in self._decided
        ]
        for seen in new:
            self._decided.add(seen.outbox_id)
            await self._decide(seen)
        return len(new)

    async def _decide(self, seen: Seen) -> None:
        decision = self.rng.choices(DECISIONS, WEIGHTS)[0]
        if decision == "release":
            self.released[seen.turn_id] = self.released.get(seen.turn_id, 0) + 1
        elif decision == "abandon":
            self.abandoned.append(seen.turn_id)
        else:
            return
        self.deployment.board.expect_again(seen)

        async def said() -> bool:
            """Done, or too late: a notice is out a little before the ledger says `held`."""
            with suppress(OSError, ValueError, TimeoutError, UnavailableError):
                asked = {"turn_id": seen.turn_id}
                if (await self.deployment.control({"op": decision, **asked}))["ok"]:
                    return True
                answer = await self.deployment.control({"op": "turn", **asked})
                return bool(answer["ok"]) and answer["turn"]["state"] not in {"held", "replying"}
            return False

        with suppress(wait.WaitTimeoutError):
            await wait.until_async(said, ANSWER_TIMEOUT_S, f"the daemon to {decision} a turn")
