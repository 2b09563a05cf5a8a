"""Every command that a text would run, also those that it hands to other programs to run."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct, structs

from hermes.approvals.script import Found, Place, Reading, read_script
from hermes.approvals.values import UNKNOWN, listed

DEPTH = 6
MOST = 4000

SHELLS = listed("sh bash dash zsh ksh ash fish mksh rbash yash csh tcsh busybox-sh pwsh")
PREFIXES = {
    **dict.fromkeys(
        listed(
            "sudo doas env nice ionice nohup setsid stdbuf time command builtin exec chrt unbuffer "
            "strace ltrace catchsegv busybox toybox unshare nsenter watch caffeinate xargs "
            "parallel systemd-run coproc then do else if while until ! { ( gosu pkexec "
            "firejail proot "
            "fakeroot prlimit numactl cgexec trap noglob eatmydata rlwrap xvfb-run dbus-run-session"
        ),
        0,
    ),
    **dict.fromkeys(listed("timeout chroot taskset flock ssh su-exec at docker-exec"), 1),
}
"""Programs that run what stands behind their options, and how many words stand before it."""

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
INTERPRETERS = re.compile(r"(python[\d.]*|pypy3?|perl|ruby|node|nodejs|deno|bun|php|lua|awk|gawk)$")
_LITERAL = re.compile(r"'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"|`([^`]*)`", re.DOTALL)
_SPLIT = re.compile(r"\[([^\[\]]*)\]")


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
        for text in self._texts(one):
            self.take(read_script(text, Place(one.folder, self._place.home)), depth + 1)
        for argv in _handed(one):
            self._take_one(structs.replace(one, argv=tuple(argv), targets=()), depth + 1)

    def _texts(self, one: Found) -> Iterator[str]:
        """Shell text that the command would have run."""
        name, args = one.name, one.argv[1:]
        if name in SHELLS:
            yield from _shell_text(args)
            if one.fed is not None and not _script_named(args):
                yield one.fed
        elif name in {"eval", "trap", "alias"}:
            yield " ".join(args) if name == "eval" else "\n".join(_behind_equals(args))
        elif name in {"source", "."}:
            yield from (word for word in args if " " in word or "\n" in word)
            yield from [one.fed] if one.fed is not None else []
        elif name in {"su", "runuser", "script", "flock", "watch", "parallel", "ssh", "wsl"}:
            yield from _given_text(name, args)
        elif name in {"at", "batch"} and one.fed is not None:
            yield one.fed
        elif name in {*EDITORS, *CALLERS, "make", "gmake", "sed", "gsed"}:
            yield from _aside(name, one)
        elif INTERPRETERS.match(name):
            code = [word for word in args if not word.startswith("-")] + [one.fed or ""]
            self.code += code
            for text in code:
                yield from _literals(text)


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
    elif one.fed is not None:
        yield from _RECIPE.findall(one.fed)


def _shell_text(args: Sequence[str]) -> Iterator[str]:
    for number, word in enumerate(args):
        if re.fullmatch(r"[-+][A-Za-z]*c[A-Za-z]*|--command", word) and number + 1 < len(args):
            rest = [one for one in args[number + 1 :] if not one.startswith("-")]
            yield from rest[:1]
            return
        if word.startswith("--command="):
            yield word.partition("=")[2]
    # `bash <(echo …)` reads a file whose text is known here.
    yield from (word for word in args[:2] if " " in word or "\n" in word)


def _script_named(args: Sequence[str]) -> bool:
    names = [word for word in args if not word.startswith(("-", "+"))]
    return bool(names) and names[0] not in {"-", "/dev/stdin"}


def _option_text(args: Sequence[str]) -> Iterator[str]:
    for number, word in enumerate(args[:-1]):
        if word in {"-c", "--command", "-lc", "-qc"}:
            yield args[number + 1]
    yield from (word.partition("=")[2] for word in args if word.startswith("--command="))


def _given_text(name: str, args: Sequence[str]) -> Iterator[str]:
    yield from _option_text(args)
    if name in {"ssh", "parallel", "watch", "flock"}:
        yield from (found[1] for word in args if (found := _PROXY.fullmatch(word)))
        yield from (word for word in args if " " in word)


def _behind_equals(args: Sequence[str]) -> list[str]:
    return [word.partition("=")[2] or word for word in args]


def _literals(code: str) -> Iterator[str]:
    """Strings in foreign code may be commands, and so may lists of them."""
    for found in _LITERAL.finditer(code):
        text = next((one for one in found.groups() if one), "")
        if " " in text or text in {"reboot", "poweroff", "halt"}:
            yield text
    for found in _SPLIT.finditer(code):
        words = ["".join(filter(None, one.groups())) for one in _LITERAL.finditer(found[1])]
        if len(words) > 1:
            yield " ".join(words)


def _handed(one: Found) -> Iterator[Sequence[str]]:
    """The commands behind a word such as sudo or xargs; where options are in doubt, each."""
    name, args = one.name, list(one.argv[1:])
    if name in {"find", "fd"}:
        yield from _executed(args)
        return
    if name == "env":
        for number, word in enumerate(args):
            if word in {"-S", "--split-string"} and number + 1 < len(args):
                yield args[number + 1].split()
            elif word.startswith("-S"):
                yield word[2:].split()
    before = PREFIXES.get(name)
    if before is None:
        return
    fed = one.fed.split() if name in {"xargs", "parallel"} and one.fed else []
    for start in _starts(args, before):
        yield [*args[start:], *fed]


def _starts(args: Sequence[str], before: int) -> Iterator[int]:
    given = 0
    after_option = False
    for number, word in enumerate(args):
        if word.startswith("-") or re.match(r"[A-Za-z_]\w*=", word):
            after_option = word.startswith("-") and "=" not in word
            continue
        if given < before and not after_option:
            given += 1
            continue
        yield number
        if not after_option:
            return
        after_option = False


def _executed(args: Sequence[str]) -> Iterator[Sequence[str]]:
    for number, word in enumerate(args):
        if word in {"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec"}:
            behind = args[number + 1 :]
            end = next((i for i, one in enumerate(behind) if one in {";", "+", "\\;"}), len(behind))
            yield [UNKNOWN if one == "{}" else one for one in behind[:end]]
