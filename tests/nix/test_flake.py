"""The flake evaluates on Debian's nix with the stand-in; a fault anywhere in it is found."""

import json
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lint import links
from tests.nix import flake, nix, rendered_hosts


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flake")
    flake.copy(folder)
    return folder


@pytest.fixture
def checkout(pristine: Path, tmp_path: Path) -> Path:
    """One to spoil; without the scenarios, each of which is a machine to evaluate."""
    folder = Path(shutil.copytree(pristine, tmp_path / "checkout"))
    shutil.rmtree(folder / "tests" / "vm" / "scenarios", ignore_errors=True)
    return folder


def test_it_passes(pristine: Path, tmp_path: Path) -> None:
    flake.check(pristine, tmp_path)


def edit(file: str, old: str, new: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        text = (folder / file).read_text(encoding="utf-8")
        assert old in text, f"{old} is not in {file}"
        (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8")

    return apply


@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        pytest.param(
            edit("examples/single-host.nix", "services.corral", "services.coral"),
            r"The option `services\.coral' does not exist",
            id="an example's option",
        ),
        pytest.param(
            edit("services/cowboy/package.nix", "structlog,", "structlog,\n    absent,"),
            "absent",
            id="the package's dependencies",
        ),
        pytest.param(
            edit("services/docs/package.nix", "packages.mkdocs-material", "packages.absent"),
            "absent",
            id="the documentation's needs",
        ),
        pytest.param(
            edit("tests/nix/shell.nix", "tmux,", "tmux,\n  absent,"), "absent", id="the shell"
        ),
        pytest.param(
            edit("flake.nix", "default = corral;", "default = ./modules;"),
            "module must be a function or an attribute set",
            id="a module that is no function and no set",
        ),
    ],
)
def test_a_planted_fault_is_found(
    checkout: Path, tmp_path: Path, plant: Callable[[Path], None], reason: str
) -> None:
    plant(checkout)
    with pytest.raises(nix.NixError, match=reason):
        flake.check(checkout, tmp_path)


def test_a_scenario_is_a_check_of_its_own(checkout: Path, tmp_path: Path) -> None:
    """The control is every other test: without the fault the check passes."""
    scenarios = checkout / "tests" / "vm" / "scenarios"
    scenarios.mkdir(parents=True, exist_ok=True)
    (scenarios / "planted.py").write_text("machine.start()\n")
    host = checkout / "tests" / "vm" / "hosts" / "planted.nix"
    host.parent.mkdir(exist_ok=True)
    host.write_text("{ services.cowboy.enabel = true; }\n")
    with pytest.raises(nix.NixError, match=r"The option `services\.cowboy\.enabel' does not exist"):
        flake.check(checkout, tmp_path)


def test_a_folder_of_hosts_is_several_machines(checkout: Path, tmp_path: Path) -> None:
    scenarios = checkout / "tests" / "vm" / "scenarios"
    scenarios.mkdir(parents=True, exist_ok=True)
    (scenarios / "pair_planted.py").write_text("one.start()\ntwo.start()\n")
    folder = checkout / "tests" / "vm" / "hosts" / "pair"
    folder.mkdir(parents=True)
    (folder / "one.nix").write_text("{ }\n")
    (folder / "two.nix").write_text('{ assertions = [ { assertion = false; message = "2"; } ]; }\n')
    with pytest.raises(nix.NixError, match=r"Failed assertions:\n\s*- 2"):
        flake.check(checkout, tmp_path)


def test_the_apps_evaluate(pristine: Path, tmp_path: Path) -> None:
    """`nix flake check` of Debian's nix does not look at them."""
    for app, program in {"demo": "corral-demo", "cowboy": "cowboy"}.items():
        wanted = f"path:.#apps.x86_64-linux.{app}.program"
        found = flake.run(pristine, tmp_path, "--raw", wanted, *flake.WITH_SHIM, command="eval")
        assert re.fullmatch(rf"/nix/store/[0-9a-z]{{32}}-corral[^/]*/bin/{program}", found)


def test_the_package_needs_what_the_distribution_needs() -> None:
    """Both lists are written by hand: a package that lacks one fails only when it is built."""
    project = tomllib.loads((nix.ROOT / "python" / "pyproject.toml").read_text(encoding="utf-8"))
    needed = {re.split(r"[\[<>=]", one)[0] for one in project["project"]["dependencies"]}
    text = (nix.ROOT / "services" / "cowboy" / "package.nix").read_text(encoding="utf-8")
    listed = re.search(r"dependencies = \[([^\]]*)\]", text)
    assert listed is not None
    assert set(listed[1].split()) == needed


def test_the_documentation_is_built_from_all_that_it_links_to() -> None:
    """Nix sees only what the package names: a link to anything else fails only there."""
    text = (nix.ROOT / "services" / "docs" / "package.nix").read_text(encoding="utf-8")
    taken = set(re.findall(r"= \.\./\.\./([\w.]+);", text))
    pages = [nix.ROOT / "README.md", nix.ROOT / "CHANGELOG.md", *nix.ROOT.glob("docs/**/*.md")]
    linked = {part for page in pages for part in links.parts(page, nix.ROOT)}
    assert linked | {"README.md", "CHANGELOG.md", "docs"} <= taken
    assert {"tests", "examples"} <= linked


def test_every_example_host_is_in_the_list() -> None:
    there = set(nix.EXAMPLES.rglob("*.nix"))
    others = {nix.EXAMPLES / name for name in ("demo.nix", "hosts.nix", "two-hosts/both.nix")}
    assert set(rendered_hosts.examples()) == there - others


def test_nixpkgs_is_pinned_to_a_release(pristine: Path, tmp_path: Path) -> None:
    found = json.loads(
        flake.run(pristine, tmp_path, "metadata", "--json", "--no-update-lock-file", "path:.")
    )
    nixpkgs = found["locks"]["nodes"]["nixpkgs"]
    assert nixpkgs["original"]["ref"] == "nixos-26.05"
    assert re.fullmatch(r"[0-9a-f]{40}", nixpkgs["locked"]["rev"])
    assert re.fullmatch(r"sha256-[A-Za-z0-9+/]{43}=", nixpkgs["locked"]["narHash"])
