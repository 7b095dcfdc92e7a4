"""What the site is made of: the pages, and every file and folder of the repository they link to.

The site has the folders of the repository, so each link of a page is right as it stands.
"""

import ast
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import markup
from markdown_it.token import Token

INDEX = "docs/README.md"
START = "README.md"
CHANGES = "CHANGELOG.md"
RAW = "raw"
PICTURES = {".png", ".svg", ".jpg", ".gif"}

Nav = list[dict[str, "str | list[str | dict[str, list[str]]]"]]


def pages(root: Path) -> list[str]:
    """Every page has a place in the navigation; `missing` says which has none."""
    below = sorted(path.relative_to(root).as_posix() for path in root.glob("docs/**/*.md"))
    return [START, *below, CHANGES]


@dataclass
class Tree:
    """The pages' texts, and what they link to: which pages name it."""

    root: Path
    texts: dict[str, str] = field(default_factory=dict)
    named: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> "Tree":
        tree = cls(root, {page: (root / page).read_text() for page in pages(root)})
        for page, text in tree.texts.items():
            for token, _ in markup.inlines(text):
                for link in markup.links(token):
                    tree._name(page, link)
        for folder in [path for path in tree.named if (root / path).is_dir()]:
            for inside in entries(root / folder):
                tree.named.setdefault(inside.relative_to(root).as_posix(), [])
        return tree

    def _name(self, page: str, link: str) -> None:
        target = aim(page, link)
        # What does not exist is for MkDocs to say, which knows the page and the link.
        if target and target not in self.texts and (self.root / target).exists():
            named = self.named.setdefault(target, [])
            if page not in named:
                named.append(page)

    def missing(self) -> list[str]:
        """The pages that are not in the navigation."""
        there = set(_leaves(self.nav()))
        return [page for page in self.texts if page not in there]

    def nav(self) -> Nav:
        """From the index page: its sections, and in each the pages in its order."""
        found: dict[str, list[str | dict[str, list[str]]]] = {}
        section, seen = "", {START, INDEX, CHANGES}
        for token, _ in markup.inlines(self.texts[INDEX]):
            section = _section(token.content) or section
            for target in self._targets(INDEX, token):
                if not section or target in seen:
                    continue
                seen.add(target)
                if posixpath.basename(target) == "README.md":
                    found[markup.title(self.texts[target])] = list(self._folder(target))
                    seen.update(self._folder(target))
                else:
                    _group(found.setdefault(section, []), _prefix(token.content)).append(target)
        sections: Nav = [{name: content} for name, content in found.items()]
        return [{"Start": START}, *sections, {"All pages": INDEX}, {"Changes": CHANGES}]

    def _folder(self, readme: str) -> list[str]:
        """A folder's README, then the pages beside it in the order in which it names them."""
        there = posixpath.dirname(readme)
        targets = [
            target
            for token, _ in markup.inlines(self.texts[readme])
            for target in self._targets(readme, token)
            if posixpath.dirname(target) == there
        ]
        return list(dict.fromkeys([readme, *targets]))

    def _targets(self, page: str, token: Token) -> Iterator[str]:
        """Pages, and files that lie among them."""
        for link in markup.links(token):
            target = aim(page, link)
            if target in self.texts or (target in self.named and target.startswith("docs/")):
                yield target


def aim(page: str, link: str) -> str:
    """Where in the repository a link leads; empty where it stays on its page or leaves."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or not parts.path:
        return ""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path)))
    return "" if target.startswith(("/", "..")) else target


def entries(folder: Path) -> list[Path]:
    """The files of a folder that have something in them."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and path.stat().st_size and path.suffix not in {".pyc", ""}
    )


def source_page(tree: Tree, path: str) -> str:
    """The page of a file: who names it, and its text with numbered lines."""
    text = (tree.root / path).read_text()
    count = text.count("\n")
    raw = _link("the file itself", f"{RAW}/{path}", path)
    words = [f"{count} lines", raw, *_backlinks(tree, path)]
    shown = markup.fenced(text, markup.language_of(Path(path)))
    return f"{_front(path)}# `{path}`\n\n{' · '.join(words)}\n\n{shown}\n"


def folder_page(tree: Tree, path: str) -> str:
    """The page of a folder: its files, and what each says of itself."""
    rows = [
        f"| {_link(one.name, f'{path}/{one.name}', path)} | {first_words(one)} |"
        for one in entries(tree.root / path)
    ]
    table = "\n".join(["| file | |", "| --- | --- |", *rows])
    words = " · ".join([f"{len(rows)} files", *_backlinks(tree, path)])
    return f"{_front(path)}# `{path}/`\n\n{words}\n\n{table}\n"


def _front(path: str) -> str:
    """What the theme is told: the words of programs would bury those of the pages in a search."""
    return f"---\ntitle: {posixpath.basename(path)}\nsearch:\n  exclude: true\n---\n"


def first_words(path: Path) -> str:
    """The first sentence of a docstring or a comment; nothing where a file begins otherwise."""
    text = path.read_text()
    if path.suffix == ".py":
        said = ast.get_docstring(ast.parse(text)) or ""
    else:
        comment = re.match(r"(?:#!.*\n)?((?:(?:#|--) ?.*\n)+)", text)
        said = re.sub(r"^(?:#|--) ?", "", comment[1], flags=re.MULTILINE) if comment else ""
    paragraph = " ".join(said.split("\n\n")[0].split())
    return re.sub(r"([|<>\[\]])", r"\\\1", paragraph)


def _backlinks(tree: Tree, path: str) -> list[str]:
    links = [_link(markup.title(tree.texts[page]), page, path) for page in tree.named[path]]
    return [f"named in {', '.join(links)}"] if links else []


def _link(text: str, target: str, page: str) -> str:
    words = re.sub(r"([\[\]*_])", r"\\\1", text)
    return f"[{words}]({posixpath.relpath(target, posixpath.dirname(page) or '.')})"


def _section(text: str) -> str:
    """`**How to**`, or `**Tutorials:** …`."""
    found = re.match(r"\*\*([^*:]+):?\*\*", text)
    return found[1] if found else ""


def _prefix(text: str) -> str:
    """`TAMQ: [the protocol](…)`: the links of such an item are a group in their section."""
    found = re.match(r"(\w+): \[", text)
    return found[1][0].upper() + found[1][1:] if found else ""


def _group(section: list[str | dict[str, list[str]]], name: str) -> list[str]:
    if not name:
        return section  # type: ignore[return-value]  # a place for pages, either way
    for one in section:
        if isinstance(one, dict) and name in one:
            return one[name]
    section.append({name: []})
    return _group(section, name)


def _leaves(nav: object) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case dict():
            yield from _leaves(list(nav.values()))
        case list():
            for one in nav:
                yield from _leaves(one)
