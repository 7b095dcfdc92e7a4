"""Packages of nixpkgs and where Debian has their programs.

Only programs that are listed exist for a rendered unit, so one that forgot a package in `path`
fails on Debian, too.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

_PROJECT = Path(__file__).resolve().parents[3] / "python" / "pyproject.toml"
_OURS = sorted(tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["scripts"])

# Where Debian's programs are that are not in /usr/bin.
_SBIN = frozenset(
    {"ip", "nft", "nologin", "useradd", "usermod", "sysctl", "iptables", "runuser", "tc", "bridge"}
)

_PROGRAMS = {
    "acl": "getfacl setfacl",
    "bash": "bash sh",
    "coreutils": (
        "[ basename base64 cat chgrp chmod chown comm cp cut date dd df dirname du echo env expr"
        " false fold head id install join link ln ls md5sum mkdir mkfifo mknod mktemp mv nice nl"
        " nohup nproc numfmt od paste printenv printf pwd readlink realpath rm rmdir seq sha256sum"
        " sha512sum shuf sleep sort split stat stdbuf sync tac tail tee test timeout touch tr true"
        " truncate tty uname uniq unlink wc who whoami yes"
    ),
    "corral": " ".join(_OURS),
    "curl": "curl",
    "diffutils": "cmp diff",
    "findutils": "find xargs",
    "gawk": "awk gawk",
    "getent": "getent",
    "gnugrep": "egrep fgrep grep",
    "gnused": "sed",
    "iproute2": "bridge ip ss tc",
    "iptables": "iptables",
    "iputils": "ping",
    "jq": "jq",
    "nftables": "nft",
    "openssl": "openssl",
    "procps": "kill pgrep pkill ps sysctl",
    "python3": "python3",
    "redis": "redis-cli redis-server",
    "shadow": "nologin useradd usermod",
    "systemd": "busctl journalctl systemctl systemd-analyze systemd-notify systemd-run",
    "tmux": "tmux",
    "util-linux": "flock logger lsns mount mountpoint nsenter runuser setpriv umount unshare",
    "valkey": "valkey-cli valkey-server",
}

# Names that a tree of nixpkgs uses for the same thing.
_ALIASES = {
    "bash-interactive": "bash",
    "python3.13-corral": "corral",
    "python3.12-corral": "corral",
}

PROXY = "lib/systemd/systemd-socket-proxyd"

OURS = {name: f"/opt/corral/bin/{name}" for name in _OURS}

_ELSEWHERE = {
    **{("corral", f"bin/{name}"): place for name, place in OURS.items()},
    # Both are where tests/vm/servers.py puts them.
    ("matrix-synapse", "bin/synapse_homeserver"): "/opt/synapse/bin/synapse_homeserver",
    **{
        ("postgresql", f"bin/{name}"): f"/usr/local/lib/postgresql/bin/{name}"
        for name in ("postgres", "psql")
    },
    ("systemd", PROXY): f"/usr/{PROXY}",
    ("tzdata", "share/zoneinfo"): "/usr/share/zoneinfo",
}


@dataclass(frozen=True)
class UnknownPackageError(Exception):
    """A rendered file names a package that nobody said where to find on Debian."""

    package: str

    def __str__(self) -> str:
        return f"{self.package}: add where Debian has it to {__name__}"


def links(package: str) -> dict[str, str]:
    """Path below the package's directory -> path on Debian. Raises UnknownPackageError."""
    name = _ALIASES.get(package, package)
    found = {below: target for (owner, below), target in _ELSEWHERE.items() if owner == name}
    if name not in _PROGRAMS:
        if not found and name not in {"glibc-locales", "glibcLocales"}:
            raise UnknownPackageError(package)
        return found
    for program in _PROGRAMS[name].split():
        place = "/usr/sbin" if program in _SBIN else "/usr/bin"
        found.setdefault(f"bin/{program}", f"{place}/{program}")
    return found
