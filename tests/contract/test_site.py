"""The site of the documentation: built whole, read without a network, every link to its end."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.lint import links
from tests.lint.repository import ROOT

BELOW = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/**/*.md"))]
PAGES = ["README.md", *BELOW, "CHANGELOG.md"]
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//")
IN_STYLES = re.compile(r"(?:url\(\s*|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)")


@dataclass
class Page(HTMLParser):
    """What a built page has: names, links, links of its navigation, and what a browser loads."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    nav: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    _depth: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self._depth += tag == "nav"
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
            if self._depth:
                self.nav.add(given["href"])
        if tag in LOADED and LOADED[tag] in given:
            self.loaded.add(given[LOADED[tag]])

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "nav"

    def aim(self, link: str) -> tuple[Path, str]:
        parts = urlsplit(link)
        there = self.path.parent / unquote(parts.path) if parts.path else self.path
        return Path(os.path.normpath(there)), unquote(parts.fragment)


@dataclass
class Site:
    folder: Path
    said: str

    @cached_property
    def pages(self) -> dict[Path, Page]:
        return {path: Page(path) for path in sorted(self.folder.glob("**/*.html"))}

    def page_of(self, source: str) -> Page:
        """Where a file of the repository is shown."""
        if source == "docs/README.md":
            return self.pages[self.folder / "docs" / "pages.html"]
        if not source.endswith(".md"):
            return self.pages[self.folder / f"{source}.html"]
        built = self.folder / source.replace("README.md", "index.md")
        return self.pages[built.with_suffix(".html")]

    def faults(self) -> Iterator[str]:
        for path, page in self.pages.items():
            for link in page.links | page.loaded:
                if re.match(r"^(?:https?|mailto|javascript):", link):
                    continue
                there, anchor = page.aim(link)
                if not there.is_file():
                    yield f"{path}: {link}: no such file"
                elif anchor and there in self.pages and anchor not in self.pages[there].ids:
                    yield f"{path}: {link}: no such place"


def corral(*arguments: str) -> "subprocess.CompletedProcess[str]":
    argv: list[str | Path] = [ROOT / "corral", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter that has what the site is built with."""
    done = corral("setup", "--docs")
    assert done.returncode == 0, done.stderr
    return Path(f"{os.environ.get('CORRAL_VENV') or ROOT / '.venv'}-docs") / "bin" / "python"


@pytest.fixture(scope="module")
def site(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site") / "built"
    done = corral("docs", "--dir", str(folder))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{folder / 'index.html'}\n"
    return Site(folder, done.stderr)


def test_it_is_built_without_a_warning(site: Site) -> None:
    assert site.said == ""
    assert len(site.pages) > len(PAGES) > 70


def test_every_link_leads_to_a_file_and_a_place_in_it(site: Site) -> None:
    assert list(site.faults()) == []


def test_nothing_is_loaded_from_elsewhere(site: Site) -> None:
    loaded = {what for page in site.pages.values() for what in page.loaded}
    assert {what for what in loaded if ELSEWHERE.match(what)} == set()
    assert any(what.endswith(".css") for what in loaded)
    for style in site.folder.glob("**/*.css"):
        assert IN_STYLES.findall(style.read_text()) == [], style


def test_what_comes_from_elsewhere_would_be_seen(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text('<script src="//cdn.test/x.js"></script><img src="https://x.test/y.png">')
    assert all(ELSEWHERE.match(what) for what in Page(file).loaded)
    assert len(Page(file).loaded) == 2
    assert IN_STYLES.findall("a { background: url('https://x.test/f.woff') }")


def test_the_navigation_leads_to_every_page(site: Site) -> None:
    reached: set[Path] = set()
    ways = [site.page_of("README.md")]
    while ways:
        page = ways.pop()
        aims = {page.aim(link)[0] for link in page.nav if not ELSEWHERE.match(link)}
        ways += [site.pages[aim] for aim in aims - reached]
        reached |= aims
    assert {page for page in PAGES if site.page_of(page).path not in reached} == set()


@pytest.mark.parametrize("page", PAGES)
def test_headings_are_called_as_github_calls_them(page: str, site: Site) -> None:
    assert links.anchors((ROOT / page).read_text()) <= site.page_of(page).ids


@pytest.mark.parametrize("page", ["README.md", "docs/explanation/guarantees.md"])
def test_a_promise_leads_to_the_whole_of_its_test(page: str, site: Site) -> None:
    found = re.findall(r"\]\((?:\.\./)*(tests/[\w/.]+\.py)\)", (ROOT / page).read_text())
    assert len(found) > 10
    there = {site.page_of(page).aim(link)[0] for link in site.page_of(page).links}
    for test in found:
        shown = site.page_of(test)
        assert shown.path in there
        lines = (ROOT / test).read_text().splitlines()
        assert {f"L-{number}" for number, _ in enumerate(lines, start=1)} <= shown.ids
        # And back, to those who promise it; beside it is the file as it is.
        assert site.page_of(page).path in {shown.aim(link)[0] for link in shown.links}
        assert (site.folder / "raw" / test).read_bytes() == (ROOT / test).read_bytes()


def test_schemas_are_shown_and_can_be_taken(site: Site) -> None:
    for name in ("sources", "tamq"):
        schema = f"docs/reference/{name}.schema.json"
        assert "L-2" in site.page_of(schema).ids
        assert json.loads((site.folder / "raw" / schema).read_text())["$schema"]


def test_a_folder_lists_what_its_files_say_of_themselves(site: Site) -> None:
    page = site.pages[site.folder / "tests" / "vm" / "scenarios" / "index.html"]
    assert "chain_kills.py.html" in page.links
    assert "<td>" in page.path.read_text()


def test_the_search_finds_the_pages_and_no_program(site: Site) -> None:
    index = json.loads((site.folder / "search" / "search_index.json").read_text())
    found = {urlsplit(one["location"]).path for one in index["docs"]}
    shown = {page: site.page_of(page).path.relative_to(site.folder).as_posix() for page in PAGES}
    assert {page for page, path in shown.items() if path not in found} == set()
    assert [path for path in found if path.endswith(".py.html")] == []
    # From a disk, a browser gets the index as a program.
    assert (site.folder / "search" / "search_index.js").read_text().startswith("var __index = ")


# ---- a small repository, which can be spoilt --------------------------------------------------

SMALL = {
    "README.md": "# Small\n\n[All](docs/README.md)\n",
    "CHANGELOG.md": "# Changes\n",
    "docs/README.md": "# All\n\n**How to**\n- [one](how-to/one.md)\n- Two: [two](two.md)\n",
    "docs/how-to/one.md": "# One\n\n## `A` part!\n\n[a](../../tests/proof.py) [b](#a-part)\n",
    "docs/two.md": "# Two\n\n1. A:\n\n   ```\n   a < b\n   ```\n\n2. [x](how-to/one.md#a-part)\n",
    "tests/proof.py": '"""Proves."""\n\nTEXT = """\n````\n"""\n',
}

# Of a page that is planted there, and what the build says of each.
FAULTS = {
    "[x](three.md)": "'docs/three.md' is not found",
    "[x](../tests/none.py)": "'tests/none.py' is not found",
    "[x](../none)": "an unrecognized relative link '../none'",
    "[x](how-to/one.md#no-part)": "does not contain an anchor '#no-part'",
    "[x](#no-part-here)": "'#no-part-here', but there is no such anchor on this page",
    "![x](none.png)": "'docs/none.png' is not found",
}


@dataclass
class Small:
    root: Path
    python: Path

    def write(self, file: str, text: str) -> None:
        (self.root / file).parent.mkdir(parents=True, exist_ok=True)
        (self.root / file).write_text(text)

    def build(self, to: str = "out") -> tuple[int, str]:
        program = self.root / "docs" / "site" / "build.py"
        argv: list[str | Path] = [self.python, "-P", program, "--dir", self.root / to]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr


@pytest.fixture
def small(python: Path, tmp_path: Path) -> Small:
    made = Small(tmp_path, python)
    shutil.copytree(ROOT / "docs" / "site", tmp_path / "docs" / "site")
    for file, text in SMALL.items():
        made.write(file, text)
    return made


def test_pages_are_read_as_github_reads_them(small: Small) -> None:
    assert small.build() == (0, "")
    site = Site(small.root / "out", "")
    assert list(site.faults()) == []
    two = site.page_of("docs/two.md").path.read_text()
    assert two.count("<ol>") == 1
    assert "a &lt; b" in two
    listed = site.page_of("docs/README.md").path.read_text()
    assert '<li><a href="how-to/one.html">one</a></li>' in listed
    assert "L-5" in site.page_of("tests/proof.py").ids
    # The check of the links can fail.
    (small.root / "out" / "tests" / "proof.py.html").unlink()
    one = small.root / "out" / "docs" / "how-to" / "one.html"
    one.write_text(one.read_text().replace('id="a-part"', ""))
    found = " ".join(Site(small.root / "out", "").faults())
    assert "tests/proof.py.html: no such file" in found
    assert "one.html#a-part: no such place" in found


def test_planted_faults_fail_the_build_and_leave_the_earlier_site(small: Small) -> None:
    assert small.build()[0] == 0
    before = (small.root / "out" / "docs" / "two.html").read_bytes()
    small.write("docs/two.md", "# Two\n\n" + "\n\n".join(FAULTS))
    small.write("docs/new.md", "# New\n")
    status, said = small.build()
    assert status == 1
    assert [why for why in FAULTS.values() if why not in said] == []
    assert "docs/new.md is named neither in docs/README.md nor in its folder's README" in said
    assert "the site was not built" in said
    assert (small.root / "out" / "docs" / "two.html").read_bytes() == before
    assert sorted(small.root.glob(".out-*")) == []


def test_an_empty_folder_is_taken(small: Small) -> None:
    (small.root / "out").mkdir()
    assert small.build() == (0, "")
    assert (small.root / "out" / "index.html").is_file()


def test_a_place_where_nothing_can_be_made_is_said(small: Small) -> None:
    small.write("file", "")
    status, said = small.build("file/x")
    assert status == 1
    assert re.fullmatch(r"corral: the site was not built: .*file.*\n", said)


def test_a_folder_that_is_no_site_is_left_alone(small: Small) -> None:
    small.write("out/kept", "mine")
    status, said = small.build()
    assert (status, (small.root / "out" / "kept").read_text()) == (64, "mine")
    assert "exists and is no site" in said
