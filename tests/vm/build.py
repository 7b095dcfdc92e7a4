"""Steps that make an image: a program that is run, a Python environment of the machine."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.vm.debian import VmError

STEP_TIMEOUT_S = 600
OUTPUT_SHOWN_LINES = 30


def step(argv: Sequence[str | Path], *, stdin: str = "", env: dict[str, str] | None = None) -> str:
    """Runs one step; its output is shown only when it fails."""
    done = subprocess.run(
        argv, input=stdin, capture_output=True, text=True, timeout=STEP_TIMEOUT_S, env=env
    )
    if done.returncode != 0:
        shown = (done.stdout + done.stderr).splitlines()[-OUTPUT_SHOWN_LINES:]
        raise VmError(f"{argv[0]} ended with status {done.returncode}:\n" + "\n".join(shown))
    return done.stdout


def environment(tree: Path, prefix: str, requirements: Path, unused: Sequence[str] = ()) -> str:
    """Makes an environment by hand: its interpreter is the machine's, not this one's.

    pip runs with the interpreter that the environment names, which here is this machine's of the
    same release; they must be alike. `unused` are folders of packages, as patterns, that are left
    out. Returns the version.
    """
    place = tree / prefix
    ask = ["/usr/bin/python3", "-c", "import platform; print(platform.python_version())"]
    ours, theirs = step(ask).strip(), step(["chroot", str(tree), *ask]).strip()
    if ours != theirs:
        raise VmError(f"/usr/bin/python3 is {ours} here, but {theirs} in this Debian release")
    (place / "bin").mkdir(parents=True)
    (place / "bin/python").symlink_to("/usr/bin/python3")
    minor = ".".join(theirs.split(".")[:2])
    packages = place / "lib" / f"python{minor}" / "site-packages"
    packages.mkdir(parents=True)
    (place / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {theirs}\n", encoding="ascii")
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python")]
    install = ["install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-compile"]
    hashed = ["--require-hashes", "--only-binary", ":all:", "-r", str(requirements)]
    step([*pip, *install, *hashed], env=os.environ | {"PIP_USER": "0"})
    for script in (place / "bin").iterdir():
        if script.name != "python":
            script.unlink()
    left_out = [folder for pattern in unused for folder in packages.glob(pattern)]
    step(["rm", "-rf", *left_out])
    # The services cannot write there, so they would compile everything anew at each start.
    compiled = ["-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    step(["/usr/bin/python3", "-I", *compiled, "-s", tree, "-p", "/", place / "lib"])
    return theirs
