"""All services of a host on one screen: each is asked by its own program, and says how it is."""

from typing import Final

# How long a service's program has for an answer unless told otherwise.
ANSWER_S: Final = 30.0
