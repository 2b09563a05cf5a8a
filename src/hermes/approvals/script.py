"""Read shell text as a tree: which commands it holds, with their words as far as they are known.

Nothing is run. What cannot be known is marked, and whoever judges decides what that means.
"""

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from hermes.approvals.outputs import Known, output_of
from hermes.approvals.values import UNKNOWN, ansi, braces, parameter, unescaped, unquoted

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MOST_COMMANDS = 2000
MOST_TEXT = 1_000_000
LOOPS = 5
NESTED = 8
"""How far functions and aliases are followed that call others."""
_QUOTES = {"string", "raw_string", "ansi_c_string", "translated_string"}
_EXPANSIONS = {"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"}


class Place(Struct, frozen=True):
    """Where it would run, and what `~` means there; `ours` is where this agent keeps all it has."""

    folder: str
    home: str
    ours: str = ""


class Found(Struct, frozen=True, kw_only=True):
    """One command. `fed` is what comes in, if that is known; `piped` that something does.

    `targets` are the files it writes by redirection, `sources` those it reads so.
    """

    argv: tuple[str, ...]
    folder: str
    fed: Known = None
    piped: bool = False
    targets: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return posixpath.basename(self.argv[0].rstrip("/")) if self.argv else ""


class Reading(Struct, frozen=True, kw_only=True):
    """`bomb` is a function that calls itself without end; `broken` text is no shell text."""

    found: tuple[Found, ...] = ()
    bomb: bool = False
    broken: bool = False
    overlong: bool = False


class Feed(Struct, frozen=True):
    """What comes in and goes out, besides the words."""

    fed: Known = None
    piped: bool = False
    targets: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


_NOTHING = Feed()


def read_script(text: str, place: Place) -> Reading:
    overlong = len(text) > MOST_TEXT
    text = text[:MOST_TEXT].replace("\\\n", "").replace("\x00", "")
    source = text.encode("utf-8", "replace")
    root = _parser().parse(source).root_node
    walk = _Walk(source, place)
    broken = root.has_error
    try:
        walk.see(root, _NOTHING)
    except RecursionError:
        broken = True
    if broken:
        walk.guess(text)
    return Reading(
        found=tuple(walk.found),
        bomb=walk.bomb,
        broken=broken,
        overlong=overlong or len(walk.found) >= MOST_COMMANDS,
    )


@cache
def _parser() -> "Parser":
    import tree_sitter_bash  # noqa: PLC0415 - only who reads commands pays for it
    from tree_sitter import Language, Parser  # noqa: PLC0415 - likewise

    return Parser(Language(tree_sitter_bash.language()))


class _Walk:
    def __init__(self, source: bytes, place: Place) -> None:
        self._source = source
        self._home = place.home
        self._folder = place.folder
        self._known = {"HOME": place.home, "PWD": place.folder, "IFS": " ", "@": ""}
        self._functions: dict[str, Node] = {}
        self._aliases: dict[str, str] = {}
        self._nested = 0
        self.found: list[Found] = []
        self.bomb = False

    def see(self, node: "Node", feed: Feed) -> Known:  # noqa: PLR0911 - one for each kind of node
        """What it prints, when that is known."""
        if len(self.found) >= MOST_COMMANDS:
            return None
        match node.type:
            case "command" | "command_name" | "declaration_command":
                return self._command(node, feed)
            case "pipeline":
                return self._pipeline(node, feed)
            case "redirected_statement":
                return self._redirected(node, feed)
            case "variable_assignment":
                return self._assign(node)
            case "function_definition":
                return self._function(node)
            case "for_statement":
                return self._loop(node)
            case "comment" | "heredoc_body" | "heredoc_start" | "heredoc_end":
                return ""
            case "subshell" | "command_substitution" | "process_substitution":
                return self._apart(node, feed)
            case _:
                return self._all(node.named_children, feed)

    def guess(self, text: str) -> None:
        """Text that is no shell text is looked at all the same, line by line."""
        for line in re.split(r"[;&|\n()]+", text):
            spread = [one for word in _split(line) for one in braces(word)]
            if spread:
                self._found(spread, _NOTHING)

    def _all(self, nodes: "Sequence[Node]", feed: Feed) -> Known:
        told = [self.see(node, feed) for node in nodes]
        return None if any(one is None for one in told) else "".join(filter(None, told))

    def _apart(self, node: "Node", feed: Feed) -> Known:
        folder, known = self._folder, dict(self._known)
        told = self._all(node.named_children, feed)
        self._folder, self._known = folder, known
        return told

    def _pipeline(self, node: "Node", feed: Feed) -> Known:
        told: Known = None
        for number, child in enumerate(node.named_children):
            told = self.see(child, Feed(told, piped=True) if number else feed)
        return told

    def _redirected(self, node: "Node", feed: Feed) -> Known:
        body = node.child_by_field_name("body")
        redirects = node.children_by_field_name("redirect")
        for one in redirects:
            feed = self._with_redirect(one, feed)
        told = self.see(body, feed) if body is not None else self._found([], feed)
        for one in redirects:
            # A heredoc stands between its command and the rest of the pipeline.
            for rest in one.named_children:
                if rest.type in {"pipeline", "command", "list", "redirected_statement"}:
                    told = self._staged(rest, told)
        return told

    def _staged(self, node: "Node", fed: Known) -> Known:
        stages = node.named_children if node.type == "pipeline" else [node]
        for stage in stages:
            fed = self.see(stage, Feed(fed, piped=True))
        return fed

    def _with_redirect(self, node: "Node", feed: Feed) -> Feed:
        match node.type:
            case "herestring_redirect":
                words = [word for child in node.named_children for word in self._words(child)]
                return structs.replace(feed, fed=" ".join(words), piped=True)
            case "heredoc_redirect":
                bodies = [one for one in node.named_children if one.type == "heredoc_body"]
                text = "".join(self._value(one) if one.named_children else self._text(one)
                               for one in bodies)  # fmt: skip
                return structs.replace(feed, fed=text, piped=True)
            case _:
                return self._file_redirect(node, feed)

    def _file_redirect(self, node: "Node", feed: Feed) -> Feed:
        places = [w for one in node.children_by_field_name("destination") for w in self._words(one)]
        if not any(">" in one.type for one in node.children if not one.is_named):
            return structs.replace(feed, piped=True, sources=(*feed.sources, *places))
        return structs.replace(feed, targets=(*feed.targets, *places))

    def _assign(self, node: "Node") -> Known:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is not None:
            words = [] if value is None else self._list(value)
            self._known[self._text(name)] = " ".join(words)
        return ""

    def _list(self, node: "Node") -> list[str]:
        if node.type == "array":
            return [word for child in node.named_children for word in self._words(child)]
        return [self._value(node)]

    def _function(self, node: "Node") -> Known:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            return ""
        called = self._text(name)
        calls = [one for one in _within(body, "command") if self._text(one).split()[:1] == [called]]
        beside = [one for one in calls if one.parent is not None and one.parent.type == "pipeline"]
        if len(calls) > 1 or beside or (calls and "&" in self._text(body).replace("&&", "")):
            self.bomb = True
        self._functions[called] = body
        self._apart(body, _NOTHING)
        return ""

    def _called(self, words: Sequence[str], feed: Feed) -> None:
        """What a function or an alias of the same text does with what it is given here."""
        name, given = words[0], list(words[1:])
        if self._nested >= NESTED:
            return
        self._nested += 1
        if (body := self._functions.get(name)) is not None:
            known = self._known
            numbered = {str(number): word for number, word in enumerate(given, 1)}
            self._known = known | {"@": " ".join(given)} | numbered
            self.see(body, feed)
            # What it sets stays set, but for what it was given.
            self._known = self._known | {one: known.get(one, UNKNOWN) for one in ("@", *numbered)}
        elif (value := self._aliases.get(name)) is not None:
            self._found([*_split(value), *given], feed)
        self._nested -= 1

    def _loop(self, node: "Node") -> Known:
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        values = [w for one in node.children_by_field_name("value") for w in self._words(one)]
        for value in values[:LOOPS] or [UNKNOWN]:
            if name is not None and body is not None:
                self._known[self._text(name)] = value
                self.see(body, _NOTHING)
        return None

    def _command(self, node: "Node", feed: Feed) -> Known:
        words: list[str] = []
        for child in node.children if node.type != "command_name" else [node]:
            if child.type == "variable_assignment":
                self._assign(child)
            elif child.type.endswith("_redirect"):
                feed = self._with_redirect(child, feed)
            elif child.type == "command_name":
                words += [word for one in child.children for word in self._words(one)]
            elif child.is_named or child.type in {"export", "declare", "typeset", "local"}:
                words += self._words(child)
        return self._found(words, feed)

    def _found(self, words: list[str], feed: Feed) -> Known:
        if words or feed.targets or feed.sources:
            self.found.append(
                Found(
                    argv=tuple(words),
                    folder=self._folder,
                    fed=feed.fed,
                    piped=feed.piped,
                    targets=feed.targets,
                    sources=feed.sources,
                )
            )
        match words:
            case ["cd" | "pushd", *rest]:
                places = [one for one in rest if not one.startswith("-")]
                self._folder = posixpath.join(self._folder, places[0] if places else self._home)
            case ["set", "--", *rest]:
                self._known["@"] = " ".join(rest)
            case ["alias", *rest]:
                self._aliases |= {one.partition("=")[0]: one.partition("=")[2] for one in rest}
            case [name, *_] if name in self._functions or name in self._aliases:
                self._called(words, feed)
            case _:
                pass
        return output_of(words, feed.fed)

    def _words(self, node: "Node") -> list[str]:
        """One node may be no word, or several."""
        value = self._value(node)
        if node.type in _QUOTES:
            text = self._text(node)
            return value.split(" ") if "[@]" in text or "$@" in text else [value]
        loose = node.type in _EXPANSIONS or any(one.type in _EXPANSIONS for one in node.children)
        split = value.split() if loose else [value]
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
            case "simple_expansion" | "expansion":
                return parameter(text, self._known)
            case "command_substitution" | "process_substitution":
                told = self._apart(node, _NOTHING)
                return UNKNOWN if told is None else told.rstrip("\n")
            case "arithmetic_expansion":
                return UNKNOWN
            case "concatenation" | "command_name" | "heredoc_body":
                return self._joined(node, quoted=node.type == "heredoc_body")
            case _:
                return self._bare(text)

    def _bare(self, text: str) -> str:
        if text == "~" or text.startswith("~/"):
            text = self._home + text[1:]
        return unescaped(text)

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


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _within(node: "Node", kind: str) -> "Iterator[Node]":
    for child in node.named_children:
        if child.type == kind:
            yield child
        yield from _within(child, kind)


def without_comments(text: str) -> str:
    """What is said to readers of the command, and not to the shell, is left out."""
    source = text.encode("utf-8", "replace")
    spans = [(one.start_byte, one.end_byte) for one in _comments(_parser().parse(source).root_node)]
    for start, end in sorted(spans, reverse=True):
        source = source[:start] + source[end:]
    return source.decode("utf-8", "replace").strip()


def _comments(node: "Node") -> "Iterator[Node]":
    for child in node.children:
        if child.type == "comment":
            yield child
        yield from _comments(child)
