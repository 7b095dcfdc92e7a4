"""What a backup has, what it refuses, and what is there again after a restore."""

import json
import re
import shutil
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from corral.backup import appendonly, ledger
from corral.core.cli import Output
from corral.core.errors import ConfigError, StorageError, UnavailableError, UsageError
from corral.overview.main import cli
from tests.unit.backup.conftest import AOF, House

UNITS = ["redis-cowboy", "cowboy-runner-scout", "cowboy-scout", "tamq-alice"]
UNITS += ["a2a-gateway", "a2a-bridge"]
LOG = "appendonly.aof.1.incr.aof"


def lose(house: House) -> None:
    shutil.rmtree(house.lib)


def test_what_was_lost_is_there_again_to_the_byte_and_with_its_modes(house: House) -> None:
    (house.lib / "cowboy/secrets/one").chmod(0o400)
    before = house.state()
    done = house.backup()
    assert done.one_moment
    assert stat.S_IMODE(house.target.stat().st_mode) == 0o700
    left = {name for name in house.state() if "/backups/" in name}
    assert left == set()
    lose(house)
    following = house.restore()
    assert house.state() == before
    assert stat.S_IMODE((house.lib / "cowboy/secrets/one").stat().st_mode) == 0o400
    assert (house.base / "jobs").read_text() == "BEGIN;\ndumped jobs\nCOMMIT;\n"
    assert following == [
        "systemctl restart cowboy-secrets a2a-gateway-tokens a2a-bridge-registration",
        f"systemctl start {' '.join(UNITS)}",
        "corral doctor",
    ]


def test_the_parts_are_taken_from_where_messages_come_to_where_they_go(house: House) -> None:
    taken = sorted(house.backup().taken, key=lambda one: one.at)
    order = [one.part for one in taken]
    way = ["bridge", "gateway", "redis", "cowboy-scout", "tamq-alice"]
    assert order[: len(way)] == way
    assert set(order[len(way) :]) == {"bridge-tokens", "gateway-tokens", "secrets"}


def test_what_is_written_while_cowboy_is_copied_is_no_part_of_it(house: House) -> None:
    house.copies("cowboy", "cowboy/scout", "ledger.db", f"printf more >>{house.redis}/{LOG}")
    done = house.backup()
    assert not done.one_moment
    assert sum("meanwhile" in line for line in house.said) == 5
    kept = (house.target / "redis" / LOG).read_bytes()
    assert kept == AOF[LOG] + 4 * b"more"  # of the last try, before cowboy was copied
    lose(house)
    house.restore()
    assert (house.redis / LOG).read_bytes() == kept


def test_another_try_is_of_one_moment(house: House) -> None:
    flag = house.base / "once"
    once = f"[ -e {flag} ] || echo >>{house.redis}/{LOG}; touch {flag}"
    house.copies("corral-gateway", "a2a-gateway", "gateway.db", once)
    assert house.backup().one_moment


def test_a_rewrite_meanwhile_is_seen_and_what_it_removed_is_in_no_copy(house: House) -> None:
    new = "file appendonly.aof.2.base.rdb seq 2 type b\\nfile gone seq 1 type h\\n"
    steps = f"cd {house.redis}; rm -f *.1.*; echo new >appendonly.aof.2.base.rdb;"
    steps += f" printf '{new}' >appendonly.aof.manifest"
    house.copies("cowboy", "cowboy/scout", "ledger.db", steps)
    assert house.backup().one_moment
    text = (house.target / "redis/appendonly.aof.manifest").read_bytes()
    assert appendonly.counted(text) == ["appendonly.aof.2.base.rdb"]
    assert b"gone" not in text


def test_a_folder_that_is_not_empty_is_refused(house: House) -> None:
    house.put({"target/file": b""})
    with pytest.raises(UsageError, match="is not empty"):
        house.backup()


def test_a_service_that_does_not_answer_ends_the_backup_and_what_is_left_is_none(
    house: House,
) -> None:
    house.program("tamq", "#!/bin/sh\nexit 69\n")
    with pytest.raises(UnavailableError, match="tamq --user alice backup"):
        house.backup()
    with pytest.raises(StorageError, match=r"there is no manifest\.json"):
        house.restore()


@pytest.mark.parametrize(
    "link", ["lib/tamq/alice/backups", "lib/tamq/alice/backups/copy.db", f"redis/{LOG}"]
)
def test_a_link_to_what_is_somebody_elses_is_not_followed(house: House, link: str) -> None:
    outside = house.base / "outside"
    outside.mkdir()
    (outside / "copy.db").write_bytes(b"of somebody else")
    path = house.base / link.replace("redis/", "lib/redis-cowboy/appendonlydir/")
    target = outside if path.name == "backups" else outside / "copy.db"
    if path.name == LOG:
        path.unlink()
        path.symlink_to(target)
    else:
        house.program(
            "tamq",
            f"#!/bin/sh\nmkdir -p {path.parent}; ln -sfn {target} {path}\n"
            f'echo \'{{"path": "{house.lib}/tamq/alice/backups/copy.db"}}\'\n',
        )
    with pytest.raises(StorageError):
        house.backup()
    assert (outside / "copy.db").read_bytes() == b"of somebody else"


# ---- restore ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "bridge/ledger.dump",
        "gateway/gateway.db",
        f"redis/{LOG}",
        "cowboy-scout/ledger.db",
        "secrets/one",
        "manifest.json",
    ],
)
def test_one_byte_of_a_file_is_enough_to_refuse_it_by_name(house: House, name: str) -> None:
    house.backup()
    path = house.target / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    lose(house)
    with pytest.raises(StorageError, match=re.escape(f"{path} is damaged")):
        house.restore()
    assert not house.lib.exists()
    assert not (house.base / "jobs").exists()


def test_a_file_that_is_missing_or_shorter_is_named(house: House) -> None:
    house.backup()
    path = house.target / "gateway/gateway.db"
    path.write_bytes(b"t")
    with pytest.raises(StorageError, match=r"gateway\.db is damaged: it has 1 bytes, and had 5"):
        house.restore()
    path.unlink()
    with pytest.raises(StorageError, match=r"gateway\.db is damaged"):
        house.restore()


def test_what_runs_is_named_and_nothing_is_changed(house: House) -> None:
    house.backup()
    lose(house)
    house.program("systemctl", "#!/bin/sh\nprintf 'inactive\\nactivating\\n'; "
                  "printf 'failed\\n%.0s' 1 2 3 4\n")  # fmt: skip
    with pytest.raises(UsageError, match=r"^cowboy-runner-scout: still there"):
        house.restore()
    assert not house.lib.exists()


def test_what_is_there_is_taken_away_only_when_that_is_wanted(house: House) -> None:
    before = house.state()
    house.backup()
    house.put({
        "lib/cowboy/scout/ledger.db": b"newer",
        "lib/cowboy/scout/ledger.db-wal": b"of the newer one",
        "lib/redis-cowboy/appendonlydir/appendonly.aof.9.incr.aof": b"newer",
    })  # fmt: skip
    with pytest.raises(StorageError, match=r"something already.*cowboy/scout"):
        house.restore()
    house.restore(replace=True)
    assert house.state() == before
    assert "DROP OWNED" in (house.base / "jobs").read_text()


def test_another_hosts_backup_is_refused(house: House) -> None:
    house.backup()
    lose(house)
    shutil.rmtree(house.base / "etc/cowboy")
    with pytest.raises(ConfigError, match="cowboy-scout, redis, secrets, which this host has not"):
        house.restore()


def test_a_ledger_that_is_not_empty_is_told_from_a_database_that_is_away(house: House) -> None:
    house.backup()
    lose(house)
    house.program("psql", "#!/bin/sh\necho 'relation \"jobs\" already exists' >&2; exit 3\n")
    with pytest.raises(StorageError, match="ledger is not empty"):
        house.restore()
    house.program("psql", "#!/bin/sh\necho 'secret words' >&2; exit 2\n")
    with pytest.raises(UnavailableError, match=r"^psql ended with 2.*systemctl start") as raised:
        house.restore()
    assert "secret words" not in str(raised.value)
    assert not house.lib.exists()


def test_half_a_dump_is_not_committed(house: House) -> None:
    house.backup()
    lose(house)
    house.program("pg_restore", "#!/bin/sh\necho half; exit 1\n")
    with pytest.raises(UnavailableError, match="pg_restore with 1"):
        house.restore()
    assert (house.base / "jobs").read_text() == "BEGIN;\nhalf\n"


def test_a_ledger_with_a_secret_address_is_elsewhere(house: House) -> None:
    assert ledger.is_local("postgresql://a2a-bridge@/a2a-bridge?host=/run/postgresql")
    for address in ("", "postgresql://b:secret@db/b", "postgresql://db/b?password=secret"):
        assert not ledger.is_local(address)
    house.put({"etc/a2a-bridge/settings.json": b"{}"})
    assert "bridge" not in [one.part for one in house.backup().taken]
    assert any("elsewhere" in line for line in house.said)


def test_a_backup_can_be_looked_at_without_being_root(house: House) -> None:
    house.backup()
    look = ["restore", "--check", str(house.target), "--json"]
    found = CliRunner().invoke(cli.commands["restore"], look[1:], obj=Output())
    assert found.exit_code == 0, found.output
    # The oldest click gives what goes to the other stream, too.
    assert json.loads(found.stdout[found.stdout.index("{") :])["one_moment"] is True
    Path(house.target / "gateway/gateway.db").write_bytes(b"other")
    found = CliRunner().invoke(cli.commands["restore"], look[1:], obj=Output())
    assert isinstance(found.exception, StorageError)
