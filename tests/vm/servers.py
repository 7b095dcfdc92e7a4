"""PostgreSQL and Synapse in the image: what the units of `servers.nix` run.

PostgreSQL is Debian's; Synapse is the pinned wheel, because Debian has none in every release.
"""

import shutil
from pathlib import Path

from tests.vm.build import environment, step
from tests.vm.debian import VmError

REQUIREMENTS = Path(__file__).resolve().parents[2] / "python" / "requirements" / "synapse.txt"
SYNAPSE = "opt/synapse"
# Names of cities by telephone number, tests, headers: a fifth of it all.
UNUSED = ("phonenumbers/geodata", "twisted/**/test", "zope/**/tests")
PROGRAM = f"""#!/{SYNAPSE}/bin/python -I
import sys

from synapse.app.homeserver import main

sys.exit(main())
"""
# Where the unit finds them, whatever the version; `initdb` is run here only.
POSTGRES = "usr/local/lib/postgresql"
CLUSTER = "var/lib/postgresql/main"
# Compiling queries while they run: a library of a hundred megabytes that nobody needs here.
COMPILER = ("usr/lib/postgresql/*/lib/llvmjit*", "usr/lib/x86_64-linux-gnu/libLLVM*")
SETTINGS = """
listen_addresses = ''
jit = off
shared_buffers = 16MB
"""


def install(tree: Path) -> None:
    """Puts both into the root folder of the machine, in which Debian's packages are."""
    _postgres(tree)
    environment(tree, SYNAPSE, REQUIREMENTS, UNUSED)
    program = tree / SYNAPSE / "bin/synapse_homeserver"
    program.write_text(PROGRAM, encoding="ascii")
    program.chmod(0o755)


def _postgres(tree: Path) -> None:
    """A cluster of our own instead of Debian's: in UTF-8, and known by the socket's user."""
    found = list((tree / "usr/lib/postgresql").iterdir())
    if len(found) != 1:
        raise VmError(f"expected one version of PostgreSQL, found {len(found)}")
    (tree / POSTGRES).symlink_to(f"/usr/lib/postgresql/{found[0].name}")
    for pattern in COMPILER:
        for file in tree.glob(pattern):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    for pattern in ("etc/postgresql/*", "var/lib/postgresql/*", "etc/systemd/system/*/postgresql*"):
        for file in tree.glob(pattern):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    # Debian's would start a cluster of its own.
    for file in tree.glob("usr/lib/systemd/system-generators/postgresql*"):
        file.unlink()
    as_postgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    initdb = [f"/{POSTGRES}/bin/initdb", "-D", f"/{CLUSTER}", "--locale=C.UTF-8", "--no-sync"]
    access = ["--auth-local=peer", "--auth-host=reject"]
    step(["chroot", str(tree), *as_postgres, *initdb, *access])
    with (tree / CLUSTER / "postgresql.conf").open("a", encoding="utf-8") as settings:
        settings.write(SETTINGS)
