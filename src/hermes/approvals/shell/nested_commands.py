"""Collect every command a script would run, including those run through other programs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from hermes.approvals.shell.expansion import decode_escapes, word_set
from hermes.approvals.shell.parser import ParsedCommand, ParsedScript, ShellContext, parse_script
from hermes.approvals.shell.words import INDEXED_SUBSTITUTION
from hermes.approvals.shell.wrappers import wrapped_commands

MAX_DEPTH = 6
MAX_COMMANDS = 4000

SHELLS = word_set("sh bash dash zsh ksh ash fish mksh rbash yash csh tcsh busybox-sh pwsh")
EDITORS = word_set("vim vi nvim view gvim rvim vimdiff ex ed gdb lldb less more man")
SOCKET_TOOLS = word_set("nc ncat netcat socat")
_EDITOR_COMMAND = re.compile(
    r"(?:^|[:\s+]|^-c|--cmd=?)(?:!|shell\s|sh\s|system\s)\s*(?P<text>.+)", re.DOTALL
)
_SSH_COMMAND = re.compile(r"(?:-o)?(?:ProxyCommand|LocalCommand|KnownHostsCommand)[=\s]+(.+)",
                    re.IGNORECASE | re.DOTALL)  # fmt: skip
_SOCAT_EXEC = re.compile(r"(?:EXEC|SYSTEM):(.+)", re.IGNORECASE | re.DOTALL)
_SED_EXEC = re.compile(
    r"(?:^|[;{\n])\s*(?:(?:\d+|\$|/(?:[^/\\]|\\.)*/),?){0,2}\s*!?\s*e\s+(?P<text>[^\n]+)"
)
"""Lines of a sed program that run a command."""
_MAKE_RECIPE = re.compile(r"^(?:\t|[^\n#=]*:[^\n;]*;)[@+-]*(.+)$", re.MULTILINE)
INTERPRETERS = re.compile(
    r"(python[\d.]*|pypy3?|perl|ruby|node|nodejs|deno|bun|php|lua(jit)?|[gmn]?awk|tclsh|expect"
    r"|emacs|guile|Rscript|R|julia|osascript|octave)$"
)
_CODE_OPTION = re.compile(
    r"-(?:[a-zA-Z]{0,8}[ecrE]|-(?:eval|print|execute)=?)(?P<code>.*\W.*)", re.DOTALL
)
_VARIABLE_ARGUMENT = re.compile(r"\w+=(.* .*)", re.DOTALL)
_QUOTE_OPERATOR = re.compile(
    r"(?:\bq[qxw]?|%[xwWqQ]?)\s*(?:\(([^()]*)\)|\{([^{}]*)\}|\[([^\[\]]*)\])"
)
_STRING_CONCATENATION = re.compile(r"(['\"])\s*\+\s*\1")
_STDIN = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_COMMAND_OPTION = re.compile(
    r"(?:--(?:run|command|call|exec|eval|rsh|to-command|use-compress-program|checkpoint-action)"
    r"|-[cexIF])(?:=(?:exec=)?(?P<text>.+))?", re.DOTALL
)  # fmt: skip
_GIT_SETTING = re.compile(r"[\w-]+\.[\w.-]*=!?(?P<text>.+)", re.DOTALL)
_COMMAND_OPTION_PROGRAMS = word_set(
    "nix-shell npx npm pnpm git tar bsdtar rsync capsh xterm screen tmux hyperfine"
)
"""Programs that take shell text as an option value or as one word."""
_CRON_LINE = re.compile(r"^[ \t]*(?:@\w+|(?:[\d*/,-]+[ \t]+){4}[\w*/,-]+)[ \t]+(.+)$", re.MULTILINE)
_INDEXING_BUILTINS = word_set(
    "test [ let printf declare typeset local export readonly unset read mapfile"
)
ShellText = tuple[str, Sequence[str] | None]
"""Shell text and its arguments; None where it inherits those around it."""
_LITERAL = re.compile(r"'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"|`([^`]*)`", re.DOTALL)
_STRING_LIST = re.compile(r"\[([^\[\]]*)\]|\(([^()]*)\)")


class CommandAnalysis(Struct, frozen=True, kw_only=True):
    """`code` is passed to other interpreters; `too_long` text was not analyzed entirely."""

    commands: tuple[ParsedCommand, ...]
    code: tuple[str, ...] = ()
    fork_bomb: bool = False
    invalid: bool = False
    too_long: bool = False


class _CommandCollector:
    def __init__(self, context: ShellContext) -> None:
        self._context = context
        self.found: list[ParsedCommand] = []
        self.code: list[str] = []
        self.bomb = False
        self.overlong = False

    def add_script(self, script: ParsedScript, depth: int) -> None:
        self.bomb |= script.fork_bomb
        self.overlong |= script.too_long
        for one in script.commands:
            self._add_command(one, depth)

    def _add_command(self, one: ParsedCommand, depth: int) -> None:
        if len(self.found) >= MAX_COMMANDS:
            self.overlong = True
            return
        self.found.append(one)
        if depth >= MAX_DEPTH or not one.argv:
            return
        context = ShellContext(one.folder, self._context.home)
        plain = ((text, None) for text in self._texts(one))
        for text, given in _shell_inputs(one) if one.name in SHELLS else plain:
            variables = _with_arguments(one.variables, given)
            self.add_script(parse_script(text, context, variables), depth + 1)
        for inner in wrapped_commands(one):
            self._add_command(inner, depth + 1)

    def _texts(self, one: ParsedCommand) -> Iterator[str]:
        """Shell text that a command other than a shell would run."""
        name, args = one.name, one.argv[1:]
        if name in _INDEXING_BUILTINS:
            yield from (
                found["text"] for word in args if (found := INDEXED_SUBSTITUTION.match(word))
            )
        elif name in {"eval", "trap", "alias"}:
            values = [word.partition("=")[2] or word for word in args]
            yield " ".join(args) if name == "eval" else "\n".join(values)
        elif name in {"source", "."}:
            yield from (word for word in (*args, one.stdin or "") if " " in word or "\n" in word)
        elif name in {"su", "runuser", "script", "flock", "watch", "parallel", "ssh", "wsl"}:
            yield from _wrapper_texts(name, args)
        elif name in {"at", "batch", "crontab"}:
            fed = one.stdin or ""
            yield from _CRON_LINE.findall(fed) if name == "crontab" else [fed]
        elif name in _COMMAND_OPTION_PROGRAMS:
            yield from _option_commands(name, args)
        elif name in {*EDITORS, *SOCKET_TOOLS, "make", "gmake", "sed", "gsed"}:
            yield from _embedded_commands(name, one)
        elif INTERPRETERS.match(name):
            yield from self._code_strings(one)

    def _code_strings(self, one: ParsedCommand) -> Iterator[str]:
        """The string literals of a program in another language."""
        args = one.argv[1:]
        code = [*_code_arguments(args), one.stdin or ""]
        self.code += code
        for text in code:
            yield from _string_literals(text)
        yield from code if one.name in {"tclsh", "expect"} else ()
        yield from (found[1] for word in args if (found := _VARIABLE_ARGUMENT.fullmatch(word)))


def analyze_code(code: str, context: ShellContext) -> CommandAnalysis:
    """Analyze a program in another language, whose strings may be commands."""
    collector = _CommandCollector(context)
    for text in _string_literals(code):
        collector.add_script(parse_script(text, context), 1)
    return CommandAnalysis(
        commands=tuple(collector.found), code=(code,), too_long=collector.overlong
    )


def merge_analyses(one: CommandAnalysis, other: CommandAnalysis) -> CommandAnalysis:
    """Combine the analyses of a text that can be read in two ways."""
    return CommandAnalysis(
        commands=one.commands + other.commands,
        code=one.code + other.code,
        fork_bomb=one.fork_bomb or other.fork_bomb,
        invalid=one.invalid or other.invalid,
        too_long=one.too_long or other.too_long,
    )


def analyze_script(text: str, context: ShellContext) -> CommandAnalysis:
    collector = _CommandCollector(context)
    script = parse_script(text, context)
    collector.add_script(script, 0)
    return CommandAnalysis(
        commands=tuple(collector.found),
        code=tuple(collector.code),
        fork_bomb=collector.bomb,
        invalid=script.invalid,
        too_long=collector.overlong,
    )


def _embedded_commands(name: str, one: ParsedCommand) -> Iterator[str]:
    """Commands run by programs whose main purpose is something else."""
    args = one.argv[1:]
    if name in EDITORS:
        yield from (found["text"] for word in args if (found := _EDITOR_COMMAND.search(word)))
    elif name in {"sed", "gsed"}:
        yield from (found["text"] for word in args for found in _SED_EXEC.finditer(word))
    elif name in SOCKET_TOOLS:
        yield from (found[1] for word in args if (found := _SOCAT_EXEC.match(word)))
        for word, value in pairwise(args):
            if re.fullmatch(r"-\w*[ec]|--exec|--sh-exec", word):
                yield value
    else:
        for text in (*args, one.stdin or ""):
            yield from _MAKE_RECIPE.findall(text) if "\n" in text or ";" in text else ()


def _with_arguments(known: Mapping[str, str], given: Sequence[str] | None) -> Mapping[str, str]:
    """The variables of a shell with these arguments; the first is its name."""
    if given is None:
        return known
    inherited = {name: value for name, value in known.items() if not name.isdecimal()}
    numbered = {str(number): word for number, word in enumerate(given)}
    return inherited | numbered | {"@": " ".join(given[1:]), "#": str(max(len(given) - 1, 0))}


def _shell_inputs(one: ParsedCommand) -> Iterator[ShellText]:
    args = one.argv[1:]
    yield from _shell_option_texts(args)
    names = [word for word in args if not word.startswith(("-", "+"))]
    if one.stdin is None:
        return
    if any(re.fullmatch(r"-[A-Za-z]*s[A-Za-z]*", word) for word in args):
        yield one.stdin, [one.name, *names]
    elif not names or names[0] in _STDIN:
        yield one.stdin, names or [one.name]


def _shell_option_texts(args: Sequence[str]) -> Iterator[ShellText]:
    for number, word in enumerate(args):
        if re.fullmatch(r"[-+][A-Za-z]*c[A-Za-z]*|--command", word) and number + 1 < len(args):
            rest = list(args[number + 1 :])
            while rest and rest[0].startswith("-"):
                rest.pop(0)
            if rest:
                yield rest[0], rest[1:]
            return
        if word.startswith("--command="):
            yield word.partition("=")[2], []
    # `bash <(echo …)` reads a file whose content is known here.
    yield from ((word, []) for word in args[:2] if " " in word or "\n" in word)


def _option_commands(name: str, args: Sequence[str]) -> Iterator[str]:
    """Commands given as option values: shell text, or a program with its arguments."""
    for word, value in zip(args, [*args[1:], ""], strict=False):
        found = _COMMAND_OPTION.fullmatch(word)
        # Other options of git (search patterns) are not commands.
        if found and (name != "git" or word.startswith(("-x", "--exec"))):
            yield found["text"] or (value if " " in value else "")
        if name == "git" and (setting := _GIT_SETTING.match(word)):
            yield setting["text"]
        elif name in {"tmux", "screen", "hyperfine"} and " " in word:
            yield word


def _code_arguments(args: Sequence[str]) -> Iterator[str]:
    for word in args:
        if not word.startswith("-"):
            yield word
        elif found := _CODE_OPTION.fullmatch(word):
            yield found["code"]


def _command_option_texts(args: Sequence[str]) -> Iterator[str]:
    for number, word in enumerate(args[:-1]):
        if word in {"-c", "--command", "-lc", "-qc"}:
            yield args[number + 1]
    yield from (word.partition("=")[2] for word in args if word.startswith("--command="))


def _wrapper_texts(name: str, args: Sequence[str]) -> Iterator[str]:
    yield from _command_option_texts(args)
    if name in {"ssh", "parallel", "watch", "flock"}:
        yield from (found[1] for word in args if (found := _SSH_COMMAND.fullmatch(word)))
        items = args[args.index(":::") + 1 :] if ":::" in args else ()
        for word in args:
            if " " in word:
                yield word
                yield from (word.replace("{}", item) for item in items[:32] if "{}" in word)


def _string_literals(code: str) -> Iterator[str]:
    """Strings in other languages, and lists of them, that may be commands."""
    if "+" in code and (chained := _STRING_CONCATENATION.sub("", code)) != code:
        code = f"{code}\n{chained}"
    for found in _QUOTE_OPERATOR.finditer(code) if "q" in code or "%" in code else ():
        yield next((one for one in found.groups() if one), "")
    for found in _LITERAL.finditer(code):
        text = next((one for one in found.groups() if one), "")
        text = decode_escapes(text) if "\\" in text else text
        if " " in text or "\t" in text or text in {"reboot", "poweroff", "halt"}:
            yield text
    for found in _STRING_LIST.finditer(code):
        inside = found[1] or found[2] or ""
        words = ["".join(filter(None, one.groups())) for one in _LITERAL.finditer(inside)]
        if len(words) > 1:
            yield " ".join(words)
