"""Which command stands behind a word such as sudo, env, xargs or docker, and what it is given."""

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from hermes.approvals.script import Found
from hermes.approvals.values import UNKNOWN, listed

MOST_ITEMS = 32
PREFIXES = {
    **dict.fromkeys(
        listed(
            "sudo doas nice ionice nohup setsid stdbuf time command builtin exec chrt unbuffer "
            "strace ltrace catchsegv busybox toybox unshare nsenter watch caffeinate xargs "
            "parallel systemd-run coproc then do else if while until ! { ( gosu pkexec "
            "firejail proot fakeroot prlimit numactl cgexec trap noglob eatmydata rlwrap xvfb-run "
            "dbus-run-session runuser setpriv linux32 linux64 i386 x86_64 choom chronic torify "
            "torsocks proxychains proxychains4 spawn daemonize xterm sshpass hyperfine entr screen "
            "start-stop-daemon valgrind gtimeout bwrap capsh tsocks "
            "softlimit chpst envdir dumb-init tini"
        ),
        0,
    ),
    **dict.fromkeys(
        listed("timeout chroot taskset flock ssh su-exec at setarch dtach faketime"), 1
    ),
}
"""Programs that run what stands behind their options, and how many words stand before it."""

_RUN = {"run": 0}
_EXEC = {"exec": 0, "x": 0}
_CONTAINED = {"exec": 1, "run": 1}
_SESSION = dict.fromkeys(
    listed("new new-session neww new-window splitw split-window respawn-pane run run-shell"), 0
)
_VERBS: Mapping[str, Mapping[str, int]] = {
    **dict.fromkeys(listed("uv poetry pdm pipenv hatch rye pixi conda mamba"), _RUN),
    **dict.fromkeys(listed("docker podman nerdctl lxc kubectl oc docker-compose"), _CONTAINED),
    **dict.fromkeys(listed("npm pnpm yarn bundle mise asdf"), _EXEC),
    "direnv": {"exec": 1}, "tmux": _SESSION, "perf": {"record": 0, "stat": 0},
}  # fmt: skip
"""Programs that do so behind a word of theirs."""
_LOADER = re.compile(r"ld(-linux[\w.-]*)?\.so[\d.]*|ld-musl[\w.-]*")
_FINDS = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec"})
_ENV = re.compile(r"-[iv0]*([SCu])(.*)", re.DOTALL)
_BLANKS = re.compile(r"\\[_tnrfv]")
_NAMED = re.compile(r"\$\{(\w+)\}")
_WITH = re.compile(r"-[A-Za-z]\d+|-I.+")
"""Options that have their value with them."""
_WHOLE = re.compile(r"-[a-zA-Z]*[0dLl].*|--null|--delimiter.*|--max-lines.*")


def handed(one: Found) -> Iterator[Found]:
    """Where options are in doubt, each."""
    if one.name == "env":
        yield from _environed(one)
        return
    for argv in _behind(one.name, one.argv[1:], one.fed or ""):
        yield _as(one, argv)


def _behind(name: str, args: Sequence[str], fed: str) -> Iterator[Sequence[str]]:
    before = 0 if _LOADER.fullmatch(name) else PREFIXES.get(name)
    if name in {"find", "fd"}:
        yield from _executed(args)
    elif name in {"xargs", "parallel"}:
        for start in _starts(args, 0):
            yield from _filled(args[:start], args[start:], fed)
    elif before is not None:
        for start in _starts(args, before):
            yield args[start:]
    elif name in _VERBS:
        yield from _behind_verb(args, _VERBS[name])


def _as(one: Found, argv: Sequence[str]) -> Found:
    return structs.replace(one, argv=tuple(argv), targets=())


def _behind_verb(args: Sequence[str], verbs: Mapping[str, int]) -> Iterator[Sequence[str]]:
    for number, word in enumerate(args[:6]):
        if word in verbs:
            rest = args[number + 1 :]
            for start in _starts(rest, verbs[word]):
                yield rest[start:]
            return


def _environed(one: Found) -> Iterator[Found]:
    """`env` with all that it may be told before the command."""
    rest, folder, known = list(one.argv[1:]), one.folder, dict(one.known)
    while rest:
        word = rest.pop(0)
        short = _ENV.fullmatch(word)
        name, equals, value = word.partition("=")
        if short or name in {"--split-string", "--chdir", "--unset"}:
            how = short[1] if short else {"-": "u", "s": "S", "c": "C", "u": "u"}[name[2]]
            given = short[2] if short else value
            if not given and not equals and rest:
                given = rest.pop(0)
            if how == "S":
                rest = [*_split(given, known), *rest]
            elif how == "C":
                folder = posixpath.join(folder, given)
        elif word.startswith("-"):
            continue
        elif equals and re.fullmatch(r"\w+", name):
            known[name] = value
        else:
            yield structs.replace(_as(one, [word, *rest]), folder=folder, known=known)
            return


def _split(text: str, known: Mapping[str, str]) -> list[str]:
    """As `env -S` does."""
    text = _NAMED.sub(lambda found: known.get(found[1], ""), _BLANKS.sub(" ", text))
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _filled(options: Sequence[str], base: Sequence[str], fed: str) -> Iterator[Sequence[str]]:
    """The command with what comes in put where it belongs."""
    if options and options[-1] in {"-I", "-d", "-n", "-P", "-L", "-s", "-a"}:
        return
    lines = [line for line in re.split(r"[\n\0]", fed) if line][:MOST_ITEMS]
    mark = _mark(options)
    if mark:
        for line in lines or [UNKNOWN]:
            yield [word.replace(mark, line) for word in base]
        return
    yield [*base, *fed.split()]
    if any(_WHOLE.fullmatch(word) for word in options):
        yield [*base, *lines]


def _mark(options: Sequence[str]) -> str:
    for number, word in enumerate(options):
        if word in {"-i", "--replace"}:
            return "{}"
        if word == "-I":
            return options[number + 1]
        if word.startswith("-I"):
            return word[2:]
        if word.startswith("--replace="):
            return word.partition("=")[2]
    return ""


def _starts(args: Sequence[str], before: int) -> Iterator[int]:
    given = 0
    after_option = doubtful = False
    for number, word in enumerate(args):
        if word.startswith("-") or re.match(r"[A-Za-z_]\w*=", word):
            after_option = word.startswith("-") and "=" not in word and not _WITH.fullmatch(word)
            continue
        if given < before and not after_option:
            given += 1
            if doubtful:
                yield number
            continue
        yield number
        if not after_option:
            return
        after_option, doubtful = False, True


def _executed(args: Sequence[str]) -> Iterator[Sequence[str]]:
    for number, word in enumerate(args):
        if word in _FINDS:
            behind = args[number + 1 :]
            end = next((i for i, one in enumerate(behind) if one in {";", "+", "\\;"}), len(behind))
            yield [UNKNOWN if one == "{}" else one for one in behind[:end]]
