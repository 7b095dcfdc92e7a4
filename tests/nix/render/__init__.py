"""A NixOS host as files of a Debian machine: units, users, `/etc`, scripts, programs.

`host(path)` evaluates a host module together with `modules/` and gives what NixOS would install,
byte for byte: unit texts keep their `/nix/store` paths. Instead of packages there are links to
the programs of Debian (`places.py`). Nothing is built by Nix: texts are read from the
derivations, and the few commands that make files are run here, with this checkout's `cowboy`.

The result is the JSON that `python -m tests.nix.render HOST.nix` prints.
"""

from tests.nix.render.outputs import BuildError
from tests.nix.render.places import UnknownPackageError
from tests.nix.render.rendered import EtcFile, File, Group, Rendered, User
from tests.nix.render.system import HostError, evaluate, host

__all__ = [
    "BuildError",
    "EtcFile",
    "File",
    "Group",
    "HostError",
    "Rendered",
    "UnknownPackageError",
    "User",
    "evaluate",
    "host",
]
