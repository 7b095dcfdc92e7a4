"""The registry of gita: names that stand for one repository each."""

import os
from pathlib import Path

import pytest

from corral.tamq import registry
from corral.tamq.errors import UnavailableTamqError, UnknownRepoError
from corral.tamq.registry import Registry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "repos.csv"
    made.write_text('/src/shop,shop,,\n/src/lib,lib,m,"--git-dir=x"\n')
    return made


def test_targets_and_senders_must_be_registered(path: Path) -> None:
    known = Registry(path)
    known.check("local", "shop")
    known.check("lib", "shop")
    with pytest.raises(UnknownRepoError, match=r"^target_repo: other is not"):
        known.check("local", "other")
    with pytest.raises(UnknownRepoError, match=r"^sender_repo: other is not"):
        known.check("other", "shop")
    with pytest.raises(UnknownRepoError, match=r"^target_repo: local is not"):
        known.check("local", "local")
    assert known.names() == ["lib", "shop"]


@pytest.mark.parametrize("name", ["Shop", "shop ", "sho", "shop/", "/src/shop", ""])
def test_only_the_exact_name_counts(path: Path, name: str) -> None:
    with pytest.raises(UnknownRepoError):
        Registry(path).check("local", name)


def test_f31_two_clones_of_one_name_are_an_error_and_no_guess(path: Path) -> None:
    path.write_text("/a/shop,shop,,\n/b/shop,shop,,\n/src/lib,lib,,\n")
    known = Registry(path)
    for sender, target in (("local", "shop"), ("shop", "lib")):
        with pytest.raises(UnknownRepoError, match="2 clones: /a/shop, /b/shop"):
            known.check(sender, target)
    known.check("local", "lib")


def test_one_clone_listed_twice_is_one(path: Path) -> None:
    path.write_text("/a/shop,shop,,\n/a/shop,shop,,\n")
    Registry(path).check("local", "shop")


def test_f31_a_group_that_keeps_an_old_name_does_not_count(path: Path) -> None:
    known = Registry(path)
    known.check("local", "shop")
    path.with_name("groups.csv").write_text("mine:shop lib:\n")
    path.write_text("/src/shop,store,,\n/src/lib,lib,,\n")
    known.check("local", "store")
    with pytest.raises(UnknownRepoError):
        known.check("local", "shop")


def test_it_is_read_again_when_it_changes_and_only_then(path: Path) -> None:
    known = Registry(path)
    known.check("local", "shop")
    before = path.stat()
    path.write_text(path.read_text().replace("shop", "shap"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    known.check("local", "shop")  # the same size, time and file
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    known.check("local", "shap")
    path.unlink()
    with pytest.raises(UnknownRepoError, match="gita add"):
        known.check("local", "shap")


@pytest.mark.parametrize("text", ["", "\n", "x", "only\n\n", "/a,,,\n"])
def test_lines_without_a_name_are_none(path: Path, text: str) -> None:
    path.write_text(text)
    known = Registry(path)
    known.refresh()
    assert known.names() == []


def test_names_and_paths_may_hold_anything(path: Path) -> None:
    path.write_bytes(b'"/with, comma/x","a,b",,\n/caf\xe9/y,caf\xc3\xa9,,\n')
    known = Registry(path)
    known.check("a,b", "café")


def test_a_file_that_cannot_be_read_is_no_verdict(path: Path, tmp_path: Path) -> None:
    """Nothing is called unknown on the word of a file that was not read."""
    with pytest.raises(UnavailableTamqError, match="cannot be read") as caught:
        Registry(tmp_path).check("local", "shop")
    assert caught.value.retryable
    path.write_bytes(b"/a,b,,\n" * (registry.FILE_MAX_BYTES // 7 + 1))
    with pytest.raises(UnavailableTamqError, match="longer than 1048576 bytes"):
        Registry(path).check("local", "b")
    path.write_bytes((b"/a,b,,\n" * (registry.FILE_MAX_BYTES // 7 + 1))[: registry.FILE_MAX_BYTES])
    Registry(path).check("local", "b")


def test_where_gita_keeps_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GITA_PROJECT_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert registry.default_path() == tmp_path / ".config/gita/repos.csv"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/x")
    assert registry.default_path() == Path("/x/gita/repos.csv")
    monkeypatch.setenv("GITA_PROJECT_HOME", "/g")
    assert registry.default_path() == Path("/g/gita/repos.csv")


def test_a_refusal_says_what_the_registry_is(path: Path) -> None:
    with pytest.raises(UnknownRepoError, match=r"repos\.csv, which has 2 names"):
        Registry(path).check("local", "other")
    path.write_bytes(b"garbage\x00\xff\n")
    with pytest.raises(UnknownRepoError, match="which has 0 names"):
        Registry(path).check("local", "shop")
    path.unlink()
    with pytest.raises(UnknownRepoError, match="a file that does not exist"):
        Registry(path).check("local", "shop")
