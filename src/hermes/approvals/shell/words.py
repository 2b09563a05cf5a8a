"""Track shell variables and read the words of a script."""

import posixpath
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hermes.approvals.shell.expansion import (
    UNKNOWN,
    KnownText,
    decode_escapes,
    expand_braces,
    expand_parameter,
    predict_output,
    unescape,
    unescape_quoted,
)

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_VARIABLES = 1000
MAX_ASSIGNMENTS = 20_000
"""Further variables, or further assignments, are ignored."""
MAX_VALUE = 200_000
MAX_EXPANDED = 1_000_000
"""The longest value, and the total length of all expanded values."""
_ASSIGN_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*):?=")
_OPTION_WITH_VALUE = re.compile(r"-[a-zA-Z]*[dinNptu]$")
_QUOTES = {"string", "raw_string", "ansi_c_string", "translated_string"}
_SUBSTITUTIONS = {"command_substitution", "process_substitution"}
_EXPANSIONS = {"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"}
_BACKTICKS = re.compile(r"(?<!\\)(?:\\\\)*`((?:[^`\\]|\\.)*)`", re.DOTALL)
_UNPARSED_VARIABLE = re.compile(r"(?<!\\)\$[A-Za-z_]\w*")
"""Variables that the parser reports as plain text."""
INDEXED_SUBSTITUTION = re.compile(r"\w+\[.*?(?P<text>\$\(.*|`.*)", re.DOTALL)
"""An index that is computed by running a command, even inside quotes."""


class ShellVariables:
    """Variables of a shell; snapshots are copied on write."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = dict(known)
        self._shared = False
        self._remaining_assignments = MAX_ASSIGNMENTS
        self._remaining_length = MAX_EXPANDED
        self.exceeded = False

    def snapshot(self) -> Mapping[str, str]:
        self._shared = True
        return self._known

    def restore_snapshot(self, known: Mapping[str, str]) -> None:
        """Restore the variables from before a subshell."""
        if known is not self._known:
            self._known = dict(known)
            self._shared = False

    def get(self, name: str, default: str = "") -> str:
        return self._known.get(name, default)

    def set(self, name: str, value: str) -> None:
        if self._shared:
            self._known, self._shared = dict(self._known), False
        self._remaining_assignments -= 1
        if len(value) > MAX_VALUE:
            value, self.exceeded = UNKNOWN, True
        if self._remaining_assignments > 0 and (
            len(self._known) < MAX_VARIABLES or name in self._known
        ):
            self._known[name] = value
        else:
            self.exceeded = True

    def set_list(self, name: str, words: Sequence[str], *, more: bool = False) -> None:
        if self.exceeded:
            return
        before = self._items(name) if more else []
        for number, word in enumerate(words, len(before)):
            self.set(f"{name}[{number}]", word)
        if not self.exceeded:
            self.set(name, " ".join([*before, *words]))

    def set_item(self, name: str, key: str, value: str) -> None:
        self.set(f"{name}[{key}]", value)
        if not self.exceeded:
            self.set(name, " ".join(self._items(name)))

    def _items(self, name: str) -> list[str]:
        start = f"{name}["
        items = [value for key, value in self._known.items() if key.startswith(start)]
        return items or [one for one in [self._known.get(name, "")] if one]

    def set_arguments(self, words: Sequence[str]) -> None:
        """Set the positional parameters `$1`, `$2`, …."""
        for name in [one for one in self._known if one.isdecimal() and one != "0"]:
            self.set(name, "")
        for number, word in enumerate(words, 1):
            self.set(str(number), word)
        self.set("@", " ".join(words))
        self.set("#", str(len(words)))

    def arguments(self) -> list[str]:
        count = self._known.get("#", "")
        return [self.get(str(one + 1)) for one in range(int(count) if count.isdecimal() else 0)]

    def expand(self, text: str) -> str:
        """Return the value of `$X` or `${X…}`; `${X:=…}` also sets it."""
        value = expand_parameter(text, self._known)
        if (found := _ASSIGN_DEFAULT.match(text)) and self.get(found[1], UNKNOWN) in {"", UNKNOWN}:
            self.set(found[1], value)
        self._remaining_length -= len(value)
        if self._remaining_length < 0:
            self.exceeded = True
            return UNKNOWN
        return value

    def split(self, value: str) -> list[str]:
        """Split an unquoted value at the separators."""
        separators = self.get("IFS", " ")
        if not separators.strip() or UNKNOWN in separators:
            return value.split()
        return [one for one in re.split(f"[{re.escape(separators)}]+", value) if one]

    def set_folder(self, folder: str) -> None:
        self.set("OLDPWD", self.get("PWD"))
        self.set("PWD", posixpath.normpath(folder))

    def expand_tilde(self, text: str, home: str) -> str:
        """Expand `~` and `~name` at the beginning of a word."""
        name, slash, rest = text[1:].partition("/")
        match name:
            case "":
                return home + slash + rest
            case "+":
                return self.get("PWD", UNKNOWN) + slash + rest
            case "-":
                return self.get("OLDPWD", UNKNOWN) + slash + rest
            case "root":
                return "/root" + slash + rest
            case _ if re.fullmatch(r"[a-z_][a-z0-9_-]*", name):
                return f"/home/{name}{slash}{rest}"
            case _:
                return text

    def record_command(self, words: Sequence[str], fed: KnownText) -> None:
        """Record what commands assign to variables."""
        match words:
            case ["set", "--", *rest]:
                self.set_arguments(rest)
            case ["set", first, *rest] if not first.startswith(("-", "+")):
                self.set_arguments([first, *rest])
            case ["shift", *rest]:
                count = int(rest[0]) if rest and rest[0].isdecimal() else 1
                self.set_arguments(self.arguments()[count:])
            case ["printf", "-v", name, *rest]:
                output = predict_output(["printf", *rest], None)
                self.set(name, UNKNOWN if output is None else output)
            case ["read", *rest]:
                self._read(rest, fed)
            case ["mapfile" | "readarray", *rest] if rest:
                lines = [UNKNOWN] if fed is None else fed.splitlines()
                self.set_list(rest[-1], lines[:MAX_VARIABLES])
            case _:
                pass

    def _read(self, args: Sequence[str], fed: KnownText) -> None:
        names: list[str] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            if _OPTION_WITH_VALUE.match(word):
                rest[:1] = []
            elif not word.startswith("-"):
                names.append(word)
        if fed is None:
            for name in names or ["REPLY"]:
                self.set(name, UNKNOWN)
            return
        line = (fed.splitlines() or [""])[0]
        words = self.split(line)
        if any(re.fullmatch(r"-[a-zA-Z]*a", one) for one in args) and names:
            self.set_list(names[0], words)
            return
        *first, last = names or ["REPLY"]
        for number, name in enumerate(first):
            self.set(name, words[number] if number < len(words) else "")
        self.set(last, " ".join(words[len(first) :]))


class WordReader(ABC):
    """Reads words with the variables known at that point."""

    def __init__(self, source: bytes, home: str, known: ShellVariables) -> None:
        self._source = source
        self._home = home
        self.known = known

    @abstractmethod
    def _output_of_commands(self, node: "Node") -> KnownText:
        """What the inner commands print, if known."""

    @abstractmethod
    def _add_shell_text(self, text: str) -> None:
        """Add shell text that is run as well."""

    def _scan_nested(self, node: "Node") -> None:
        """Find commands inside defaults, arithmetic and paths."""
        text = self._text(node)
        if "$(" in text or "<(" in text or ">(" in text:
            for one in _outermost(node, _SUBSTITUTIONS):
                self._output_of_commands(one)
        self._add_backticks(text)

    def _scan_index(self, text: str) -> str:
        """Find commands in text that the shell may evaluate as a number; prints nothing."""
        if "[" in text and (found := INDEXED_SUBSTITUTION.match(text)):
            self._add_shell_text(f": {found['text']}")
        return ""

    def _add_backticks(self, text: str) -> None:
        """Find backticks, which the parser does not report everywhere."""
        for found in _BACKTICKS.finditer(text) if "`" in text else ():
            self._add_shell_text(found[1])

    def _words(self, node: "Node") -> list[str]:
        """Return the words of one node: none, one or several."""
        value = self._value(node)
        if node.type == "word" and "$" in value and _UNPARSED_VARIABLE.search(value):
            value = _UNPARSED_VARIABLE.sub(lambda found: self.known.expand(found[0]), value)
            return [one for word in self.known.split(value) for one in expand_braces(word)]
        if node.type in _QUOTES:
            text = self._text(node)
            return value.split(" ") if "[@]" in text or "$@" in text else [value]
        loose = node.type in _EXPANSIONS or any(one.type in _EXPANSIONS for one in node.children)
        split = self.known.split(value) if loose else [value]
        return [one for word in split for one in expand_braces(word)]

    def _value(self, node: "Node") -> str:  # noqa: PLR0911 - one for each kind of node
        text = self._text(node)
        match node.type:
            case "raw_string":
                return text[1:-1]
            case "ansi_c_string":
                return decode_escapes(text[2:-1])
            case "string" | "translated_string":
                return self._joined(node, quoted=True).strip('"').removeprefix('$"')
            case "simple_expansion":
                return self.known.expand(text)
            case "expansion":
                return self._expanded(node, text)
            case "command_substitution" | "process_substitution":
                output = self._output_of_commands(node)
                return UNKNOWN if output is None else output.rstrip("\n")
            case "arithmetic_expansion":
                self._scan_nested(node)
                return UNKNOWN
            case "concatenation" | "command_name" | "heredoc_body":
                return self._joined(node, quoted=node.type == "heredoc_body")
            case _:
                tilde = text.startswith("~")
                return unescape(self.known.expand_tilde(text, self._home) if tilde else text)

    def _expanded(self, node: "Node", text: str) -> str:
        self._add_backticks(text)
        value = self.known.expand(self._expanded_text(node))
        if text.endswith("@P}"):
            name = text.removeprefix("${").removesuffix("@P}")
            self._add_shell_text(f': "{self.known.get(name)}"')
        return value

    def _expanded_text(self, node: "Node") -> str:
        """The text of a node with the values of what it contains."""
        pieces: list[str] = []
        at = node.start_byte
        for child in node.children:
            pieces.append(self._between(at, child.start_byte, quoted=True))
            inner = child.type in {*_EXPANSIONS, *_QUOTES, "process_substitution"}
            pieces.append(self._value(child) if inner else self._expanded_text(child))
            at = child.end_byte
        pieces.append(rest := self._source[at : node.end_byte].decode("utf-8", "replace"))
        if not node.children and "$(" in rest:
            # The parser does not report commands in a pattern.
            self._add_shell_text(f": {rest[rest.index('$(') :]}")
        return "".join(pieces)

    def _joined(self, node: "Node", *, quoted: bool) -> str:
        """Join the parts of a word with the text between them."""
        pieces: list[str] = []
        at = node.start_byte
        for child in node.named_children:
            pieces.append(self._between(at, child.start_byte, quoted=quoted))
            inside = child.type in {"string_content", "heredoc_content"}
            text = self._text(child)
            pieces.append(unescape_quoted(text) if inside else self._value(child))
            at = child.end_byte
        pieces.append(self._between(at, node.end_byte, quoted=quoted))
        return "".join(pieces)

    def _between(self, start: int, end: int, *, quoted: bool) -> str:
        text = self._source[start:end].decode("utf-8", "replace")
        return unescape_quoted(text) if quoted else unescape(text)

    def _text(self, node: "Node") -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _outermost(node: "Node", kinds: set[str]) -> "Iterator[Node]":
    for child in node.named_children:
        if child.type in kinds:
            yield child
        else:
            yield from _outermost(child, kinds)


def descendants(node: "Node", kind: str) -> "Iterator[Node]":
    for child in node.named_children:
        if child.type == kind:
            yield child
        yield from descendants(child, kind)


def last_command(node: "Node") -> "Node":
    """The command that a trailing redirection belongs to."""
    while node.type in {"list", "pipeline", "negated_command"} and node.named_children:
        node = node.named_children[-1]
    return node
