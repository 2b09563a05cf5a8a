"""Parse shell text into the commands it would run, with their words as far as they are known.

Nothing is run. Words that cannot be known are marked with `UNKNOWN`.
"""

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from hermes.approvals.shell.expansion import UNKNOWN, KnownText, expand_braces, predict_output
from hermes.approvals.shell.words import ShellVariables, WordReader, descendants, last_command

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_COMMANDS = 2000
MAX_TEXT = 1_000_000
MAX_NESTED_LOOP_WORDS = 5
MAX_LOOP_WORDS = 32
"""How many words of a loop are tried; fewer in nested loops."""
MAX_CALL_DEPTH = 8
"""How deep functions and aliases that call others are followed."""
_EXTENDED_GLOB = re.compile(r"[@!+?*]\(([^()\n]*)\)")
_SKIPPED_NODES = frozenset({"comment", "heredoc_body", "heredoc_start", "heredoc_end"})
_PROMPT_VARIABLES = frozenset({"PS0", "PS1", "PS4"})


class ShellContext(Struct, frozen=True):
    """The folder it would run in and the home of `~`; `hermes_home` is the agent's own home."""

    folder: str
    home: str
    hermes_home: str = ""


class ParsedCommand(Struct, frozen=True, kw_only=True):
    """One command. `stdin` is its standard input if known; `piped` says whether it has any.

    `targets` and `sources` are the files it writes and reads by redirection; `variables` are
    those set at that point.
    """

    argv: tuple[str, ...]
    folder: str
    stdin: KnownText = None
    piped: bool = False
    targets: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}

    @property
    def name(self) -> str:
        return posixpath.basename(self.argv[0].rstrip("/")) if self.argv else ""


class ParsedScript(Struct, frozen=True, kw_only=True):
    """A `fork_bomb` is a function that calls itself endlessly; `invalid` text does not parse."""

    commands: tuple[ParsedCommand, ...] = ()
    fork_bomb: bool = False
    invalid: bool = False
    too_long: bool = False


class CommandInput(Struct, frozen=True):
    """Input and redirections; `words` follow a redirection and belong to the command."""

    stdin: KnownText = None
    piped: bool = False
    targets: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


_NO_INPUT = CommandInput()


def parse_script(
    text: str, context: ShellContext, known: Mapping[str, str] | None = None
) -> ParsedScript:
    """Parse with `known` as the initial variables."""
    overlong = len(text) > MAX_TEXT
    text = text[:MAX_TEXT].replace("\\\n", "").replace("\x00", "")
    source = text.encode("utf-8", "replace")
    root = _parser().parse(source).root_node
    walker = _ScriptWalker(source, context, known or {})
    broken = root.has_error
    try:
        walker.visit(root, _NO_INPUT)
    except RecursionError:
        broken = True
    if broken:
        walker.scan_lines(text)
        if (plain := _EXTENDED_GLOB.sub("*", text)) != text:
            walker.scan_lines(plain)
    return ParsedScript(
        commands=tuple(walker.found),
        fork_bomb=walker.bomb or walker.forks_recursively(),
        invalid=broken,
        too_long=overlong or len(walker.found) >= MAX_COMMANDS or walker.known.exceeded,
    )


@cache
def _parser() -> "Parser":
    import tree_sitter_bash  # noqa: PLC0415 - slow to import
    from tree_sitter import Language, Parser  # noqa: PLC0415 - likewise

    return Parser(Language(tree_sitter_bash.language()))


class _ScriptWalker(WordReader):
    def __init__(self, source: bytes, context: ShellContext, known: Mapping[str, str]) -> None:
        base = {"HOME": context.home, "IFS": " ", "@": ""}
        variables = ShellVariables({**base, **known, "PWD": context.folder})
        super().__init__(source, context.home, variables)
        self._folder = context.folder
        self._functions: dict[str, Node] = {}
        self._forks: dict[str, set[str]] = {}
        self._more: dict[int, list[str]] = {}
        self._looping = 0
        self._aliases: dict[str, str] = {}
        self._nested = 0
        self.found: list[ParsedCommand] = []
        self.bomb = False

    def visit(self, node: "Node", feed: CommandInput) -> KnownText:  # noqa: PLR0911 - one for each kind of node
        """Visit a node and return what it prints, if known."""
        if len(self.found) >= MAX_COMMANDS:
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
            case "string" | "raw_string":
                return self._scan_index(self._value(node))
            case "subshell" | "command_substitution" | "process_substitution":
                return self._walk_subshell(node, feed)
            case _:
                return self._visit_all(node.named_children, feed)

    def scan_lines(self, text: str) -> None:
        """Look for commands line by line in text that does not parse."""
        for line in re.split(r"[;&|\n()]+", text):
            spread = [one for word in split_words(line) for one in expand_braces(word)]
            if spread:
                self._add_command(spread, _NO_INPUT)

    def _visit_all(self, nodes: "Sequence[Node]", feed: CommandInput) -> KnownText:
        outputs = [self.visit(node, feed) for node in nodes if node.type not in _SKIPPED_NODES]
        return None if any(one is None for one in outputs) else "".join(filter(None, outputs))

    def _walk_subshell(self, node: "Node", feed: CommandInput) -> KnownText:
        folder, known = self._folder, self.known.snapshot()
        output = self._visit_all(node.named_children, feed)
        self._folder = folder
        self.known.restore_snapshot(known)
        return output

    def _output_of_commands(self, node: "Node") -> KnownText:
        return self._walk_subshell(node, _NO_INPUT)

    def _add_shell_text(self, text: str) -> None:
        self._add_command(["eval", text], _NO_INPUT)

    def _pipeline(self, node: "Node", feed: CommandInput) -> KnownText:
        output: KnownText = None
        for number, child in enumerate(node.named_children):
            output = self.visit(child, CommandInput(output, piped=True) if number else feed)
        return output

    def _redirected(self, node: "Node", feed: CommandInput) -> KnownText:
        body = node.child_by_field_name("body")
        redirects = node.children_by_field_name("redirect")
        for one in redirects:
            feed = self._with_redirect(one, feed)
        more, feed = list(feed.words), structs.replace(feed, words=())
        if body is None:
            output = self._add_command(more, feed)
        else:
            self._more[last_command(body).id] = more
            output = self.visit(body, feed)
        for one in redirects:
            # A heredoc stands between its command and the rest of the pipeline.
            for rest in one.named_children:
                if rest.type in {"pipeline", "command", "list", "redirected_statement"}:
                    output = self._pipe_through(rest, output)
        return output

    def _pipe_through(self, node: "Node", fed: KnownText) -> KnownText:
        stages = node.named_children if node.type == "pipeline" else [node]
        for stage in stages:
            fed = self.visit(stage, CommandInput(fed, piped=True))
        return fed

    def _with_redirect(self, node: "Node", feed: CommandInput) -> CommandInput:
        match node.type:
            case "herestring_redirect":
                words = [word for child in node.named_children for word in self._words(child)]
                return structs.replace(feed, stdin=" ".join(words), piped=True)
            case "heredoc_redirect":
                return self._with_heredoc(node, feed)
            case _:
                return self._file_redirect(node, feed)

    def _with_heredoc(self, node: "Node", feed: CommandInput) -> CommandInput:
        start = next((one for one in node.named_children if one.type == "heredoc_start"), None)
        plain = start is not None and not {*"'\"\\"} & {*self._text(start)}
        for one in node.named_children:
            if one.type == "file_redirect":
                feed = self._file_redirect(one, feed)
        more = [w for one in node.children_by_field_name("argument") for w in self._words(one)]
        feed = structs.replace(feed, words=(*feed.words, *more))
        bodies = [one for one in node.named_children if one.type == "heredoc_body"]
        for one in bodies if plain else ():
            self._add_backticks(self._text(one))
        texts = [self._value(one) if one.named_children else self._text(one) for one in bodies]
        return structs.replace(feed, stdin="".join(texts), piped=True)

    def _file_redirect(self, node: "Node", feed: CommandInput) -> CommandInput:
        first, *others = node.children_by_field_name("destination") or [None]
        paths = [] if first is None else self._words(first)
        more = [w for one in others if one is not None for w in self._words(one)]
        feed = structs.replace(feed, words=(*feed.words, *more))
        if "<>" in self._text(node):
            return structs.replace(feed, targets=(*feed.targets, *paths), piped=True)
        if not any(">" in one.type for one in node.children if not one.is_named):
            inner = [one for one in node.named_children if one.type == "process_substitution"]
            if inner:
                return structs.replace(feed, stdin="\n".join(paths), piped=True)
            return structs.replace(feed, piped=True, sources=(*feed.sources, *paths))
        return structs.replace(feed, targets=(*feed.targets, *paths))

    def _assign(self, node: "Node") -> KnownText:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return ""
        more = any(one.type == "+=" for one in node.children)
        if value is not None and value.type == "array":
            words = [word for child in value.named_children for word in self._words(child)]
            self.known.set_list(self._text(name), words, more=more)
            return ""
        text = "" if value is None else self._value(value)
        self._scan_index(text)
        if name.type == "subscript":
            self._add_backticks(self._text(name))
            key, _, at = self._expanded_text(name).partition("[")
            self.known.set_item(key, at.removesuffix("]"), text)
            return ""
        called = self._text(name)
        self.known.set(called, self.known.get(called) + text if more else text)
        if called in _PROMPT_VARIABLES and ("`" in text or "$(" in text):
            self._add_shell_text(f': "{text}"')
        elif called == "PROMPT_COMMAND" or (called in {"BASH_ENV", "ENV"} and " " in text):
            self._add_shell_text(text)
        return ""

    def _function(self, node: "Node") -> KnownText:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            return ""
        called = self._text(name)
        every = [(one, self._text(one).split()[:1]) for one in descendants(body, "command")]
        itself = [[called], ["$FUNCNAME"], ["${FUNCNAME[0]}"]]
        calls = [one for one, first in every if first in itself]
        piped = [one for one in calls if one.parent is not None and one.parent.type == "pipeline"]
        background = "&" in self._text(body).replace("&&", "").replace(">&", "").replace("&>", "")
        if len(calls) > 1 or piped or (calls and background):
            self.bomb = True
        self._functions[called] = body
        if background:
            self._forks[called] = {first[0] for _, first in every if first}
        self._walk_subshell(body, _NO_INPUT)
        return ""

    def forks_recursively(self) -> bool:
        """Whether functions start each other in the background in a cycle."""
        return any(
            name in self._forks.get(other, ()) for name, calls in self._forks.items()
            for other in calls if other != name
        )  # fmt: skip

    def _call(self, words: Sequence[str], feed: CommandInput) -> None:
        """Walk the body of a called function or alias with the arguments given here."""
        name, given = words[0], list(words[1:])
        if self._nested >= MAX_CALL_DEPTH:
            return
        self._nested += 1
        if (body := self._functions.get(name)) is not None:
            before = self.known.arguments()
            self.known.set_arguments(given)
            self.visit(body, feed)
            # Variables it sets persist; its arguments do not.
            self.known.set_arguments(before)
        elif (value := self._aliases.get(name)) is not None:
            self._add_command([*split_words(value), *given], feed)
        self._nested -= 1

    def _loop(self, node: "Node") -> KnownText:
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        values = [w for one in node.children_by_field_name("value") for w in self._words(one)]
        if name is None or body is None:
            return self._visit_all(node.named_children, _NO_INPUT)
        self._looping += 1
        for number, value in enumerate(values[:MAX_LOOP_WORDS] or [UNKNOWN]):
            many = self._looping > 1 or len(self.found) > MAX_COMMANDS // 4
            if number >= MAX_NESTED_LOOP_WORDS and many:
                break
            self.known.set(self._text(name), value)
            self.visit(body, _NO_INPUT)
        self._looping -= 1
        return None

    def _command(self, node: "Node", feed: CommandInput) -> KnownText:
        words: list[str] = []
        end = -1
        for child in node.children if node.type != "command_name" else [node]:
            if child.type == "variable_assignment":
                self._assign(child)
            elif child.type.endswith("_redirect"):
                feed = self._with_redirect(child, feed)
            elif child.type == "command_name":
                words += [word for one in child.children for word in self._words(one)]
            elif child.is_named or child.type in {"export", "declare", "typeset", "local"}:
                more = self._words(child)
                if child.start_byte == end and words and more:
                    words[-1] += more.pop(0)
                words += more
            end = child.end_byte if child.is_named else -1
        words += [*self._more.get(node.id, ()), *feed.words]
        return self._add_command(words, structs.replace(feed, words=()) if feed.words else feed)

    def _add_command(self, words: list[str], feed: CommandInput) -> KnownText:
        if words or feed.targets or feed.sources:
            self.found.append(
                ParsedCommand(
                    argv=tuple(words),
                    folder=self._folder,
                    stdin=feed.stdin,
                    piped=feed.piped,
                    targets=feed.targets,
                    sources=feed.sources,
                    variables=self.known.snapshot(),
                )
            )
        match words:
            case ["cd" | "pushd", *rest]:
                folders = [one for one in rest if not one.startswith("-")]
                back = [self.known.get("OLDPWD")] if "-" in rest else []
                target = (folders or [one for one in back if one] or [self._home])[0]
                self._folder = posixpath.join(self._folder, target)
                self.known.set_folder(self._folder)
            case ["pwd", *_]:
                return posixpath.normpath(self._folder)
            case ["alias", *rest]:
                self._aliases |= {one.partition("=")[0]: one.partition("=")[2] for one in rest}
            case [name, *_] if name in self._functions or name in self._aliases:
                self._call(words, feed)
            case _:
                self.known.record_command(words, feed.stdin)
        return predict_output(words, feed.stdin)


def split_words(text: str) -> list[str]:
    """Split like a shell, or at spaces where quotes do not match."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def strip_comments(text: str) -> str:
    """Remove comments, which could address the reader of a command instead of the shell."""
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
