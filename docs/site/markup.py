"""Markdown as GitHub reads it, for which the pages are written, in place of Python-Markdown's own.

Python-Markdown wants other indents in lists and blank lines before them. So its block parser is
replaced: markdown-it reads the page, and what comes out is given to the steps that follow (MkDocs'
checks of links and anchors, the table of contents) as the tree that they expect.
"""

import html
import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import markdown
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

# Of the first line of a fenced block: the lines are numbered, and each can be linked to (#L-12).
NUMBERED = "numbered"

_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_FENCES = re.compile(r"^\s*(`{3,})", re.MULTILINE)


def parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"xhtmlOut": True}).enable(["table", "strikethrough"])


def inlines(text: str) -> Iterator[tuple[Token, bool]]:
    """The runs of text of a page, each with whether it is of a heading."""
    tokens = parser().parse(text)
    for before, token in itertools.pairwise(tokens):
        if token.type == "inline":
            yield token, before.type == "heading_open"


def links(token: Token) -> Iterator[str]:
    """What a run of text links to, and the images that it shows."""
    for child in token.children or []:
        match child.type:
            case "link_open":
                yield str(child.attrs["href"])
            case "image":
                yield str(child.attrs["src"])


def plain(token: Token) -> str:
    """A run of text without its marks."""
    children = token.children or []
    return "".join(one.content for one in children if one.type in {"text", "code_inline"})


def title(text: str) -> str:
    """The first heading of a page."""
    return next((plain(token) for token, of_heading in inlines(text) if of_heading), "")


def slug(heading: str) -> str:
    """As GitHub makes an anchor: lower case, punctuation dropped, spaces to hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def fenced(text: str, language: str) -> str:
    """A file's text as a block of a page, whatever fences it has itself."""
    longest = max((len(found[1]) for found in _FENCES.finditer(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language} {NUMBERED}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def language_of(path: Path) -> str:
    """What Pygments calls the language of a file; `text` where it knows none."""
    try:
        return str(get_lexer_for_filename(path.name).aliases[0])
    except (ClassNotFound, IndexError):
        return "text"


def code_block(text: str, info: str) -> str:
    """The HTML that the theme expects of a block of code."""
    language, *options = info.split() or ["text"]
    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        lexer = get_lexer_by_name("text", stripnl=False)
    numbers = {"linenos": "table", "lineanchors": "L", "anchorlinenos": True}
    formatter = HtmlFormatter(
        cssclass="highlight", wrapcode=True, **(numbers if NUMBERED in options else {})
    )
    return str(highlight(text, lexer, formatter))


class GitHubMarkdown(markdown.Extension):  # type: ignore[misc]  # it comes without types
    """Replaces the reading of a page, and switches off what would read it once more."""

    def extendMarkdown(self, md: Any) -> None:  # noqa: N802  the name is Python-Markdown's
        for step in ("normalize_whitespace", "html_block", "fenced_code_block"):
            md.preprocessors.deregister(step, strict=False)
        for step in ("inline", "prettify"):
            md.treeprocessors.deregister(step, strict=False)
        md.parser.parseDocument = lambda lines: ET.ElementTree(_tree("\n".join(lines), md))


def makeExtension(**options: Any) -> GitHubMarkdown:  # noqa: N802  the name is Python-Markdown's
    return GitHubMarkdown(**options)


def _tree(text: str, md: Any) -> ET.Element:
    reader = parser()
    tokens = reader.parse(text)
    for token in tokens:
        if token.type in {"fence", "code_block"}:
            # Kept aside as text, as Python-Markdown does with HTML; put in again at its end.
            block = code_block(token.content, token.info)
            token.type, token.content = "html_block", f"<p>{md.htmlStash.store(block)}</p>\n"
    written = reader.renderer.render(tokens, reader.options, {})
    # Python-Markdown marks its places with characters that XML does not have.
    for mark, name in _MARKS.items():
        written = written.replace(mark, name)
    root = ET.fromstring(f"<{md.doc_tag}>{written}</{md.doc_tag}>")  # noqa: S314  our own text
    for element in root.iter():
        element.text, element.tail = _marked(element.text), _marked(element.tail)
    _name_headings(root)
    return root


_MARKS = {"\u0002": "\ue002", "\u0003": "\ue003"}


def _marked(text: str | None) -> str | None:
    for mark, name in _MARKS.items():
        text = text.replace(name, mark) if text else text
    return text


def _name_headings(root: ET.Element) -> None:
    seen: dict[str, int] = {}
    for element in root.iter():
        if element.tag in _HEADINGS:
            name = slug(html.unescape("".join(element.itertext())))
            times = seen.get(name, 0)
            seen[name] = times + 1
            element.set("id", f"{name}-{times}" if times else name)
