"""What MkDocs calls while it builds the site: which files it has, and how they are ordered."""

import logging
from pathlib import Path
from typing import Any

import markup
import tree
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parent.parent.parent

log = logging.getLogger("mkdocs.hooks.corral")


class SourceFile(File):  # type: ignore[misc]  # MkDocs says nothing of its types
    """A page that is called as the file that it shows, so that links to the file lead to it."""

    def is_documentation_page(self) -> bool:
        return True


def on_config(config: Any) -> Any:
    found = tree.Tree.of(ROOT)
    config.extra["tree"] = found
    config.nav = found.nav()
    config.markdown_extensions.append(markup.GitHubMarkdown())
    # Of a site that is looked at from a disk nobody asks for what is not there.
    config.theme.static_templates -= {"404.html"}
    for page in found.missing():
        log.warning("%s is named neither in %s nor in its folder's README", page, tree.INDEX)
    return config


def on_files(files: Files, config: Any) -> Files:
    found: tree.Tree = config.extra["tree"]
    for page in found.texts:
        files.append(_page(config, page))
    for path in found.named:
        for file in _shown(found, path, config):
            files.append(file)
    return files


def _page(config: Any, page: str) -> File:
    # Not called `index`, for then the theme would take it for the front page of a section.
    dest = "docs/pages.html" if page == tree.INDEX else None
    return File(page, str(ROOT), config.site_dir, use_directory_urls=False, dest_uri=dest)


def _shown(found: tree.Tree, path: str, config: Any) -> list[File]:
    if (ROOT / path).is_dir():
        return [_generated(config, path, f"{path}/index.html", tree.folder_page(found, path))]
    if Path(path).suffix in tree.PICTURES:
        return [File(path, str(ROOT), config.site_dir, use_directory_urls=False)]
    raw = File.generated(config, f"{tree.RAW}/{path}", abs_src_path=str(ROOT / path))
    return [raw, _generated(config, path, f"{path}.html", tree.source_page(found, path))]


def _generated(config: Any, path: str, dest: str, content: str) -> File:
    listed = path.startswith("docs/")  # the index page names some of those, and so has them in nav
    file = SourceFile(
        path,
        None,
        config.site_dir,
        use_directory_urls=False,
        dest_uri=dest,
        inclusion=InclusionLevel.INCLUDED if listed else InclusionLevel.NOT_IN_NAV,
    )
    file.generated_by = "corral"
    file.content_string = content
    return file


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    # The picture of the start page is as wide as the page, and so are a program's lines: nothing
    # may stand beside them.
    if page.file.src_uri == tree.START or isinstance(page.file, SourceFile):
        page.meta["hide"] = ["navigation", "toc"]
    return text
