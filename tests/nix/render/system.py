"""A host module -> Rendered: evaluation by Nix, and what of it is installed."""

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.nix import nix
from tests.nix.render import derivations
from tests.nix.render.outputs import Outputs
from tests.nix.render.rendered import EtcFile, Group, Rendered, User

MODULES = (nix.ROOT / "modules",)
OVERLAY = nix.ROOT / "services" / "overlay.nix"
HOST = Path(__file__).with_name("host.nix")
TIMEOUT_S = 120

# The place of files of /etc that NixOS links into the store.
_SYMLINK_MODE = "0444"
_OWN_PACKAGES = ("-a2a-bridge", "-corral", "-redis")


class HostError(Exception):
    """A host was refused: an assertion failed. `messages` are what NixOS would print."""

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("\n".join(messages))
        self.messages = list(messages)


def host(
    path: Path,
    *,
    modules: Sequence[Path] | None = None,
    more: Sequence[Path] = (),
    nixpkgs: Path = nix.SHIM,
    like: Rendered | None = None,
) -> Rendered:
    """Render the host at `path`; with `like`, only what that has, too (a whole NixOS has more).

    `modules`: instead of ours; `more`: beside them.

    Raises NixError (evaluation), HostError (an assertion), BuildError (a command that makes a
    file) and UnknownPackageError.
    """
    with tempfile.TemporaryDirectory(prefix="corral-render-") as name:
        root = Path(name)
        listed = [*(MODULES if modules is None else modules), *more]
        evaluated = evaluate(path, root, modules=listed, nixpkgs=nixpkgs)
        if evaluated["assertions"]:
            raise HostError(evaluated["assertions"])
        if like is not None:
            _reduce(evaluated, like)
        outputs = Outputs(root, root / "scratch", derivations.load(root))
        return _rendered(_name(path), evaluated, outputs)


def _reduce(evaluated: dict[str, Any], like: Rendered) -> None:
    for part, names in (("units", like.units), ("users", like.users), ("groups", like.groups)):
        evaluated[part] = {name: one for name, one in evaluated[part].items() if name in names}
    evaluated["etc"] = [one for one in evaluated["etc"] if one["target"] in like.etc]
    evaluated["sysctl"] = {k: v for k, v in evaluated["sysctl"].items() if k in like.sysctl}
    evaluated["tmpfiles"] = [
        line for line in evaluated["tmpfiles"] if line.rstrip() in like.tmpfiles
    ]
    evaluated["packages"] = [
        path for path in evaluated["packages"] if any(name in path for name in _OWN_PACKAGES)
    ]


def evaluate(
    path: Path, root: Path, *, modules: Sequence[Path] | None = None, nixpkgs: Path = nix.SHIM
) -> dict[str, Any]:
    """What `host.nix` says of a host; its derivations are in the store below `root`."""
    listed = " ".join(str(each) for each in [*(MODULES if modules is None else modules), path])
    overlays = f"(import {OVERLAY})" if OVERLAY.exists() else ""
    arguments = f"nixpkgs = {nixpkgs}; modules = [ {listed} ]; overlays = [ {overlays} ];"
    expression = f"import {HOST} {{ {arguments} }}"
    done = subprocess.run(
        [
            *(nix.program(), "--store", str(root), "--read-write-mode"),
            *("--eval", "--strict", "--json", "--expr", expression),
        ],
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(root)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise nix.NixError(done.stderr)
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def _name(path: Path) -> str:
    inside = path.is_relative_to(nix.ROOT)
    return str(path.relative_to(nix.ROOT)) if inside else path.name


def _rendered(name: str, evaluated: dict[str, Any], outputs: Outputs) -> Rendered:
    units = {unit: one for unit, one in evaluated["units"].items() if one["enable"]}
    texts = {unit: one["text"] or "" for unit, one in units.items()}
    etc = {one["target"]: _etc(one, outputs) for one in evaluated["etc"]}
    commands: dict[str, str] = {}
    for package in evaluated["packages"]:
        commands |= outputs.programs(package)
    for text in [*texts.values(), *evaluated["tmpfiles"]]:
        outputs.need(text)
    return Rendered(
        host=name,
        units=texts,
        unit_links=_links(units),
        dropins={},
        etc=etc,
        users={user: _user(one, outputs) for user, one in evaluated["users"].items()},
        groups={group: Group(**one) for group, one in evaluated["groups"].items()},
        tmpfiles=[line.rstrip() for line in evaluated["tmpfiles"]],
        sysctl={
            key: _sysctl(value) for key, value in evaluated["sysctl"].items() if value is not None
        },
        files=dict(sorted(outputs.files.items())),
        links=dict(sorted(outputs.links.items())),
        commands=commands,
        warnings=evaluated["warnings"],
    )


def _links(units: dict[str, Any]) -> dict[str, str]:
    """The symlinks that NixOS makes instead of `systemctl enable`."""
    links: dict[str, str] = {}
    for name, unit in units.items():
        for key, suffix in (
            ("wantedBy", "wants"),
            ("requiredBy", "requires"),
            ("upheldBy", "upholds"),
        ):
            links |= {f"{other}.{suffix}/{name}": f"../{name}" for other in unit[key]}
        links |= dict.fromkeys(unit["aliases"], name)
    return links


def _etc(one: dict[str, Any], outputs: Outputs) -> EtcFile:
    linked = one["mode"] == "symlink"
    return EtcFile(
        text=outputs.text(one["source"]),
        mode=_SYMLINK_MODE if linked else one["mode"].zfill(4),
        user="root" if linked else _owner(one["user"]),
        group="root" if linked else _owner(one["group"]),
    )


def _owner(name: str) -> str:
    return {"+0": "root"}.get(name, name.removeprefix("+"))


def _user(one: dict[str, Any], outputs: Outputs) -> User:
    shell = one["shell"] or "/usr/sbin/nologin"
    outputs.need(shell)
    program = shell.rpartition("/")[2]
    return User(**(one | {"shell": "/usr/sbin/nologin" if program == "nologin" else "/bin/bash"}))


def _sysctl(value: str | int | bool) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
