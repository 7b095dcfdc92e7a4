"""The stand-in beside a real nixpkgs: `NIXPKGS=<checkout> python -m tests.nix.real`.

A checkout may be whole, or only `lib` and `nixos` with packages by name; it must have a
`flake.nix` with `lib.nixosSystem`. Compared are the cases of `cases/`, the names of `lib`,
every option of the stand-in (place, type, default), and every example: units, users, `/etc`,
scripts. The flake is checked with it, too. Each difference is a line; exit status 0 only when
there is none; then the names and options of the stand-in are kept in `samples/compared.json`, and
a test refuses others. `docs/verification.md` says what was compared, and when.
"""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.nix import flake, nix, render, rendered_hosts, shim_runs
from tests.nix.render.derivations import plain

COMPARE = Path(__file__).with_name("real.nix")
COMPARED = Path(__file__).parent / "samples" / "compared.json"
VALUES = ("values.nix", "functions.nix")
REFUSALS = "refusals.nix"
TIMEOUT_S = 600

# Units of nixpkgs' own modules; the stand-in has only what ours add to them.
FOREIGN = ("matrix-synapse.service", "postgresql.service", "postgresql-setup.service")

# Options that only hosts set, in tests; the stand-in takes less, or describes it otherwise.
LOOSE = re.compile(
    r"(?:boot\.kernel\.sysctl|environment\.variables|fileSystems\..*|meta\.maintainers"
    r"|networking\.hosts|nixpkgs\..*|time\.timeZone|users\.defaultUserShell)"
)


def cases(lib: Path) -> Iterator[str]:
    for file in VALUES:
        for name, one in _values(lib, file).items():
            if isinstance(one, str):
                yield f"case {name}: {one}"
            elif one["is"] != one["wants"]:
                yield f"case {name}: {one['is']} instead of {one['wants']}"
    for name in shim_runs.names(REFUSALS):
        why, said = shim_runs.refusal(lib, name)
        if not re.search(why, said):
            yield f"refusal {name}: {said or 'accepted'}"


def _values(lib: Path, file: str) -> dict[str, Any]:
    """Each case's result, or why it has none; one by one only when not all have one."""
    try:
        return dict(shim_runs.values(lib, file))
    except nix.NixError:
        found: dict[str, Any] = {}
    for name in shim_runs.names(file):
        try:
            found[name] = shim_runs.value(lib, file, name)
        except nix.NixError as error:
            found[name] = error.message
    return found


def options(nixpkgs: Path) -> Iterator[str]:
    found = compare(nixpkgs)
    for part, names in found["names"].items():
        yield from (f"{part}.{name}: only in the stand-in" for name in names)
    yield from (f"option {name}: only in the stand-in" for name in found["missing"])
    for one in found["different"]:
        if not LOOSE.fullmatch(one["name"]):
            yield f"option {one['name']}: {one['shim']}, really {one['real']}"


def record() -> str:
    """What the stand-in has: the text of `compared.json`."""
    return json.dumps(compare(nix.SHIM)["has"], indent=1, sort_keys=True) + "\n"


def compare(nixpkgs: Path) -> dict[str, Any]:
    """What `real.nix` says. Raises NixError."""
    with tempfile.TemporaryDirectory(prefix="corral-real-") as root:
        expression = f"import {COMPARE} {{ shim = {nix.SHIM}; real = {nixpkgs}; }}"
        done = subprocess.run(
            [
                *(nix.program(), "--store", root, "--read-write-mode", "--eval", "--strict"),
                *("--json", "--expr", expression),
            ],
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": root},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if done.returncode != 0:
        raise nix.NixError(done.stderr)
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def host(path: Path, nixpkgs: Path) -> Iterator[str]:
    """What is rendered otherwise when the real modules make it."""
    made = render.host(path)
    units = {name: text for name, text in made.units.items() if name not in FOREIGN}
    ours = dataclasses.replace(made, units=units)
    real = render.host(path, nixpkgs=nixpkgs, like=ours)
    ignored = {"version", "host", "unit_sha256", "links", "commands", "warnings", "tmpfiles"}
    for one in dataclasses.fields(render.Rendered):
        if one.name not in ignored:
            where = f"{path.name}: {one.name}"
            yield from _differences(where, getattr(ours, one.name), getattr(real, one.name))
    lacking = set(ours.tmpfiles) - set(real.tmpfiles)
    yield from (f"{path.name}: tmpfiles: {line}: not really there" for line in sorted(lacking))


def _differences(where: str, ours: dict[str, Any], real: dict[str, Any]) -> Iterator[str]:
    """Line by line, store paths without hash and version."""
    mine, theirs = (
        {plain(name): plain(repr(value)).split("\\n") for name, value in one.items()}
        for one in (ours, real)
    )
    for name in sorted({*mine, *theirs}):
        a, b = mine.get(name, []), theirs.get(name, [])
        if a != b:
            only = [line for line in a if line not in b], [line for line in b if line not in a]
            yield f"{where}: {name}: {only[0]}, really {only[1]}"


def differences(nixpkgs: Path) -> Iterator[str]:
    yield from cases(nixpkgs / "lib")
    yield from options(nixpkgs)
    for path in rendered_hosts.paths():
        yield from host(path, nixpkgs)
    yield from checked(nixpkgs)


def checked(nixpkgs: Path) -> Iterator[str]:
    """The flake; without the scenarios where nixpkgs' test driver needs a newer nix than this."""
    with tempfile.TemporaryDirectory(prefix="corral-real-") as folder:
        copy, root = Path(folder) / "copy", Path(folder) / "root"
        flake.copy(copy)
        try:
            flake.check(copy, root, nixpkgs)
        except nix.NixError as error:
            if "readFileType" not in str(error):
                yield f"nix flake check: {error.message}"
                return
        else:
            return
        sys.stdout.write("note: this nix is too old for the test driver; scenarios left out\n")
        shutil.rmtree(copy / "tests" / "vm" / "scenarios")
        try:
            flake.check(copy, root, nixpkgs)
        except nix.NixError as error:
            yield f"nix flake check: {error.message}"


def main() -> int:
    given = os.environ.get("NIXPKGS")
    if not given:
        sys.stderr.write("NIXPKGS is not set: the path of a checkout of nixpkgs\n")
        return 64
    count = 0
    for line in differences(Path(given).resolve()):
        count += 1
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    run = sum(len(shim_runs.names(file)) for file in (*VALUES, REFUSALS))
    sys.stdout.write(f"{count} differences; {run} cases, {len(rendered_hosts.paths())} hosts\n")
    if count:
        return 1
    COMPARED.write_text(record(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
