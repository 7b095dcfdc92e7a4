"""The comparison with a real nixpkgs finds what differs; here an altered stand-in plays the real.

With `NIXPKGS` the same runs against a real one, by hand: `docs/verification.md`.
"""

import json
import shutil
from pathlib import Path

import pytest

from tests.nix import nix, real
from tests.nix.render import system

SAMPLE = Path(__file__).parent / "samples"


@pytest.fixture
def altered(tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(nix.SHIM, tmp_path / "altered"))
    for file, old, new in (
        ("lib/lists.nix", "  crossLists =", "  crossedLists ="),
        ("lib/types.nix", '"signed integer"', '"whole number"'),
        (
            "nixos/redis.nix",
            "maxclients = option types.int 10000",
            "maxclients = option types.int 9",
        ),
        ("nixos/tmpfiles.nix", "    rules = mkOption", "    ruled = mkOption"),
        ("nixos/unit-text.nix", '"Environment=', '"Environments='),
    ):
        text = (folder / file).read_text(encoding="utf-8")
        assert old in text, (file, old)
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    return folder


def test_the_stand_in_is_like_itself() -> None:
    assert list(real.options(nix.SHIM)) == []


def test_nothing_was_added_that_was_not_compared() -> None:
    """To add something: run the comparison, which writes the file anew when nothing differs."""
    kept = json.loads(real.COMPARED.read_text(encoding="utf-8"))
    assert json.loads(real.record()) == kept


def test_names_and_options_that_differ_are_found(altered: Path) -> None:
    found = "\n".join(real.options(altered))
    assert "lists.crossLists: only in the stand-in" in found
    assert "option systemd.tmpfiles.rules: only in the stand-in" in found
    assert "option services.redis.servers.maxclients: {'default': '10000'" in found
    assert "'type': 'whole number'" in found


def test_a_case_that_differs_is_found(altered: Path) -> None:
    found = [line.partition(":")[0] for line in real.cases(altered / "lib")]
    assert found == [
        "case descriptions",
        "refusal a wrong type",
        "refusal a wrong element",
        "refusal an option inside an option",
    ]


def test_a_unit_that_differs_is_found(
    tmp_path: Path, altered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (altered / "nixos" / "tmpfiles.nix").write_text(
        (nix.SHIM / "nixos" / "tmpfiles.nix").read_text(encoding="utf-8"), encoding="utf-8"
    )
    host = tmp_path / "host.nix"
    host.write_text(f"{{ imports = [ {SAMPLE / 'module.nix'} ]; services.sample.enable = true; }}")
    monkeypatch.setattr(system, "MODULES", ())
    found = list(real.host(host, altered))
    assert any("units: redis-sample.service" in line and "Environments=" in line for line in found)
    assert not any(": users:" in line for line in found)


def test_without_a_checkout_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NIXPKGS", raising=False)
    assert real.main() == 64
    assert "NIXPKGS is not set" in capsys.readouterr().err
