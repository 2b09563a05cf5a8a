"""The words of a command, from the tree of its text; what is run on the way is handed on."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hermes.approvals.outputs import Known
from hermes.approvals.values import UNKNOWN, ansi, braces, unescaped, unquoted
from hermes.approvals.variables import Variables

if TYPE_CHECKING:
    from tree_sitter import Node

_QUOTES = {"string", "raw_string", "ansi_c_string", "translated_string"}
_SUBSTITUTIONS = {"command_substitution", "process_substitution"}
_EXPANSIONS = {"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"}
_TICKS = re.compile(r"(?<!\\)(?:\\\\)*`((?:[^`\\]|\\.)*)`", re.DOTALL)
_MISSED = re.compile(r"(?<!\\)\$[A-Za-z_]\w*")
"""Variables that the tree takes for letters of a word."""
INDEXED = re.compile(r"\w+\[.*?(?P<text>\$\(.*|`.*)", re.DOTALL)
"""A number that is looked up by running something: it is run even where it stands in quotes."""


class Words(ABC):
    """Words are read with the variables that are known where they stand."""

    def __init__(self, source: bytes, home: str, known: Variables) -> None:
        self._source = source
        self._home = home
        self.known = known

    @abstractmethod
    def _told_by(self, node: "Node") -> Known:
        """What the commands in there print, if that is known."""

    @abstractmethod
    def _also(self, text: str) -> None:
        """Shell text that is run, too."""

    def _hidden(self, node: "Node") -> None:
        """Commands in the midst of something that is no command: defaults, numbers, places."""
        text = self._text(node)
        if "$(" in text or "<(" in text or ">(" in text:
            for one in _outermost(node, _SUBSTITUTIONS):
                self._told_by(one)
        self._ticked(text)

    def _counted(self, text: str) -> str:
        """What a shell may take for a number later on; it prints nothing."""
        if "[" in text and (found := INDEXED.match(text)):
            self._also(f": {found['text']}")
        return ""

    def _ticked(self, text: str) -> None:
        """The tree does not show these everywhere."""
        for found in _TICKS.finditer(text) if "`" in text else ():
            self._also(found[1])

    def _words(self, node: "Node") -> list[str]:
        """One node may be no word, or several."""
        value = self._value(node)
        if node.type == "word" and "$" in value and _MISSED.search(value):
            value = _MISSED.sub(lambda found: self.known.expand(found[0]), value)
            return [one for word in self.known.split(value) for one in braces(word)]
        if node.type in _QUOTES:
            text = self._text(node)
            return value.split(" ") if "[@]" in text or "$@" in text else [value]
        loose = node.type in _EXPANSIONS or any(one.type in _EXPANSIONS for one in node.children)
        split = self.known.split(value) if loose else [value]
        return [one for word in split for one in braces(word)]

    def _value(self, node: "Node") -> str:  # noqa: PLR0911 - one for each kind of node
        text = self._text(node)
        match node.type:
            case "raw_string":
                return text[1:-1]
            case "ansi_c_string":
                return ansi(text[2:-1])
            case "string" | "translated_string":
                return self._joined(node, quoted=True).strip('"').removeprefix('$"')
            case "simple_expansion":
                return self.known.expand(text)
            case "expansion":
                return self._expanded(node, text)
            case "command_substitution" | "process_substitution":
                told = self._told_by(node)
                return UNKNOWN if told is None else told.rstrip("\n")
            case "arithmetic_expansion":
                self._hidden(node)
                return UNKNOWN
            case "concatenation" | "command_name" | "heredoc_body":
                return self._joined(node, quoted=node.type == "heredoc_body")
            case _:
                return self._bare(text)

    def _expanded(self, node: "Node", text: str) -> str:
        self._ticked(text)
        value = self.known.expand(self._spelled(node))
        if text.endswith("@P}"):
            called = text.removeprefix("${").removesuffix("@P}")
            self._also(f': "{self.known.get(called)}"')
        return value

    def _spelled(self, node: "Node") -> str:
        """Its text, with the values of what stands inside."""
        pieces: list[str] = []
        at = node.start_byte
        for child in node.children:
            pieces.append(self._between(at, child.start_byte, quoted=True))
            inner = (
                child.type in _EXPANSIONS
                or child.type in _QUOTES
                or child.type == "process_substitution"
            )
            pieces.append(self._value(child) if inner else self._spelled(child))
            at = child.end_byte
        pieces.append(rest := self._source[at : node.end_byte].decode("utf-8", "replace"))
        if not node.children and "$(" in rest:
            # A pattern is not looked into by the tree.
            self._also(f": {rest[rest.index('$(') :]}")
        return "".join(pieces)

    def _bare(self, text: str) -> str:
        return unescaped(self.known.tilde(text, self._home) if text.startswith("~") else text)

    def _joined(self, node: "Node", *, quoted: bool) -> str:
        """The pieces of a word, with the letters between them."""
        pieces: list[str] = []
        at = node.start_byte
        for child in node.named_children:
            pieces.append(self._between(at, child.start_byte, quoted=quoted))
            inside = child.type in {"string_content", "heredoc_content"}
            text = self._text(child)
            pieces.append(unquoted(text) if inside else self._value(child))
            at = child.end_byte
        pieces.append(self._between(at, node.end_byte, quoted=quoted))
        return "".join(pieces)

    def _between(self, start: int, end: int, *, quoted: bool) -> str:
        text = self._source[start:end].decode("utf-8", "replace")
        return unquoted(text) if quoted else unescaped(text)

    def _text(self, node: "Node") -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _outermost(node: "Node", kinds: set[str]) -> "Iterator[Node]":
    for child in node.named_children:
        if child.type in kinds:
            yield child
        else:
            yield from _outermost(child, kinds)


def within(node: "Node", kind: str) -> "Iterator[Node]":
    for child in node.named_children:
        if child.type == kind:
            yield child
        yield from within(child, kind)


def last_of(node: "Node") -> "Node":
    """The command whom a redirection at the end belongs to."""
    while node.type in {"list", "pipeline", "negated_command"} and node.named_children:
        node = node.named_children[-1]
    return node
