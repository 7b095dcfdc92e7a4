"""The commands `corral backup` and `corral restore`: for root, on a host of the NixOS modules."""

import os
from pathlib import Path
from typing import Final

import click

from corral.core.cli import Output, json_option
from corral.core.errors import UsageError

BLOCKED: Final = (
    "If `cowboy status` shows a source as blocked, Redis knows of more than the ledger: read what"
    " `cowboy adopt AGENT` says, and let it, or restore another backup."
)
folder = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))


@click.command()
@folder
@json_option
@click.pass_obj
def backup(output: Output, folder: Path) -> None:
    """Write all state of this host's services into DIR, a new folder, while they run.

    The bridge's ledger, the gateway's tasks, Redis, cowboy's ledgers, the queues of TAMQ, and the
    secrets and tokens that the host made. It holds what people said, and the secrets: keep it as
    private as the host. For root, on a host of the NixOS modules.

    \b
    Example:
      corral backup /var/backup/corral/monday
    """
    from corral.backup import making
    from corral.backup.places import Host

    _only_root()
    done = making.make(Host(), folder.absolute(), _tell)
    text = f"{folder}: {len(done.files)} files"
    output.show({"path": str(folder), **done.model_dump(exclude={"format"})}, text)


@click.command()
@folder
@click.option("--check", is_flag=True, help="Only read DIR, and say whether it is whole.")
@click.option("--replace", is_flag=True, help="Take away what is there now: it is lost.")
@json_option
@click.pass_obj
def restore(output: Output, folder: Path, check: bool, replace: bool) -> None:
    """Put what `corral backup` wrote into DIR back in its places, and say what comes next.

    Nothing is changed unless every file is what was written, no service runs, and, without
    --replace, nothing is there. PostgreSQL must run. When it ends before its time, it is repeated
    with --replace before anything is started. For root, on a host of the NixOS modules.

    \b
    Examples:
      corral restore --check /var/backup/corral/monday
      corral restore /var/backup/corral/monday
    """
    from corral.backup import restoring
    from corral.backup.places import Host

    if check:
        found = restoring.verified(folder.absolute(), _tell)
        output.show(found.model_dump(exclude={"format"}), f"{folder} is whole")
        return
    _only_root()
    commands = restoring.restore(Host(), folder.absolute(), _tell, replace=replace)
    lines = ["Next:", *(f"  {one}" for one in commands), BLOCKED]
    output.show({"restored": str(folder), "next": commands}, "\n".join(lines))


def _only_root() -> None:
    if os.geteuid() != 0:
        raise UsageError("only root can", hint="it reads and writes what belongs to every service")
    os.umask(0o077)


def _tell(line: str) -> None:
    click.echo(line, err=True)
