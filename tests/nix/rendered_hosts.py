"""Every whole host of the repository, rendered once."""

import functools
from pathlib import Path

from tests.nix import nix, render

NOT_HOSTS = {"demo.nix", "hosts.nix"}
MACHINES = nix.ROOT / "tests" / "vm" / "hosts"
# What NixOS' own modules make on NixOS: Synapse and PostgreSQL, where a host has them.
SERVERS = MACHINES.parent / "servers.nix"


def paths() -> list[Path]:
    """The examples, and the machines of the VM tests."""
    examples = [path for path in nix.EXAMPLES.glob("*.nix") if path.name not in NOT_HOSTS]
    return sorted([*examples, *MACHINES.glob("*.nix")])


@functools.cache
def rendered(path: Path) -> render.Rendered:
    return render.host(path, more=[SERVERS])
