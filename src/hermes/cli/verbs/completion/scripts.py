"""The tree written as tables of a shell, around the functions that read them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from hermes.cli.verbs.completion.tree import Node, places, whole_tree

Row = tuple[str, Sequence[str]]
"""The words to match (a star at the end stands for any) and the lines to print for them."""


class _Dialect(Struct, frozen=True):
    quote: Callable[[str], str]
    row: Callable[[str, str], str]
    star: str


def script(shell: str) -> str:
    """The text to be read by the shell; names and summaries are parted by a bar."""
    text = (Path(__file__).parent / f"hermes.{shell}").read_text(encoding="utf-8")
    nodes = list(places(whole_tree()))
    dialect = _FISH if shell == "fish" else _POSIX
    for name, table in _TABLES.items():
        rows = "".join(_written(row, dialect) for path, node in nodes for row in table(path, node))
        text = text.replace(f"@{name}@\n", rows)
    return text


def _places(path: str, node: Node) -> Iterator[Row]:
    """Whether some words are a place of their own."""
    yield path, ["yes"]


def _values(path: str, node: Node) -> Iterator[Row]:
    """What may follow a flag."""
    for flag in node.flags:
        for name in flag.names:
            if flag.value:
                yield f"{path} {name}", [flag.value]


def _words(path: str, node: Node) -> Iterator[Row]:
    """What the n-th plain word is."""
    for number, kind in enumerate(node.words):
        yield f"{path} {number}", [kind]
    if node.more:
        yield f"{path} *", [node.words[-1]]


def _verbs(path: str, node: Node) -> Iterator[Row]:
    if node.children:
        yield path, [f"{name}|{child.summary}" for name, child in node.children.items()]


def _flags(path: str, node: Node) -> Iterator[Row]:
    yield path, [f"{name}|{flag.summary}" for flag in node.flags for name in flag.names]


_TABLES: dict[str, Callable[[str, Node], Iterator[Row]]] = {
    "places": _places,
    "values": _values,
    "words": _words,
    "verbs": _verbs,
    "flags": _flags,
}


def _written(row: Row, dialect: _Dialect) -> str:
    words, lines = row
    pattern = dialect.quote(words.removesuffix("*")) + (dialect.star if words[-1] == "*" else "")
    return dialect.row(pattern, " ".join(map(dialect.quote, lines)))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_POSIX = _Dialect(_quoted, lambda match, out: f"        {match}) printf '%s\\n' {out} ;;\n", "*")
_FISH = _Dialect(
    _fish_quoted,
    lambda match, out: f"        case {match}\n            printf '%s\\n' {out}\n",
    "'*'",
)
