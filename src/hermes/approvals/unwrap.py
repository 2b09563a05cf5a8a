"""Every command that a text would run, also those that it hands to other programs to run."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from hermes.approvals.handed import handed
from hermes.approvals.script import Found, Place, Reading, read_script
from hermes.approvals.values import ansi, listed
from hermes.approvals.words import INDEXED

DEPTH = 6
MOST = 4000

SHELLS = listed("sh bash dash zsh ksh ash fish mksh rbash yash csh tcsh busybox-sh pwsh")
EDITORS = listed("vim vi nvim view gvim rvim vimdiff ex ed gdb lldb less more man")
CALLERS = listed("nc ncat netcat socat")
_ASIDE = re.compile(
    r"(?:^|[:\s+]|^-c|--cmd=?)(?:!|shell\s|sh\s|system\s)\s*(?P<text>.+)", re.DOTALL
)
_PROXY = re.compile(r"(?:-o)?(?:ProxyCommand|LocalCommand|KnownHostsCommand)[=\s]+(.+)",
                    re.IGNORECASE | re.DOTALL)  # fmt: skip
_EXEC = re.compile(r"(?:EXEC|SYSTEM):(.+)", re.IGNORECASE | re.DOTALL)
_SED = re.compile(
    r"(?:^|[;{\n])\s*(?:(?:\d+|\$|/(?:[^/\\]|\\.)*/),?){0,2}\s*!?\s*e\s+(?P<text>[^\n]+)"
)
"""Lines of a program for sed that have a command run."""
_RECIPE = re.compile(r"^(?:\t|[^\n#=]*:[^\n;]*;)[@+-]*(.+)$", re.MULTILINE)
INTERPRETERS = re.compile(
    r"(python[\d.]*|pypy3?|perl|ruby|node|nodejs|deno|bun|php|lua(jit)?|[gmn]?awk|tclsh|expect"
    r"|emacs|guile|Rscript|R|julia|osascript|octave)$"
)
_JOINED = re.compile(
    r"-(?:[a-zA-Z]{0,8}[ecrE]|-(?:eval|print|execute)=?)(?P<code>.*\W.*)", re.DOTALL
)
_SET = re.compile(r"\w+=(.* .*)", re.DOTALL)
_PERLISH = re.compile(r"(?:\bq[qxw]?|%[xwWqQ]?)\s*(?:\(([^()]*)\)|\{([^{}]*)\}|\[([^\[\]]*)\])")
_CHAIN = re.compile(r"(['\"])\s*\+\s*\1")
_STDIN = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_TOLD = re.compile(
    r"(?:--(?:run|command|call|exec|eval|rsh|to-command|use-compress-program|checkpoint-action)"
    r"|-[cexIF])(?:=(?:exec=)?(?P<text>.+))?", re.DOTALL
)  # fmt: skip
_SETTING = re.compile(r"[\w-]+\.[\w.-]*=!?(?P<text>.+)", re.DOTALL)
_TELLERS = listed("nix-shell npx npm pnpm git tar bsdtar rsync capsh xterm screen tmux hyperfine")
"""Programs that take shell text as the value of an option, or as one word."""
_CRON = re.compile(r"^[ \t]*(?:@\w+|(?:[\d*/,-]+[ \t]+){4}[\w*/,-]+)[ \t]+(.+)$", re.MULTILINE)
Text = tuple[str, Sequence[str] | None]
"""What is run, and what it is given; None where it is given what its surroundings are."""
_LITERAL = re.compile(r"'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"|`([^`]*)`", re.DOTALL)
_SPLIT = re.compile(r"\[([^\[\]]*)\]|\(([^()]*)\)")


class Whole(Struct, frozen=True, kw_only=True):
    """`code` is what is given to interpreters of other languages; of an `overlong` text not all
    was looked at.
    """

    found: tuple[Found, ...]
    code: tuple[str, ...] = ()
    bomb: bool = False
    broken: bool = False
    overlong: bool = False


class _Gathering:
    def __init__(self, place: Place) -> None:
        self._place = place
        self.found: list[Found] = []
        self.code: list[str] = []
        self.bomb = False
        self.overlong = False

    def take(self, reading: Reading, depth: int) -> None:
        self.bomb |= reading.bomb
        self.overlong |= reading.overlong
        for one in reading.found:
            self._take_one(one, depth)

    def _take_one(self, one: Found, depth: int) -> None:
        if len(self.found) >= MOST:
            self.overlong = True
            return
        self.found.append(one)
        if depth >= DEPTH or not one.argv:
            return
        place = Place(one.folder, self._place.home)
        for text, given in _shell_texts(one) if one.name in SHELLS else self._plain(one):
            self.take(read_script(text, place, _with_given(one.known, given)), depth + 1)
        for inner in handed(one):
            self._take_one(inner, depth + 1)

    def _plain(self, one: Found) -> Iterator[Text]:
        for text in self._texts(one):
            yield text, None

    def _texts(self, one: Found) -> Iterator[str]:
        """Shell text that a command which is no shell would have run."""
        name, args = one.name, one.argv[1:]
        if name in _INDEXING:
            yield from (found["text"] for word in args if (found := INDEXED.match(word)))
        elif name in {"eval", "trap", "alias"}:
            yield " ".join(args) if name == "eval" else "\n".join(_behind_equals(args))
        elif name in {"source", "."}:
            yield from (word for word in (*args, one.fed or "") if " " in word or "\n" in word)
        elif name in {"su", "runuser", "script", "flock", "watch", "parallel", "ssh", "wsl"}:
            yield from _given_text(name, args)
        elif name in {"at", "batch", "crontab"}:
            fed = one.fed or ""
            yield from _CRON.findall(fed) if name == "crontab" else [fed]
        elif name in _TELLERS:
            yield from _told(name, args)
        elif name in {*EDITORS, *CALLERS, "make", "gmake", "sed", "gsed"}:
            yield from _aside(name, one)
        elif INTERPRETERS.match(name):
            yield from self._foreign(one)

    def _foreign(self, one: Found) -> Iterator[str]:
        """What a program in another language has in quotes."""
        args = one.argv[1:]
        code = [*_code(args), one.fed or ""]
        self.code += code
        for text in code:
            yield from _literals(text)
        yield from code if one.name in {"tclsh", "expect"} else ()
        yield from (found[1] for word in args if (found := _SET.fullmatch(word)))


def every_call(code: str, place: Place) -> Whole:
    """A program in another language: its strings may be commands."""
    gathering = _Gathering(place)
    for text in _literals(code):
        gathering.take(read_script(text, place), 1)
    return Whole(found=tuple(gathering.found), code=(code,), overlong=gathering.overlong)


def joined(one: Whole, other: Whole) -> Whole:
    """Of a text that may be read in two ways."""
    return Whole(
        found=one.found + other.found,
        code=one.code + other.code,
        bomb=one.bomb or other.bomb,
        broken=one.broken or other.broken,
        overlong=one.overlong or other.overlong,
    )


def every_command(text: str, place: Place) -> Whole:
    gathering = _Gathering(place)
    reading = read_script(text, place)
    gathering.take(reading, 0)
    return Whole(
        found=tuple(gathering.found),
        code=tuple(gathering.code),
        bomb=gathering.bomb,
        broken=reading.broken,
        overlong=gathering.overlong,
    )


def _aside(name: str, one: Found) -> Iterator[str]:
    """What programs run that are there for something else."""
    args = one.argv[1:]
    if name in EDITORS:
        yield from (found["text"] for word in args if (found := _ASIDE.search(word)))
    elif name in {"sed", "gsed"}:
        yield from (found["text"] for word in args for found in _SED.finditer(word))
    elif name in CALLERS:
        yield from (found[1] for word in args if (found := _EXEC.match(word)))
        for word, value in pairwise(args):
            if re.fullmatch(r"-\w*[ec]|--exec|--sh-exec", word):
                yield value
    else:
        for text in (*args, one.fed or ""):
            yield from _RECIPE.findall(text) if "\n" in text or ";" in text else ()


_INDEXING = listed("test [ let printf declare typeset local export readonly unset read mapfile")


def _with_given(known: Mapping[str, str], given: Sequence[str] | None) -> Mapping[str, str]:
    """The variables of a shell that was given these words; the first is its name."""
    if given is None:
        return known
    kept = {name: value for name, value in known.items() if not name.isdecimal()}
    numbered = {str(number): word for number, word in enumerate(given)}
    return kept | numbered | {"@": " ".join(given[1:]), "#": str(max(len(given) - 1, 0))}


def _shell_texts(one: Found) -> Iterator[Text]:
    args = one.argv[1:]
    yield from _shell_text(args)
    names = [word for word in args if not word.startswith(("-", "+"))]
    if one.fed is None:
        return
    if any(re.fullmatch(r"-[A-Za-z]*s[A-Za-z]*", word) for word in args):
        yield one.fed, [one.name, *names]
    elif not names or names[0] in _STDIN:
        yield one.fed, names or [one.name]


def _shell_text(args: Sequence[str]) -> Iterator[Text]:
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
    # `bash <(echo …)` reads a file whose text is known here.
    yield from ((word, []) for word in args[:2] if " " in word or "\n" in word)


def _told(name: str, args: Sequence[str]) -> Iterator[str]:
    """Options whose value is shell text, or a program with its words."""
    for word, value in zip(args, [*args[1:], ""], strict=False):
        found = _TOLD.fullmatch(word)
        # What git is told to look for is no command.
        if found and (name != "git" or word.startswith(("-x", "--exec"))):
            yield found["text"] or (value if " " in value else "")
        if name == "git" and (setting := _SETTING.match(word)):
            yield setting["text"]
        elif name in {"tmux", "screen", "hyperfine"} and " " in word:
            yield word


def _code(args: Sequence[str]) -> Iterator[str]:
    for word in args:
        if not word.startswith("-"):
            yield word
        elif found := _JOINED.fullmatch(word):
            yield found["code"]


def _option_text(args: Sequence[str]) -> Iterator[str]:
    for number, word in enumerate(args[:-1]):
        if word in {"-c", "--command", "-lc", "-qc"}:
            yield args[number + 1]
    yield from (word.partition("=")[2] for word in args if word.startswith("--command="))


def _given_text(name: str, args: Sequence[str]) -> Iterator[str]:
    yield from _option_text(args)
    if name in {"ssh", "parallel", "watch", "flock"}:
        yield from (found[1] for word in args if (found := _PROXY.fullmatch(word)))
        items = args[args.index(":::") + 1 :] if ":::" in args else ()
        for word in args:
            if " " in word:
                yield word
                yield from (word.replace("{}", item) for item in items[:32] if "{}" in word)


def _behind_equals(args: Sequence[str]) -> list[str]:
    return [word.partition("=")[2] or word for word in args]


def _literals(code: str) -> Iterator[str]:
    """Strings in foreign code may be commands, and so may lists of them."""
    if "+" in code and (chained := _CHAIN.sub("", code)) != code:
        code = f"{code}\n{chained}"
    for found in _PERLISH.finditer(code) if "q" in code or "%" in code else ():
        yield next((one for one in found.groups() if one), "")
    for found in _LITERAL.finditer(code):
        text = next((one for one in found.groups() if one), "")
        text = ansi(text) if "\\" in text else text
        if " " in text or "\t" in text or text in {"reboot", "poweroff", "halt"}:
            yield text
    for found in _SPLIT.finditer(code):
        inside = found[1] or found[2] or ""
        words = ["".join(filter(None, one.groups())) for one in _LITERAL.finditer(inside)]
        if len(words) > 1:
            yield " ".join(words)
