"""Build the documentation as a static site in build/site."""

import html
import json
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, String
from pygments.util import ClassNotFound

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OUTPUT = ROOT / "build" / "site"
INDEX = DOCS / "README.md"
ROOT_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md")
LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+\.md)\)")
CLASSES = ((Comment, "hl-c"), (Keyword, "hl-k"), (Name.Builtin, "hl-k"), (String, "hl-s"))


class Page(NamedTuple):
    source: Path
    address: str
    title: str


class Entry(NamedTuple):
    """One row of the search index."""

    address: str
    page: str
    heading: str
    text: str


def pages() -> Iterator[Page]:
    sources = [INDEX, *DOCS.rglob("*.md"), *(ROOT / name for name in ROOT_PAGES)]
    for source in dict.fromkeys(sources):
        heading = source.read_text().partition("\n")[0]
        yield Page(source, address_of(source), heading.lstrip("# "))


def address_of(source: Path) -> str:
    """Where a file of the project is in the site."""
    if source == INDEX:
        return "index.html"
    if source.is_relative_to(DOCS):
        inside = source.relative_to(DOCS)
        inside = inside.with_name("index.md") if inside.name == "README.md" else inside
    else:
        inside = source.relative_to(ROOT)
    return inside.with_suffix(".html").as_posix() if inside.suffix == ".md" else inside.as_posix()


def navigation(current: str, root: str) -> str:
    """The index as a list of links: its sections, and what they link to."""
    parts: list[str] = []
    for section in INDEX.read_text().split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        links = "".join(
            nav_link(label, address_of((DOCS / target).resolve()), current, root)
            for label, target in LINK.findall(body)
        )
        parts.append(f"<h2>{html.escape(heading)}</h2><ul>{links}</ul>")
    return "".join(parts)


def nav_link(label: str, address: str, current: str, root: str) -> str:
    mark = ' aria-current="page"' if address == current else ""
    return f'<li><a href="{root}{address}"{mark}>{html.escape(label)}</a></li>'


def slug(text: str) -> str:
    """The anchor of a heading, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


@cache
def anchors_of(source: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", source.read_text(), re.MULTILINE)
    return {slug(heading.replace("`", "")) for heading in headings}


class Renderer:
    """Renders one page: links between pages, anchors, code in color, entries for the search."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._markdown = MarkdownIt("commonmark", {"highlight": highlight}).enable("table")
        self.entries: list[Entry] = []
        self.missing: list[str] = []

    def render(self) -> str:
        tokens = self._markdown.parse(self._page.source.read_text())
        for token in tokens:
            for child in token.children or ():
                self._point(child)
        self._add_anchors(tokens)
        return self._markdown.renderer.render(tokens, self._markdown.options, {})

    def _point(self, token: Token) -> None:
        name = {"link_open": "href", "image": "src"}.get(token.type)
        if name is None:
            return
        link = str(token.attrs[name])
        target, mark, anchor = link.partition("#")
        if ":" in target:
            return
        path = (self._page.source.parent / target).resolve() if target else self._page.source
        if path.is_dir():
            path /= "README.md"
        if not path.exists() or (anchor and anchor not in anchors_of(path)):
            self.missing.append(f"{self._page.source.relative_to(ROOT)}: {link}")
            return
        if not target:
            return
        start = posixpath.dirname(self._page.address) or "."
        token.attrs[name] = posixpath.relpath(address_of(path), start) + mark + anchor

    def _add_anchors(self, tokens: Sequence[Token]) -> None:
        heading, anchor, text = self._page.title, "", []
        for before, token in zip([None, *tokens], tokens, strict=False):
            if token.type != "inline":
                continue
            if before is not None and before.type == "heading_open":
                self._add_entry(heading, anchor, text)
                heading, text = token.content.replace("`", ""), []
                anchor = slug(heading)
                before.attrs["id"] = anchor
            else:
                text.append(token.content)
        self._add_entry(heading, anchor, text)

    def _add_entry(self, heading: str, anchor: str, text: Sequence[str]) -> None:
        address = f"{self._page.address}#{anchor}" if anchor else self._page.address
        words = " ".join(" ".join(text).split())
        self.entries.append(Entry(address, self._page.title, heading, words[:2000]))


def highlight(code: str, language: str, _: str) -> str:
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return html.escape(code)
    parts: list[str] = []
    for kind, text in lexer.get_tokens(code):
        name = next((name for parent, name in CLASSES if kind in parent), "")
        escaped = html.escape(text)
        parts.append(f'<span class="{name}">{escaped}</span>' if name else escaped)
    return "".join(parts)


def build(folder: Path) -> list[str]:
    """Write the site; return links that lead nowhere."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    template = Template((DOCS / "site" / "page.html").read_text())
    entries: list[Entry] = []
    missing: list[str] = []
    for page in pages():
        renderer = Renderer(page)
        root = "../" * page.address.count("/")
        text = template.substitute(
            title=html.escape(page.title if page.source == INDEX else f"{page.title} · Hermes"),
            content=renderer.render(),
            navigation=navigation(page.address, root),
            root=root,
        )
        path = folder / page.address
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        entries += renderer.entries
        missing += renderer.missing
    index = [entry._asdict() for entry in entries]
    (folder / "search.json").write_text(json.dumps(index, ensure_ascii=False))
    for name in ("style.css", "search.js"):
        shutil.copy(DOCS / "site" / name, folder)
    shutil.copy(DOCS / "demo.svg", folder)
    shutil.copytree(DOCS / "screens", folder / "screens")
    return missing


if __name__ == "__main__":
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    broken = build(output)
    sys.stdout.write(f"{output}: {len(list(pages()))} pages\n")
    for one in broken:
        sys.stderr.write(f"broken link: {one}\n")
    sys.exit(1 if broken else 0)
