"""Links of Markdown pages: every relative target exists, every anchor is a heading there."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)>?")
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_EXPLICIT = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
_ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:")


def broken(page: Path, root: Path) -> list[str]:
    return [
        f"{number}: {target}: {why}"
        for number, target in _targets(page.read_text())
        if not _ELSEWHERE.match(target) and (why := _fault(page, root, target))
    ]


def parts(page: Path, root: Path) -> set[str]:
    """Which of the repository's folders, and files beside them, a page links to."""
    aims = [
        (page.parent / unquote(target.partition("#")[0])).resolve()
        for _, target in _targets(page.read_text())
        if not _ELSEWHERE.match(target)
    ]
    return {aim.relative_to(root).parts[0] for aim in aims if aim != root}


def _targets(text: str) -> Iterator[tuple[int, str]]:
    for number, line in prose(text):
        shown = _CODE.sub("", line)
        for target in [*_LINK.findall(shown), *_REFERENCE.findall(shown)]:
            yield number, target


def prose(text: str) -> list[tuple[int, str]]:
    """The numbered lines outside fenced code."""
    lines, fence = [], ""
    for number, line in enumerate(text.splitlines(), start=1):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence):
                fence = ""
        elif mark:
            fence = mark[1]
        else:
            lines.append((number, line))
    return lines


def anchors(text: str) -> set[str]:
    """As GitHub makes them from headings: lower case, punctuation dropped, spaces to hyphens."""
    found: set[str] = set()
    seen: dict[str, int] = {}
    for _, line in prose(text):
        found.update(_EXPLICIT.findall(line))
        if heading := _HEADING.match(line):
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            times = seen.get(slug, 0)
            seen[slug] = times + 1
            found.add(f"{slug}-{times}" if times else slug)
    return found


def _fault(page: Path, root: Path, target: str) -> str:
    path, _, anchor = target.partition("#")
    if path.startswith("/"):
        return "not a relative link"
    aim = (page.parent / unquote(path)).resolve() if path else page
    if not aim.is_relative_to(root):
        return "leaves the repository"
    if not aim.exists():
        return "no such file"
    if anchor and aim.suffix == ".md" and anchor not in anchors(aim.read_text()):
        return "no such heading"
    return ""
