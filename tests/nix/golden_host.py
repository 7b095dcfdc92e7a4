"""What NixOS makes of `examples/single-host.nix`, kept: `python -m tests.nix.golden_host`.

Without the scripts (they are files of `modules/`), of Synapse and PostgreSQL only what is added to
them, and without hashes and versions in store paths, so that it changes only when something is
installed otherwise.
"""

import json

from tests.nix import nix, render
from tests.nix.render.derivations import plain

HOST = nix.EXAMPLES / "single-host.nix"
KEPT = nix.ROOT / "tests" / "nix" / "samples" / "single-host.json"
_PARTS = ("groups", "sysctl", "tmpfiles", "unit_links", "users")


def text() -> str:
    """Canonical JSON; texts as lists of lines."""
    whole = render.host(HOST).as_json()
    kept = {name: whole[name] for name in _PARTS}
    kept["units"] = {name: plain(unit).splitlines() for name, unit in whole["units"].items()}
    kept["etc"] = {
        name: file | {"text": plain(file["text"]).splitlines()}
        for name, file in whole["etc"].items()
    }
    return json.dumps(kept, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    KEPT.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
