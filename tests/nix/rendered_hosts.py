"""Every whole host of the repository, rendered once."""

import functools
import re
from pathlib import Path

from tests.nix import nix, render

MACHINES = nix.ROOT / "tests" / "vm" / "hosts"
# What NixOS' own modules make on NixOS: Synapse and PostgreSQL, where a host has them.
SERVERS = MACHINES.parent / "servers.nix"


def paths() -> list[Path]:
    """The examples, and the machines of the VM tests: a folder is several."""
    return sorted([*examples(), *MACHINES.glob("*.nix"), *MACHINES.glob("*/*.nix")])


def examples() -> list[Path]:
    """Those that are whole hosts, by their list."""
    listed = (nix.EXAMPLES / "hosts.nix").read_text(encoding="utf-8")
    named = re.findall(r"= \./([a-z0-9/-]+\.nix);", listed)
    return sorted(nix.EXAMPLES / name for name in named)


def name(path: Path) -> str:
    """What a host is called in a test's id."""
    return "-".join(path.relative_to(nix.ROOT).with_suffix("").parts[-2:])


@functools.cache
def rendered(path: Path) -> render.Rendered:
    return render.host(path, more=[SERVERS])
