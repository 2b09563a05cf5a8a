"""Parse git settings as git does, and decide whether they are safe.

The parser follows `git_parse_source` in git's `config.c` closely, including rare cases: a byte
order mark, several sections on one line, continued lines. Nothing is executed, and git need not
be installed.
"""

# On the path of every command: string paths are faster.
# ruff: noqa: PTH111, PTH118, PTH120

import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import unquote

from msgspec import Struct

Setting = tuple[str, str]
"""A name as git prints it (section and key in lower case) and its value."""

_BOM = "\ufeff".encode().decode("latin-1")
_SPACE = frozenset(" \t\n\r")
_KEY = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
_ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "\\": "\\", '"': '"'}
_HOOK_SETTINGS = frozenset({"core.hookspath", "init.templatedir"})
STRATEGIES = frozenset({"octopus", "ort", "ours", "recursive", "resolve", "subtree"})
"""Git's own merge strategies; any other name runs the program `git-merge-<name>`."""
_OF_STRATEGIES = frozenset({"pull.octopus", "pull.twohead"})
_OF_REMOTES = frozenset(
    {
        "branch.pushremote",
        "branch.remote",
        "remote.pushdefault",
        "remote.pushurl",
        "remote.url",
        "submodule.url",
    }
)
"""Settings that name another repository, without the subsection."""
_WORD_WITH_SLASH = re.compile(r"[^\s'\"=;&|()<>!]*/[^\s'\"=;&|()<>!]*")

_SAFE_SECTIONS = frozenset((
    "advice", "apply", "author", "blame", "color", "column", "commit", "committer", "extensions",
    "fetch", "grep", "i18n", "index", "log", "mailmap", "notes", "pack", "pull", "push", "rebase",
    "rerere", "stash", "status", "tag", "user", "versionsort",
))  # fmt: skip
"""Sections in which no key names a program or another settings file."""
_SAFE_KEYS = {
    "core": "abbrev autocrlf bare bigfilethreshold checkstat commentchar commitgraph compression "
    "eol excludesfile filemode hidedotfiles ignorecase ignorestat logallrefupdates longpaths "
    "loosecompression multipackindex notesref packedgitlimit packedgitwindowsize precomposeunicode "
    "preloadindex protecthfs protectntfs quotepath repositoryformatversion safecrlf "
    "sharedrepository sparsecheckout sparsecheckoutcone splitindex symlinks trustctime "
    "untrackedcache warnambiguousrefs whitespace worktree",
    "diff": "algorithm colormoved colormovedws context ignoresubmodules indentheuristic "
    "interhunkcontext mnemonicprefix noprefix relative renamelimit renames statgraphwidth "
    "submodule suppressblankempty wserrorhighlight",
    "feature": "experimental manyfiles",
    "gc": "aggressivedepth aggressivewindow auto autodetach autopacklimit logexpiry packrefs "
    "pruneexpire reflogexpire reflogexpireunreachable rerereresolved rerereunresolved "
    "worktreepruneexpire writecommitgraph",
    "init": "defaultbranch defaultobjectformat",
    "lfs": "repositoryformatversion",
    "maintenance": "auto strategy",
    "merge": "autostash branchdesc conflictstyle defaulttoupstream directoryrenames ff log "
    "renamelimit renames renormalize stat verbosity verifysignatures",
    "receive": "advertiseatomic advertisepushoptions autogc denycurrentbranch denydeletecurrent "
    "denydeletes denynonfastforwards fsckobjects maxinputsize unpacklimit updateserverinfo",
    "remote": "pushdefault",
    "submodule": "active alternateerrorstrategy alternatelocation fetchjobs propagatebranches "
    "recurse",
    "transfer": "fsckobjects unpacklimit",
    "branch.": "description merge pushremote rebase remote",
    "remote.": "fetch followremotehead mirror partialclonefilter promisor prune prunetags push "
    "pushurl serveroption skipdefaultupdate skipfetchall tagopt url",
    "submodule.": "active branch fetchrecursesubmodules ignore path shallow update url",
}
"""Further safe keys by section; with a dot, those of its subsections."""
_SAFE_KEY_SETS = {section: frozenset(keys.split()) for section, keys in _SAFE_KEYS.items()}


class ParsedConfig(Struct, frozen=True):
    """`complete` says whether git could read the text to its end."""

    settings: tuple[Setting, ...]
    complete: bool


class OwnerGitConfig(Struct, frozen=True):
    """Where the owner's git finds settings besides a repository's; `home` is `~`."""

    configs: tuple[str, ...] = ()
    home: str = ""


NO_OWNER_CONFIG = OwnerGitConfig()


@lru_cache(maxsize=512)
def parse_config(text: bytes) -> ParsedConfig:
    reader = _ConfigParser(text.decode("latin-1"))
    try:
        reader.read()
    except _SyntaxError:
        return ParsedConfig(tuple(reader.settings), complete=False)
    return ParsedConfig(tuple(reader.settings), complete=b"\0" not in text)


def unsafe_settings(text: bytes) -> frozenset[bytes]:
    """The settings that make git execute something or read others; the text if it is invalid.

    Unknown keys are unsafe: new git versions add keys that name programs.
    """
    parsed = parse_config(text)
    if not parsed.complete:
        return frozenset({text})
    unsafe = (f"{name}={value}" for name, value in parsed.settings if not _is_safe(name, value))
    return frozenset(map(os.fsencode, unsafe))


def included_files(settings: Iterable[Setting], file: str, home: str) -> Iterator[str]:
    """The files that are also read, regardless of the condition."""
    for name, value in settings:
        if name == "include.path" or (name.startswith("includeif.") and name.endswith(".path")):
            yield resolve_setting_path(value, os.path.dirname(file), home)


def hooks_folders(settings: Iterable[Setting]) -> Iterator[str]:
    """Folders whose hooks are executed, or copied into new repositories."""
    return (value for name, value in settings if name in _HOOK_SETTINGS and value)


def program_paths(settings: Iterable[Setting]) -> Iterator[str]:
    """Words with a slash in values that git may execute, such as a script of the project."""
    for name, value in settings:
        if not _is_safe(name, value) and name not in _HOOK_SETTINGS:
            yield from _WORD_WITH_SLASH.findall(value)


def remotes(settings: Iterable[Setting]) -> Iterator[str]:
    """Paths of other repositories on this machine, as written."""
    for name, value in settings:
        section, _, rest = name.partition(".")
        if f"{section}.{rest.rpartition('.')[2]}" not in _OF_REMOTES:
            continue
        if value.startswith("file://"):
            path = unquote(value.removeprefix("file://"))
            # Git ignores a host.
            yield path if path.startswith("/") else f"/{path.partition('/')[2]}"
        elif "/" in value.partition(":")[0] or ":" not in value:
            yield value


def setting_value(settings: Iterable[Setting], wanted: str) -> str:
    """The last value counts; empty if there is none."""
    return next((value for name, value in reversed([*settings]) if name == wanted), "")


def resolve_setting_path(path: str, folder: str, home: str) -> str:
    """Resolve a path in a value as git does."""
    if path == "~" or path.startswith("~/"):
        path = f"{home}{path[1:]}"
    elif path.startswith("~"):
        path = os.path.expanduser(path)
    return os.path.normpath(os.path.join(folder, path))


def _is_safe(name: str, value: str) -> bool:
    section, _, rest = name.partition(".")
    _, dot, key = rest.rpartition(".")
    # A transport helper (`ext::sh -c ...`) or a shell command.
    if "::" in value or value.startswith("!"):
        return False
    if name in _OF_STRATEGIES:
        return STRATEGIES.issuperset(value.split())
    return (not dot and section in _SAFE_SECTIONS) or key in _SAFE_KEY_SETS.get(section + dot, ())


class _SyntaxError(Exception):
    """Git would stop reading here."""


class _ConfigParser:
    def __init__(self, text: str) -> None:
        self._text = text.removeprefix(_BOM)
        self._at = 0
        self._ended = False
        self.settings: list[Setting] = []

    def read(self) -> None:
        section = ""
        while True:
            char = self._next()
            if char == "\n" and self._ended:
                return
            if char in _SPACE:
                continue
            if char in "#;":
                self._skip_line()
            elif char == "[":
                section = self._section()
            elif char in _KEY and not char.isdigit() and char != "-":
                self._setting(section, char)
            else:
                raise _SyntaxError

    def _next(self) -> str:
        """Return the next character; a newline at the end."""
        if self._at >= len(self._text):
            self._ended = True
            return "\n"
        char = self._text[self._at]
        self._at += 1
        if char == "\r" and self._text.startswith("\n", self._at):
            self._at += 1
            return "\n"
        return char

    def _skip_line(self) -> None:
        while self._next() != "\n":
            pass

    def _section(self) -> str:
        name = ""
        while True:
            char = self._next()
            if self._ended:
                raise _SyntaxError
            if char == "]" and name:
                return f"{name}."
            if char in _SPACE:
                return f"{name}.{self._subsection(char)}."
            if char not in _KEY and char != ".":
                raise _SyntaxError
            name += char.lower()

    def _subsection(self, char: str) -> str:
        while char in _SPACE:
            if char == "\n":
                raise _SyntaxError
            char = self._next()
        if char != '"':
            raise _SyntaxError
        name = ""
        while (char := self._next()) != '"':
            if char == "\\":
                char = self._next()
            if char == "\n":
                raise _SyntaxError
            name += char
        if self._next() != "]":
            raise _SyntaxError
        return name

    def _setting(self, section: str, char: str) -> None:
        name = ""
        while not self._ended and char in _KEY:
            name += char.lower()
            char = self._next()
        while char in " \t":
            char = self._next()
        if char not in "\n=":
            raise _SyntaxError
        value = self._value() if char == "=" else ""
        self.settings.append((section + name, value))

    def _value(self) -> str:
        value, spaces, quoted = "", 0, False
        while (char := self._next()) != "\n":
            if not quoted and char in _SPACE:
                spaces += 1 if value else 0
                continue
            if not quoted and char in "#;":
                self._skip_line()
                return _decode(value)
            value += " " * spaces
            spaces = 0
            if char == "\\":
                escaped = self._next()
                if escaped == "\n":
                    continue
                if escaped not in _ESCAPES:
                    raise _SyntaxError
                value += _ESCAPES[escaped]
            elif char == '"':
                quoted = not quoted
            else:
                value += char
        if quoted:
            raise _SyntaxError
        return _decode(value)


def _decode(value: str) -> str:
    return os.fsdecode(value.encode("latin-1"))
