"""Whole hosts: a NixOS module beside `modules/`, evaluated with the stand-in for nixpkgs.

With NIXPKGS set to a checkout, the same hosts are evaluated with that.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.nix import nix

# What every host has; a test adds to it. The package is another's: its own reads the sources.
BASE = """
  { pkgs, ... }: {
    services.cowboy.package = pkgs.redis;
    services.tamq.package = pkgs.redis;
    services.a2a-bridge.package = pkgs.redis;
    services.a2a-gateway.package = pkgs.redis;
    fileSystems."/" = { device = "/dev/vda1"; fsType = "ext4"; };
    boot.loader.grub.enable = false;
    documentation.nixos.enable = false;
    system.stateVersion = "26.05";
  }
"""
AGENT = """
  { services.cowboy = { enable = true; agents.a.sources.s.runner.kind = "echo"; }; }
"""


def nixpkgs() -> Path:
    return Path(os.environ.get("NIXPKGS") or nix.SHIM)


def evaluate(hosts: Mapping[str, str], wanted: str) -> dict[str, Any]:
    """For each host, a Nix expression of a list of modules, `wanted` over its `config`.

    `lib`, `pkgs` and `names` are in scope of `wanted`. Raises NixError.
    """
    each = "".join(f'"{name}" = wanted ({modules});\n' for name, modules in hosts.items())
    expression = f"""
      let
        flake = import {nixpkgs() / "flake.nix"};
        self = {{
          outPath = "{nixpkgs()}";
          lastModifiedDate = "20260101000000";
          shortRev = "test";
        }};
        inherit (flake.outputs {{ inherit self; }}) lib;
        base = {BASE};
        wanted = modules:
          let
            system = lib.nixosSystem {{
              system = "x86_64-linux";
              modules = [ {nix.ROOT / "modules"} base ] ++ modules;
            }};
            inherit (system) config options pkgs;
          in {wanted};
      in {{ {each} }}
    """
    found: dict[str, Any] = nix.evaluate(expression, readable=(*nix.READABLE, nixpkgs()))
    return found


def one(modules: str, wanted: str) -> Any:
    return evaluate({"host": modules}, wanted)["host"]


FAILED = "map (a: a.message) (builtins.filter (a: !a.assertion) config.assertions)"


def failed(modules: str) -> list[str]:
    """The messages of the assertions that fail, as NixOS prints them before it refuses a host."""
    messages: list[str] = one(modules, FAILED)
    return messages
