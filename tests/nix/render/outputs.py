"""Store paths as files and links: what the derivations behind them would make.

A text is written, a package becomes links (`places.py`), a copied source is read, and any other
derivation's `buildCommand` is run, its inputs laid out below a scratch directory.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.nix.nix import ROOT
from tests.nix.render import places
from tests.nix.render.derivations import STORE, Derivation, references
from tests.nix.render.rendered import File

BUILD_TIMEOUT_S = 60
READ_ONLY = "0444"
EXECUTABLE = "0555"


class BuildError(Exception):
    """A command that makes a file failed; the message has its output."""


class Outputs:
    """The files and links behind store paths, each made once, on demand."""

    def __init__(self, root: Path, scratch: Path, derivations: dict[str, Derivation]) -> None:
        self.files: dict[str, File] = {}
        self.links: dict[str, str] = {}
        self._root = root
        self._scratch = scratch
        self._derivations = derivations
        self._made: set[str] = set()
        self._laid: set[str] = set()

    def need(self, text: str) -> None:
        """Make everything that the text names, and what that names in turn."""
        for path in references(text):
            if path not in self._made:
                self._made.add(path)
                self._make(path)

    def text(self, path: str) -> str:
        """The content of one file that was made. Raises KeyError."""
        self.need(path)
        return self.files[path].text

    def programs(self, path: str) -> dict[str, str]:
        """The programs of a package: name -> path below it."""
        self.need(path)
        prefix = f"{path}/bin/"
        here = [*self.files, *self.links]
        return {p.removeprefix(prefix): p for p in here if p.startswith(prefix)}

    def _make(self, path: str) -> None:
        derivation = self._derivations.get(path)
        if derivation is None:
            self._read(self._root / path.lstrip("/"), path)
            return
        environment = derivation.environment
        if environment.get("buildCommand"):
            self._build(derivation)
        elif "text" in environment:
            self._write(derivation)
        else:
            package = environment.get("pname") or environment["name"].rpartition("-")[0]
            for below, target in places.links(package).items():
                self.links[f"{path}/{below}"] = target

    def _add(self, path: str, text: str, mode: str) -> None:
        self.files[path] = File(text, mode)
        self.need(text)

    def _write(self, derivation: Derivation) -> None:
        environment = derivation.environment
        path = derivation.output + environment.get("destination", "")
        executable = environment.get("executable") == "1"
        self._add(path, environment["text"], EXECUTABLE if executable else READ_ONLY)

    def _read(self, source: Path, path: str) -> None:
        """What Nix copied into the store, or what a command made: a file, or files in folders."""
        if source.is_dir():
            for inner in sorted(source.iterdir()):
                self._read(inner, f"{path}/{inner.name}")
        else:
            executable = os.access(source, os.X_OK) and bool(source.stat().st_mode & 0o111)
            text = source.read_text(encoding="utf-8").replace(str(self._scratch), "")
            self._add(path, text, EXECUTABLE if executable else READ_ONLY)

    def _build(self, derivation: Derivation) -> None:
        environment = dict(derivation.environment)
        for value in derivation.environment.values():
            self.need(value)
        self._lay_out()
        work = self._scratch / "build" / derivation.output.rpartition("/")[2]
        work.mkdir(parents=True)
        for name in environment.pop("passAsFile", "").split():
            text = environment.pop(name).replace(STORE, self._below(STORE))
            (work / f".{name}").write_text(text, encoding="utf-8")
            environment[f"{name}Path"] = str(work / f".{name}")
        inputs = [self._below(path) for path in environment.get("nativeBuildInputs", "").split()]
        environment["out"] = str(work / "out")
        environment["PATH"] = os.pathsep.join([*(f"{path}/bin" for path in inputs), os.defpath])
        command = environment.pop("buildCommand").replace(STORE, self._below(STORE))
        done = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", command],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise BuildError(f"{derivation.name}: {done.stdout}{done.stderr}")
        self._read(work / "out", derivation.output)

    def _below(self, path: str) -> str:
        return f"{self._scratch}{path}"

    def _lay_out(self) -> None:
        """Files and programs as they are now, below the scratch directory."""
        for path, file in self.files.items():
            if (target := self._new(path)) is not None:
                target.write_text(file.text.replace(STORE, self._below(STORE)), encoding="utf-8")
                target.chmod(int(file.mode, 8))
        for path, place in self.links.items():
            if (target := self._new(path)) is not None:
                if place in places.OURS.values():
                    program = Path(place).name.rpartition("-")[2]
                    target.write_text(
                        _CHECKOUT.format(python=sys.executable, root=ROOT, program=program)
                    )
                    target.chmod(0o755)
                else:
                    found = shutil.which(Path(place).name) or place
                    target.symlink_to(found)

    def _new(self, path: str) -> Path | None:
        if path in self._laid:
            return None
        self._laid.add(path)
        target = Path(self._below(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


# A program of this checkout, where a build calls the package's.
_CHECKOUT = """#!/bin/sh
PYTHONPATH={root}/python exec {python} -P -m corral.{program}.main "$@"
"""
