"""A host whose services are files, and whose programs are scripts that copy them."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from corral.backup.making import make
from corral.backup.manifest import Manifest
from corral.backup.places import Host
from corral.backup.restoring import restore
from corral.tamq.host import own_name

COPY = """#!/bin/sh
set -e
{before}
mkdir -p {folder}/backups
cp {folder}/{file} {folder}/backups/copy.db
echo '{{"path": "{folder}/backups/copy.db"}}'
"""
AOF = {
    "appendonly.aof.1.base.rdb": b"REDIS",
    "appendonly.aof.1.incr.aof": b"*1 of what was appended",
    "appendonly.aof.manifest": b"file appendonly.aof.1.base.rdb seq 1 type b\n"
    b"file appendonly.aof.1.incr.aof seq 1 type i\n",
}


@dataclass
class House:
    """`said` has the lines of progress."""

    base: Path
    said: list[str] = field(default_factory=list)

    @property
    def host(self) -> Host:
        return Host(self.base / "etc", self.lib, own_name() or "root")

    @property
    def lib(self) -> Path:
        return self.base / "lib"

    @property
    def redis(self) -> Path:
        return self.lib / "redis-cowboy" / "appendonlydir"

    @property
    def target(self) -> Path:
        return self.base / "target"

    def program(self, name: str, text: str) -> None:
        file = self.base / "bin" / name
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)

    def copies(self, name: str, folder: str, file: str, before: str = ":") -> None:
        """A program that makes a copy of its database, and does something else before."""
        text = COPY.format(before=before, folder=self.lib / folder, file=file)
        self.program(name, text)

    def put(self, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            path = self.base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o600)

    def state(self) -> dict[str, bytes]:
        """All that the services have, without what SQLite leaves beside."""
        return {
            str(path.relative_to(self.lib)): path.read_bytes()
            for path in sorted(self.lib.rglob("*"))
            if path.is_file()
        }

    def backup(self) -> Manifest:
        return make(self.host, self.target, self.said.append)

    def restore(self, *, replace: bool = False) -> list[str]:
        return restore(self.host, self.target, self.said.append, replace=replace)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    made = House(tmp_path)
    lib = made.lib
    settings = {
        "a2a-bridge": {"database": "postgresql://a2a-bridge@/a2a-bridge?host=/run/postgresql"},
        "a2a-gateway": {"state_dir": f"{lib}/a2a-gateway", "clients": {"bridge": "/run/c"}},
        "cowboy/scout": {"state_dir": f"{lib}/cowboy"},
        "tamq/alice": {"state_dir": f"{lib}/tamq/alice"},
    }
    made.put({f"etc/{k}/settings.json": json.dumps(v).encode() for k, v in settings.items()})
    table = f"one {lib}/cowboy/secrets/one made\ntwo /given given\n"
    made.put({
        "etc/cowboy/scout/sources.json": b"{}",
        "etc/cowboy/secrets.list": table.encode(),
        "lib/a2a-bridge/as-token": b"as",
        "lib/a2a-bridge/hs-token": b"hs",
        "lib/a2a-gateway/gateway.db": b"tasks",
        "lib/a2a-gateway-tokens/bridge": b"token",
        "lib/cowboy/scout/ledger.db": b"turns",
        "lib/cowboy/secrets/one": b"secret",
        "lib/tamq/alice/queue.db": b"messages",
        **{f"lib/redis-cowboy/appendonlydir/{name}": text for name, text in AOF.items()},
    })  # fmt: skip
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    made.copies("corral-gateway", "a2a-gateway", "gateway.db")
    made.copies("cowboy", "cowboy/scout", "ledger.db")
    made.copies("tamq", "tamq/alice", "queue.db")
    made.program("pg_dump", "#!/bin/sh\necho dumped jobs\n")
    made.program("pg_restore", "#!/bin/sh\nexec cat\n")
    made.program("psql", f"#!/bin/sh\nexec cat >{tmp_path}/jobs\n")
    made.program("systemctl", "#!/bin/sh\nfor u in $*; do case $u in [a-z]*-*|a2*) echo inactive;"
                 " esac; done\n")  # fmt: skip
    return made
