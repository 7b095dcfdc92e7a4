"""Where the tests' one seed comes from: the environment, or chance; it is always printed."""

import os
import random

VARIABLE = "CORRAL_SEED"
MAX = 2**32 - 1


def choose() -> int:
    given = os.environ.get(VARIABLE, "")
    return int(given) if given else random.SystemRandom().randint(0, MAX)
