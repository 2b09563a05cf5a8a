"""One shell command, and what it runs in turn: wrapped commands, shell text, other languages."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile

from msgspec import Struct

UNKNOWN = "\ufffc"
"""Stands for text that is only known when the command runs; it may also be empty."""


def word_set(names: str) -> frozenset[str]:
    """Split names that are separated by spaces."""
    return frozenset(names.split())


SHELLS = word_set("sh bash dash zsh ksh ash fish mksh rbash yash csh tcsh pwsh")
INTERPRETERS = re.compile(
    r"(python[\d.]*|pypy3?|perl|ruby|node|nodejs|deno|bun|php|lua(jit)?|[gmn]?awk|tclsh|expect"
    r"|emacs|guile|Rscript|R|julia|osascript|octave)$"
)
_WRAPPERS = word_set(
    "sudo doas nice ionice nohup setsid stdbuf time command builtin exec chrt unbuffer strace "
    "ltrace busybox toybox unshare nsenter watch caffeinate xargs parallel systemd-run coproc env "
    "gosu pkexec firejail proot fakeroot prlimit numactl runuser setpriv chronic torify torsocks "
    "proxychains proxychains4 daemonize xterm sshpass entr screen valgrind bwrap tini dumb-init "
    "! { then do else if while until"
)
"""Programs, and keywords of text that does not parse, that run the command after them."""
_WRAPPERS_WITH_OPERAND = word_set("timeout gtimeout chroot taskset flock ssh su-exec setarch at")
_WRAPPER_VERBS = {
    **dict.fromkeys(word_set("uv poetry pdm pipenv hatch rye pixi conda mamba"), ("run", 0)),
    **dict.fromkeys(word_set("npm pnpm yarn bundle mise"), ("exec", 0)),
    **dict.fromkeys(word_set("docker podman nerdctl kubectl oc"), ("exec run", 1)),
}
"""Programs that run a command after a verb, and how many operands precede it."""
_TEXT_RUNNERS = word_set(
    "eval su runuser script flock watch parallel ssh wsl env trap alias tmux screen hyperfine at "
    "batch source . nix-shell npx npm pnpm xterm capsh"
)
"""Programs that take shell text as one word."""
_STDIN_NAMES = frozenset({"-", "/dev/stdin", "/dev/fd/0"})
_COMMAND_OPTION = re.compile(r"[-+][A-Za-z]*c|--(?:command|call|run)|-e")
_ATTACHED_OPTION = re.compile(r"-[A-Za-z]\d+|-I.+")
_FIND_ACTIONS = word_set("-exec -execdir -ok -okdir -x -X --exec")
_LITERAL = re.compile(r"'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"|`([^`]*)`", re.DOTALL)
_STRING_LIST = re.compile(r"\[([^\[\]]*)\]|\(([^()]*)\)")


class ShellCommand(Struct, frozen=True, kw_only=True):
    """One command. `stdin` is its standard input if known; `piped` says whether it has any.

    `targets` and `sources` are the files it writes and reads by redirection.
    """

    argv: tuple[str, ...] = ()
    folder: str = ""
    stdin: str | None = None
    piped: bool = False
    targets: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return posixpath.basename(self.argv[0].rstrip("/")) if self.argv else ""


def shell_texts(found: ShellCommand) -> Iterator[str]:
    """Shell text that a command runs: given as words, options or input."""
    name, args, fed = found.name, found.argv[1:], found.stdin or ""
    if name in SHELLS or name in _TEXT_RUNNERS:
        texts = [value for flag, value in pairwise(args) if _COMMAND_OPTION.fullmatch(flag)]
        yield from dict.fromkeys([*texts, *(arg for arg in args if re.search(r"\s", arg))])
    operands = [arg for arg in args if not arg.startswith(("-", "+"))]
    if name in {"at", "batch", "source", "."} or (
        name in SHELLS and (not operands or operands[0] in _STDIN_NAMES or "-s" in args)
    ):
        yield fed
    elif name == "eval":
        yield " ".join(args)
    elif name == "alias":
        yield from (arg.partition("=")[2] for arg in args)


def code_arguments(found: ShellCommand) -> Iterator[str]:
    """Programs in another language: arguments that are more than a name, and the input."""
    for word in (*found.argv[1:], found.stdin or ""):
        if not word.startswith("--") and re.search(r"[^\w./:@=-]", word):
            yield word


def string_literals(code: str) -> Iterator[str]:
    """Strings in other languages, and lists of them, that may be commands."""
    code = re.sub(r"(['\"])\s*\+\s*\1", "", code)
    for found in _LITERAL.finditer(code):
        text = next((one for one in found.groups() if one), "")
        if " " in text or text in {"reboot", "poweroff", "halt"}:
            yield text
    for found in _STRING_LIST.finditer(code):
        inside = found[1] or found[2] or ""
        words = ["".join(filter(None, one.groups())) for one in _LITERAL.finditer(inside)]
        if len(words) > 1:
            yield " ".join(words)


def wrapped_commands(found: ShellCommand) -> Iterator[Sequence[str]]:
    """Yield the wrapped command; all candidates where options are ambiguous."""
    name, args = found.name, found.argv[1:]
    if name in {"find", "fd"}:
        starts = [n + 1 for n, word in enumerate(args) if word in _FIND_ACTIONS]
        rests = (takewhile(lambda one: one not in {";", "+"}, args[at:]) for at in starts)
        yield from ([UNKNOWN if one == "{}" else one for one in rest] for rest in rests)
    elif name in {"xargs", "parallel"}:
        fed = (found.stdin or "").split()
        for start in _command_starts(args, 0):
            yield [*(arg.replace("{}", " ".join(fed)) for arg in args[start:]), *fed]
    elif name in _WRAPPERS or name in _WRAPPERS_WITH_OPERAND:
        for start in _command_starts(args, int(name in _WRAPPERS_WITH_OPERAND)):
            yield args[start:]
    elif name in _WRAPPER_VERBS:
        verbs, before = _WRAPPER_VERBS[name]
        at = next((n for n, word in enumerate(args[:6]) if word in verbs.split()), len(args))
        for start in _command_starts(args[at + 1 :], before):
            yield args[at + 1 + start :]
    elif INTERPRETERS.match(name) and "-m" in args[:-1]:
        yield args[args.index("-m") + 1 :]


def _command_starts(args: Sequence[str], before: int) -> Iterator[int]:
    """Where the wrapped command may start, after options and `before` operands."""
    operands = 0
    after_option = ambiguous = False
    for number, word in enumerate(args):
        if word.startswith("-") or re.match(r"[A-Za-z_]\w*=", word):
            attached = "=" in word or _ATTACHED_OPTION.fullmatch(word)
            after_option = word.startswith("-") and not attached
            continue
        if operands < before and not after_option:
            operands += 1
            if ambiguous:
                yield number
            continue
        yield number
        if not after_option:
            return
        after_option, ambiguous = False, True
