"""Split shell text into the commands it would run, as far as they are known without running it.

Simple variables, wrappers such as sudo, nested shells and literal pipes are followed. Words that
cannot be known are marked with `UNKNOWN`.
"""

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from hermes.approvals.nested_commands import (
    INTERPRETERS,
    UNKNOWN,
    ShellCommand,
    code_arguments,
    shell_texts,
    string_literals,
    wrapped_commands,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_TEXT = 200_000
MAX_COMMANDS = 2000
MAX_STEPS = 20_000
"""Syntax nodes visited in one text."""
MAX_DEPTH = 6
"""How deep shells in shells and wrappers in wrappers are followed."""
MAX_VALUE = 100_000


_FORK_BOMB = re.compile(
    r"(?<![\w:.])(?P<name>[\w:.]{1,64})\s*\(\)\s*\{[^}]{0,500}?(?<![\w./-])(?P=name)\s*(?:\|\s*(?P=name)|&(?!&))"
    r"|\bfork\s+while\b|while\s+(?:1|True)\s*:\s*os\.fork\("
)
_EXPANSION = re.compile(
    r"\$\{?(?P<name>\w+|[@*])(?:\[[@*]\])?(?P<how>:?[-=?])?(?P<rest>[^{}]*)\}?", re.DOTALL
)
_BACKTICKS = re.compile(r"(?<!\\)`((?:[^`\\]|\\.)*)`", re.DOTALL)
_QUOTED = frozenset({"string", "raw_string", "ansi_c_string", "translated_string"})
_EXPANDED = frozenset({"simple_expansion", "expansion", "command_substitution"})
_SKIPPED = frozenset({"comment", "heredoc_start", "heredoc_end"})


class ShellContext(Struct, frozen=True):
    """The folder it would run in and the home of `~`; `hermes_home` is the agent's own home."""

    folder: str
    home: str
    hermes_home: str = ""


class ShellScript(Struct, frozen=True, kw_only=True):
    """The commands of a text, also those in other commands, and `code` in other languages.

    `invalid` text could not be parsed; `too_long` text was not read entirely.
    """

    commands: tuple[ShellCommand, ...] = ()
    code: tuple[str, ...] = ()
    fork_bomb: bool = False
    invalid: bool = False
    too_long: bool = False


def parse_script(
    text: str, context: ShellContext, *, shell: bool = True, code: bool = False
) -> ShellScript:
    """Parse shell text, or a program in another language, whose strings may be commands."""
    reader = _ScriptReader(context)
    if code:
        reader.read_code(text[:MAX_TEXT])
    if shell:
        reader.read_text(text[:MAX_TEXT])
    return ShellScript(
        commands=tuple(reader.commands),
        code=tuple(reader.code),
        fork_bomb=_FORK_BOMB.search(text[:MAX_TEXT]) is not None,
        invalid=reader.invalid,
        too_long=reader.too_long or len(text) > MAX_TEXT,
    )


def strip_comments(text: str) -> str:
    """Remove comments, which could address the reader of a command instead of the shell."""
    source = text.encode("utf-8", "replace")
    spans = [
        (comment.start_byte, comment.end_byte)
        for comment in _comments(_parser().parse(source).root_node)
    ]
    for start, end in sorted(spans, reverse=True):
        source = source[:start] + source[end:]
    return source.decode("utf-8", "replace").strip()


def _comments(node: "Node") -> "Iterator[Node]":
    for child in node.children:
        if child.type == "comment":
            yield child
        yield from _comments(child)


@cache
def _parser() -> "Parser":
    import tree_sitter_bash  # noqa: PLC0415 - slow to import
    from tree_sitter import Language, Parser  # noqa: PLC0415 - likewise

    return Parser(Language(tree_sitter_bash.language()))


_NO_INPUT = ShellCommand()


class _ScriptReader:
    def __init__(self, context: ShellContext) -> None:
        self._home = context.home
        self._folder: str = context.folder
        self._variables = {"HOME": context.home, "PWD": context.folder, "IFS": " ", "@": ""}
        self._source = b""
        self._depth = self._steps = 0
        self.commands: list[ShellCommand] = []
        self.code: list[str] = []
        self.invalid = self.too_long = False

    def read_text(self, text: str) -> None:
        """Read shell text; variables set in it do not outlast it."""
        if self._depth >= MAX_DEPTH:
            self.too_long = True
            return
        outer = self._source, self._folder, self._variables
        text = text.replace("\\\n", "").replace("\x00", "")
        self._source, self._variables = text.encode("utf-8", "replace"), dict(self._variables)
        root = _parser().parse(self._source).root_node
        broken = root.has_error
        self._depth += 1
        try:
            self._visit(root, _NO_INPUT)
        except RecursionError:
            broken = self.too_long = True
        if broken:
            self._read_lines(text)
            self.invalid |= self._depth == 1
        self._depth -= 1
        self._source, self._folder, self._variables = outer

    def read_code(self, code: str) -> None:
        """Read the strings of a program in another language."""
        self.code.append(code)
        for text in string_literals(code):
            self.read_text(text)

    def _read_lines(self, text: str) -> None:
        """Look for commands line by line in text that does not parse."""
        for line in re.split(r"[;&|\n()]+", text):
            if words := _split_words(line):
                self._add(words, _NO_INPUT)

    def _visit(self, node: "Node", feed: ShellCommand) -> str | None:  # noqa: PLR0911 - one for each kind of node
        """Visit a node and return what it prints, if known."""
        self._steps += 1
        if self._steps > MAX_STEPS or len(self.commands) >= MAX_COMMANDS:
            self.too_long = True
            return None
        match node.type:
            case "command" | "command_name" | "declaration_command":
                return self._command(node, feed)
            case "pipeline":
                return self._pipe(node.named_children, feed)
            case "redirected_statement":
                return self._redirected(node, feed)
            case "variable_assignment":
                self._assign(node)
                return ""
            case "for_statement":
                # The loop body is read once, with all values.
                values = node.children_by_field_name("value")
                words = [word for value in values for word in self._words(value)]
                for name in node.children_by_field_name("variable"):
                    self._variables[self._text(name)] = " ".join(words) or UNKNOWN
                return self._visit_all(node, feed)
            case "subshell" | "command_substitution" | "process_substitution":
                folder, variables = self._folder, dict(self._variables)
                output = self._visit_all(node, feed)
                self._folder, self._variables = folder, variables
                return output
            case _:
                return self._visit_all(node, feed)

    def _visit_all(self, node: "Node", feed: ShellCommand) -> str | None:
        outputs = [
            self._visit(child, feed) for child in node.named_children if child.type not in _SKIPPED
        ]
        return None if None in outputs else "".join(filter(None, outputs))

    def _pipe(self, stages: "Sequence[Node]", feed: ShellCommand) -> str | None:
        output: str | None = None
        for number, stage in enumerate(stages):
            output = self._visit(stage, ShellCommand(stdin=output, piped=True) if number else feed)
        return output

    def _redirected(self, node: "Node", feed: ShellCommand) -> str | None:
        body = node.child_by_field_name("body")
        rest: list[Node] = []
        for one in node.children_by_field_name("redirect"):
            feed = self._redirect(one, feed)
            # A heredoc stands between its command and the rest of the pipeline.
            rest += [child for child in one.named_children if child.type in {"pipeline", "command"}]
        output = self._visit(body, feed) if body else self._add([], feed)
        for one in rest:
            output = self._pipe([one], ShellCommand(stdin=output, piped=True))
        return output

    def _redirect(self, node: "Node", feed: ShellCommand) -> ShellCommand:
        if node.type == "herestring_redirect":
            words = [word for child in node.named_children for word in self._words(child)]
            return structs.replace(feed, stdin=" ".join(words), piped=True)
        if node.type == "heredoc_redirect":
            bodies = [child for child in node.named_children if child.type == "heredoc_body"]
            for one in node.named_children:
                feed = self._redirect(one, feed) if one.type == "file_redirect" else feed
            text = "".join(self._joined(body, quoted=True) for body in bodies)
            if not re.search(r"<<-?\s*['\"\\]", self._text(node)):
                self._read_backticks(text)
            return structs.replace(feed, stdin=text, piped=True)
        paths = [w for one in node.children_by_field_name("destination") for w in self._words(one)]
        feed = structs.replace(feed, argv=(*feed.argv, *paths[1:]))
        if any(">" in child.type for child in node.children if not child.is_named):
            return structs.replace(feed, targets=(*feed.targets, *paths[:1]))
        return structs.replace(feed, sources=(*feed.sources, *paths[:1]), piped=True)

    def _assign(self, node: "Node") -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return
        called, more = self._text(name), any(child.type == "+=" for child in node.children)
        if value is not None and value.type == "array":
            text = " ".join(word for child in value.named_children for word in self._words(child))
        else:
            text = "" if value is None else self._value(value)
        if len(text) > MAX_VALUE:
            text, self.too_long = UNKNOWN, True
        self._variables[called] = self._variables.get(called, "") + text if more else text

    def _command(self, node: "Node", feed: ShellCommand) -> str | None:
        words: list[str] = []
        for child in node.children if node.type != "command_name" else [node]:
            if child.type == "variable_assignment":
                self._assign(child)
            elif child.type.endswith("_redirect"):
                feed = self._redirect(child, feed)
            elif child.type == "command_name":
                words += [word for one in child.children for word in self._words(one)]
            elif child.is_named or child.type in {"export", "declare", "typeset", "local"}:
                words += self._words(child)
        return self._add(words, feed)

    def _add(self, words: list[str], feed: ShellCommand) -> str | None:
        """Add a command and those it runs; return what it prints, if known."""
        found = structs.replace(feed, argv=(*words, *feed.argv), folder=self._folder)
        words = list(found.argv)
        if len(self.commands) >= MAX_COMMANDS or self._depth > MAX_DEPTH:
            self.too_long = True
            return None
        self.commands.append(found)
        if words[:1] in (["cd"], ["pushd"]):
            target = next((word for word in words[1:] if not word.startswith("-")), self._home)
            self._folder = posixpath.join(self._folder, target)
            self._variables["PWD"] = self._folder
        if words:
            self._add_inner(found)
        return _predict_output(words, feed.stdin, self._folder)

    def _add_inner(self, found: ShellCommand) -> None:
        if INTERPRETERS.match(found.name):
            for code in code_arguments(found):
                self.read_code(code)
        for text in shell_texts(found):
            self.read_text(text)
        self._depth += 1
        for argv in wrapped_commands(found):
            self._add(list(argv), ShellCommand(stdin=found.stdin, piped=found.piped))
        self._depth -= 1

    def _words(self, node: "Node") -> list[str]:
        """Return the words of one node: none, one or several."""
        value, text = self._value(node), self._text(node)
        if node.type in _QUOTED:
            return value.split(" ") if "[@]" in text else [value]
        loose = node.type in _EXPANDED or any(child.type in _EXPANDED for child in node.children)
        split = value.split() if loose else [value]
        return [brace for word in split for brace in _expand_braces(word)]

    def _value(self, node: "Node") -> str:  # noqa: PLR0911 - one for each kind of node
        text = self._text(node)
        match node.type:
            case "raw_string":
                return text[1:-1]
            case "ansi_c_string":
                return _decode_escapes(text[2:-1])
            case "string" | "translated_string":
                return self._joined(node, quoted=True).removeprefix("$").strip('"')
            case "simple_expansion" | "expansion":
                self._visit_all(node, _NO_INPUT)
                self._read_backticks(text)
                return self._expand(text)
            case "command_substitution" | "process_substitution":
                output = self._visit(node, _NO_INPUT)
                return UNKNOWN if output is None else output.rstrip("\n")
            case "arithmetic_expansion":
                self._visit_all(node, _NO_INPUT)
                return UNKNOWN
            case "concatenation" | "command_name":
                return self._joined(node, quoted=False)
            case _:
                self._visit_all(node, _NO_INPUT)
                return re.sub(r"\\(.)", r"\1", re.sub(r"^~(\w*)(?=/|$)", self._home_of, text))

    def _read_backticks(self, text: str) -> None:
        """Read commands that the parser does not report everywhere."""
        for found in _BACKTICKS.finditer(text):
            self.read_text(found[1])

    def _home_of(self, found: re.Match[str]) -> str:
        name = found[1]
        return posixpath.join("/home" if name != "root" else "/", name) if name else self._home

    def _expand(self, text: str) -> str:
        """Return the value of `$X`, `${X}` or `${X:-default}`."""
        found = _EXPANSION.fullmatch(text)
        if found is None or (found["rest"] and not found["how"]):
            return UNKNOWN
        value = self._variables.get(found["name"], UNKNOWN)
        missing = value in {"", UNKNOWN} and found["how"] and "?" not in found["how"]
        return found["rest"].strip("\"'") if missing and "$" not in found["rest"] else value

    def _joined(self, node: "Node", *, quoted: bool) -> str:
        """Join the parts of a word with the text between them."""
        pieces: list[str] = []
        at = node.start_byte
        for child in node.named_children:
            pieces.append(self._literal(at, child.start_byte, quoted=quoted))
            inside = child.type in {"string_content", "heredoc_content"}
            whole = self._literal(child.start_byte, child.end_byte, quoted=True)
            pieces.append(whole if inside else self._value(child))
            at = child.end_byte
        pieces.append(self._literal(at, node.end_byte, quoted=quoted))
        return "".join(pieces)

    def _literal(self, start: int, end: int, *, quoted: bool) -> str:
        text = self._source[start:end].decode("utf-8", "replace")
        return re.sub(r'\\([$`"\\])' if quoted else r"\\(.)", r"\1", text)

    def _text(self, node: "Node") -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _split_words(text: str) -> list[str]:
    """Split like a shell, or at spaces where quotes do not match."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _decode_escapes(text: str) -> str:
    """Decode the inside of `$'…'`, or a printf format."""
    try:
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape")
    except UnicodeDecodeError:
        return UNKNOWN


def _expand_braces(word: str) -> list[str]:
    """Expand one list in braces: `{a,b}c` is two words."""
    found = re.search(r"\{([^{},]*(?:,[^{},]*)+)\}", word)
    if found is None:
        return [word]
    return [word[: found.start()] + one + word[found.end() :] for one in found[1].split(",")]


def _predict_output(words: Sequence[str], stdin: str | None, folder: str) -> str | None:  # noqa: PLR0911 - one for each command
    """Predict what the plainest commands print; None if unknown."""
    match words:
        case ["echo", *rest]:
            shown = " ".join(one for one in rest if not re.fullmatch(r"-[neE]+", one))
            return None if "\\" in shown else f"{shown}\n"
        case ["printf", "%s" | "%s\\n", *rest]:
            return "\n".join(rest)
        case ["printf", text] if "%" not in text:
            return _decode_escapes(text)
        case ["cat"] | ["tee", *_]:
            return stdin
        case ["pwd", *_]:
            return posixpath.normpath(folder)
        case ["true" | ":" | "cd", *_]:
            return ""
        case _:
            return None
