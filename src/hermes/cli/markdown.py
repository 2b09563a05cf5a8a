"""Show a streamed Markdown answer at a terminal, block by block, from markdown-it's tokens."""

import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from msgspec import Struct

from hermes.cli.output import Style
from hermes.kit.terminal_text import display_width, pad

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)")
_INDENT = re.compile(r"[ \t]+")
_BULLETS = "•◦▪"
_INLINE_STYLES = {"strong": "bold", "em": "italic", "s": "strike"}
_MIN_WIDTH = 20


class Span(Struct, frozen=True):
    """Text with the names of its styles; a line break is a span of its own."""

    text: str
    styles: tuple[str, ...] = ()


class MarkdownPrinter:
    """Takes an answer in pieces and returns what can be shown of it; code comes line by line."""

    def __init__(self, style: Style) -> None:
        self._style = style
        self._parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
        self._rest = ""
        self._block: list[str] = []
        self._fence = ""
        self._gap = False
        self._shown = False

    @property
    def pending(self) -> str:
        """The last line that is not shown yet."""
        return self._rest or (self._block[-1] if self._block else "")

    def feed(self, text: str) -> str:
        """Return the blocks that are complete now, each line with its line break."""
        *lines, self._rest = (self._rest + text).split("\n")
        return "".join(self._rendered_line(line) for line in lines)

    def flush(self) -> str:
        """Return what is left at the end of the answer."""
        rest, self._rest = self._rest, ""
        shown = (self._rendered_line(rest) if rest else "") + self._end_block()
        self._fence, self._gap, self._shown = "", False, False
        return shown

    def _rendered_line(self, line: str) -> str:
        found = _FENCE.match(line)
        if self._fence:
            if found is not None and found[1].startswith(self._fence) and not found[2]:
                self._fence = ""
                return ""
            return f"{self._style('  │ ', 'dim')}{line.expandtabs()}\n"
        if found is not None:
            before = self._end_block()
            self._fence = found[1]
            label = f"{self._style(f'  ┌ {found[2]}', 'dim')}\n" if found[2] else ""
            return before + self._separated(label)
        if line.strip():
            self._block.append(line)
            return ""
        shown = self._end_block()
        self._gap = True
        return shown

    def _end_block(self) -> str:
        if not self._block:
            return ""
        lines, self._block = self._block, []
        # A paragraph of a list item after an empty line would be taken for code.
        indent = _INDENT.match(lines[0])
        prefix = indent[0].expandtabs() if indent is not None else ""
        if prefix:
            lines = [line.removeprefix(indent[0] if indent else "") for line in lines]
        width = max(self._style.columns - 1 - len(prefix), _MIN_WIDTH)
        tree = SyntaxTreeNode(self._parser.parse("\n".join(lines)))
        shown = [f"{prefix}{line}\n" for line in self._blocks(tree.children, width)]
        return self._separated("".join(shown))

    def _separated(self, text: str) -> str:
        """With an empty line before it, if there was one in the source."""
        gap = "\n" if self._gap and self._shown else ""
        self._gap, self._shown = False, True
        return gap + text

    def _blocks(self, nodes: Sequence[SyntaxTreeNode], width: int, depth: int = 0) -> list[str]:
        return [line for node in nodes for line in self._render(node, width, depth)]

    def _render(self, node: SyntaxTreeNode, width: int, depth: int) -> list[str]:
        match node.type:
            case "heading":
                styles = ("bold", "cyan") if node.tag in {"h1", "h2"} else ("bold",)
                return self._wrap(_spans(node, styles), width)
            case "bullet_list" | "ordered_list":
                return self._list(node, width, depth)
            case "blockquote":
                mark = self._style("│ ", "dim")
                return [mark + line for line in self._blocks(node.children, width - 2, depth)]
            case "table":
                return self._table(node)
            case _ if node.children:
                return self._wrap(_spans(node), width)
            case kind:
                rule = self._style("─" * min(width, 40), "dim")
                return [rule] if kind == "hr" else node.content.splitlines()

    def _list(self, node: SyntaxTreeNode, width: int, depth: int) -> list[str]:
        lines: list[str] = []
        for item in node.children:
            ordered = node.type == "ordered_list"
            mark = f"{item.info}{item.markup} " if ordered else f"{_BULLETS[min(depth, 2)]} "
            body = self._blocks(item.children, max(width - len(mark), _MIN_WIDTH), depth + 1) or [
                ""
            ]
            lines.append(self._style(mark, "cyan") + body[0])
            lines += [" " * len(mark) + line for line in body[1:]]
        return lines

    def _table(self, node: SyntaxTreeNode) -> list[str]:
        rows = [
            ["".join(span.text for span in _spans(cell)) for cell in row.children]
            for part in node.children
            for row in part.children
        ]
        widths = [max(map(display_width, column)) for column in zip(*rows, strict=False)]
        lines = [
            "  ".join(pad(cell, width) for cell, width in zip(row, widths, strict=False)).rstrip()
            for row in rows
        ]
        rule = self._style("  ".join("─" * width for width in widths), "dim")
        return [self._style(lines[0], "bold"), rule, *lines[1:]]

    def _wrap(self, spans: Sequence[Span], width: int) -> list[str]:
        """Break lines between words; a longer word gets a line of its own."""
        lines, room, space = [""], width, ""
        for span in spans:
            for word in re.findall(r"\n|[^\S\n]+|\S+", span.text):
                if word.isspace() and word != "\n":
                    space = " " if lines[-1] else ""
                    continue
                needed = display_width(space + word)
                if word == "\n" or (needed > room and lines[-1] and space):
                    lines, room, space = [*lines, ""], width, ""
                if word != "\n":
                    lines[-1] += space + self._style(word, *span.styles)
                    room -= display_width(space + word)
                space = ""
        return lines


def _spans(node: SyntaxTreeNode, styles: tuple[str, ...] = ()) -> list[Span]:
    """The text under a node with its styles."""
    found: list[Span] = []
    for child in node.children:
        match child.type:
            case "text" | "html_inline":
                found.append(Span(child.content, styles))
            case "code_inline":
                found.append(Span(child.content, (*styles, "cyan")))
            case "softbreak":
                found.append(Span(" ", styles))
            case "hardbreak":
                found.append(Span("\n"))
            case "link":
                found += _spans(child, (*styles, "underline"))
                address = str(child.attrs.get("href", ""))
                if address not in "".join(span.text for span in _spans(child)):
                    found.append(Span(f" ({address})", (*styles, "dim")))
            case "image":
                found.append(Span(f"[image: {child.content}]", styles))
            case kind:
                name = _INLINE_STYLES.get(kind)
                found += _spans(child, (*styles, name) if name else styles)
    return found
