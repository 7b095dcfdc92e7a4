"""Bridge here, agents there: kills, a cut network and a power failure between two machines."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import agents, rooms, start_all, subtest

start_all()
with subtest("everything comes up"):
    for unit in ("matrix-synapse", "postgresql", "a2a-bridge"):
        rooms.wait_for_unit(f"{unit}.service")
    for unit in (
        "redis-cowboy",
        "cowboy-scout",
        "cowboy-runner-scout",
        "a2a-gateway",
        "a2a-bridge",
    ):
        agents.wait_for_unit(f"{unit}.service")
