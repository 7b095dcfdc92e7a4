"""What a scenario finds defined, for the type checker: the driver gives it at run time."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.vm.machine import Machine

machine: Machine
# Where there are several, each by its name.
agents: Machine
rooms: Machine
machines: list[Machine]
start_all: Callable[[], None]
subtest: Callable[[str], AbstractContextManager[None]]
