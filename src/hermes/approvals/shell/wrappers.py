"""Find the command behind a wrapper such as sudo, env, xargs or docker, with its arguments."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from hermes.approvals.shell.expansion import UNKNOWN, word_set
from hermes.approvals.shell.parser import ParsedCommand, split_words

MAX_ITEMS = 32
WRAPPER_PROGRAMS = {
    **dict.fromkeys(
        word_set(
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
        word_set("timeout chroot taskset flock ssh su-exec at setarch dtach faketime"), 1
    ),
}
"""Programs that run the command after their options, and how many operands precede it."""

_RUN_VERB = {"run": 0}
_EXEC_VERBS = {"exec": 0, "x": 0}
_CONTAINER_VERBS = {"exec": 1, "run": 1}
_TMUX_VERBS = dict.fromkeys(
    word_set("new new-session neww new-window splitw split-window respawn-pane run run-shell"), 0
)
_WRAPPER_VERBS: Mapping[str, Mapping[str, int]] = {
    **dict.fromkeys(word_set("uv poetry pdm pipenv hatch rye pixi conda mamba"), _RUN_VERB),
    **dict.fromkeys(
        word_set("docker podman nerdctl lxc kubectl oc docker-compose"), _CONTAINER_VERBS
    ),
    **dict.fromkeys(word_set("npm pnpm yarn bundle mise asdf"), _EXEC_VERBS),
    "direnv": {"exec": 1}, "tmux": _TMUX_VERBS, "perf": {"record": 0, "stat": 0},
}  # fmt: skip
"""Programs that run a command after one of these verbs."""
_LOADER = re.compile(r"ld(-linux[\w.-]*)?\.so[\d.]*|ld-musl[\w.-]*")
_FIND_EXEC_FLAGS = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec"})
_ENV = re.compile(r"-[iv0]*([SCu])(.*)", re.DOTALL)
_BLANKS = re.compile(r"\\[_tnrfv]")
_ENV_REFERENCE = re.compile(r"\$\{(\w+)\}")
_JOINED_OPTION = re.compile(r"-[A-Za-z]\d+|-I.+")
"""Options written together with their value."""
_WHOLE_LINE_OPTIONS = re.compile(r"-[a-zA-Z]*[0dLl].*|--null|--delimiter.*|--max-lines.*")


def wrapped_commands(one: ParsedCommand) -> Iterator[ParsedCommand]:
    """Yield the wrapped command; all candidates where options are ambiguous."""
    if one.name == "env":
        yield from _env_command(one)
        return
    for argv in _commands_behind(one.name, one.argv[1:], one.stdin or ""):
        yield _with_argv(one, argv)


def _commands_behind(name: str, args: Sequence[str], fed: str) -> Iterator[Sequence[str]]:
    before = 0 if _LOADER.fullmatch(name) else WRAPPER_PROGRAMS.get(name)
    if name in {"find", "fd"}:
        yield from _find_commands(args)
    elif name in {"xargs", "parallel"}:
        for start in _command_starts(args, 0):
            yield from _xargs_commands(args[:start], args[start:], fed)
    elif before is not None:
        for start in _command_starts(args, before):
            yield args[start:]
    elif name in _WRAPPER_VERBS:
        yield from _commands_behind_verb(args, _WRAPPER_VERBS[name])


def _with_argv(one: ParsedCommand, argv: Sequence[str]) -> ParsedCommand:
    return structs.replace(one, argv=tuple(argv), targets=())


def _commands_behind_verb(args: Sequence[str], verbs: Mapping[str, int]) -> Iterator[Sequence[str]]:
    for number, word in enumerate(args[:6]):
        if word in verbs:
            rest = args[number + 1 :]
            for start in _command_starts(rest, verbs[word]):
                yield rest[start:]
            return


def _env_command(one: ParsedCommand) -> Iterator[ParsedCommand]:
    """Parse `env` with its options and assignments."""
    rest, folder, known = list(one.argv[1:]), one.folder, dict(one.variables)
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
                rest = [*_split_env_string(given, known), *rest]
            elif how == "C":
                folder = posixpath.join(folder, given)
        elif word.startswith("-"):
            continue
        elif equals and re.fullmatch(r"\w+", name):
            known[name] = value
        else:
            yield structs.replace(_with_argv(one, [word, *rest]), folder=folder, variables=known)
            return


def _split_env_string(text: str, known: Mapping[str, str]) -> list[str]:
    """Split like `env -S`."""
    text = _ENV_REFERENCE.sub(lambda found: known.get(found[1], ""), _BLANKS.sub(" ", text))
    return split_words(text)


def _xargs_commands(
    options: Sequence[str], base: Sequence[str], fed: str
) -> Iterator[Sequence[str]]:
    """The command with its input inserted."""
    if options and options[-1] in {"-I", "-d", "-n", "-P", "-L", "-s", "-a"}:
        return
    lines = [line for line in re.split(r"[\n\0]", fed) if line][:MAX_ITEMS]
    placeholder = _replacement_mark(options)
    if placeholder:
        for line in lines or [UNKNOWN]:
            yield [word.replace(placeholder, line) for word in base]
        return
    yield [*base, *fed.split()]
    if any(_WHOLE_LINE_OPTIONS.fullmatch(word) for word in options):
        yield [*base, *lines]


def _replacement_mark(options: Sequence[str]) -> str:
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


def _command_starts(args: Sequence[str], before: int) -> Iterator[int]:
    given = 0
    after_option = ambiguous = False
    for number, word in enumerate(args):
        if word.startswith("-") or re.match(r"[A-Za-z_]\w*=", word):
            after_option = (
                word.startswith("-") and "=" not in word and not _JOINED_OPTION.fullmatch(word)
            )
            continue
        if given < before and not after_option:
            given += 1
            if ambiguous:
                yield number
            continue
        yield number
        if not after_option:
            return
        after_option, ambiguous = False, True


def _find_commands(args: Sequence[str]) -> Iterator[Sequence[str]]:
    for number, word in enumerate(args):
        if word in _FIND_EXEC_FLAGS:
            command = args[number + 1 :]
            end = next(
                (i for i, one in enumerate(command) if one in {";", "+", "\\;"}), len(command)
            )
            yield [UNKNOWN if one == "{}" else one for one in command[:end]]
