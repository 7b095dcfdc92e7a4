"""The contract tests that the floor run leaves out, each with what it is about instead.

The floor proves the code with the oldest dependencies (redis, hiredis, aiosqlite, pydantic, click
and so on). A test belongs here when none of them has a part in what it shows: it lies with the
kernel, a terminal, a server's own ACL, another program, or the text of a page. The rest, and every
test of a store, a wire or a command's answer, runs twice. Where the floor has another Python than
the ceiling, everything runs twice.
"""

from pathlib import Path
from typing import Final

ONCE: Final = {
    "bridge_matrix": "a homeserver's behaviour; starting it is what costs",
    "tamq/test_descriptors.py": "the kernel's limit of descriptors",
    "tamq/test_disk.py": "disks, mounts and files of the kernel; SQLite is the machine's",
    "tamq/test_fuzz.py": "a minute of frames, which our own code reads",
    "tamq/test_tutorial.py": "the text of a page",
    "tamq/test_users.py": "accounts of the kernel",
    "terminal": "tmux, ptys and the programs in them; the widths of characters are unit tests",
    "test_acl.py": "which commands the servers grant to whom, by the rendered lines",
    "test_acl_host.py": "the same of a host's rendered files",
    "test_alerts.py": "promtool reads the rules; the daemon's metrics are unit tests, too",
    "test_alerts_services.py": "the same of the rules of gateway and bridge",
    "test_bench.py": "the benchmark, which has an environment of its own",
    "test_bench_bridge.py": "the benchmark; what it measures is tested elsewhere",
    "test_doctor_live.py": "what doctor concludes of faults; how it reads is in test_doctor.py",
    "test_live_sessions.py": "sessions in terminals and their TAMQ; each wire has tests of its own",
    "test_namespace.py": "network namespaces of the kernel",
    "test_procedure.py": "the text of a page",
    "test_runner_crash.py": "processes and what is left of them; frames and settings are in "
    "test_runner_protocol.py and test_runner_client.py",
    "test_runner_kills.py": "process groups and cgroups",
    "test_runner_recovery.py": "processes of an earlier runner",
    "test_runner_runs.py": "pipes, signals, limits and time of a run",
    "test_runner_stop.py": "signals to the runner",
    "test_site.py": "the site of the documentation, which has an environment of its own",
    "test_trace.py": "programs that ask programs; each of their answers has tests of its own",
    "test_tutorial.py": "the text of a page",
}


def is_once(path: Path, folder: Path) -> bool:
    """Whether a test of this file, somewhere below the stage's folder, runs once."""
    if not path.is_relative_to(folder):
        return False
    inside = path.relative_to(folder)
    return any(str(each) in ONCE for each in (inside, *inside.parents))
