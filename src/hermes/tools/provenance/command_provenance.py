"""Judge whether a command may print or save untrusted content."""

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from msgspec import Struct, structs

from hermes.ports.tool import ToolContext
from hermes.schema.scope import Role, Scope
from hermes.tools.provenance.command_paths import command_folders, command_words
from hermes.tools.provenance.file_provenance import (
    MAX_BACKGROUND,
    MAX_FOREGROUND,
    FetchRecord,
    FileProvenance,
    UntrustedWork,
)

MAX_FOLDERS = 32
"""Folders in which a command may create something."""
_GIT_WRITES = frozenset(
    (
        "am", "apply", "archive", "checkout", "checkout-index", "cherry-pick", "merge", "pull",
        "read-tree", "rebase", "reset", "restore", "revert", "stash", "submodule", "switch",
        "worktree",
    )
)  # fmt: skip
"""Git commands that write fetched content into files without network access."""
_GIT_SHOWS = frozenset(["archive", "blame", "cat-file", "diff", "grep", "log", "show"])
_REMOTE_REFS = ("FETCH_HEAD", "origin/", "upstream/", "remotes/", "@{u")


class CommandProvenance(Struct, frozen=True):
    """What untrusted content a command may involve.

    - `shown`: in its output.
    - `fetched`: in files it writes, most likely in these `folders`.
    - `others`: the workspace, if others than the owner influence the command.
    - `unverified`: it could have read and shown a file that others wrote.
    """

    shown: bool = False
    fetched: bool = False
    folders: tuple[Path, ...] = ()
    others: Path | None = None
    unverified: bool = False


def untrusted_workspace(ctx: ToolContext) -> Path | None:
    own = ctx.scope.role is Role.OWNER and not ctx.foreign
    return None if own else Path(ctx.scope.workspace)


def online_provenance(command: str, folder: Path, origins: FileProvenance) -> CommandProvenance:
    """Judge a command with network access, including what its words do with it."""
    from hermes.approvals.shell_commands import ShellContext, parse_script  # noqa: PLC0415 - rarely needed
    from hermes.approvals.shell_hints import downloads_files, shows_untrusted  # noqa: PLC0415 - rarely needed

    found = parse_script(command, ShellContext(str(folder), "/")).commands
    named = offline_provenance(command, folder, origins)
    return CommandProvenance(
        shown=named.shown or shows_untrusted(found),
        fetched=named.fetched or downloads_files(found),
        folders=named.folders,
    )


def may_show_unverified(
    command: str,
    folder: Path,
    scope: Scope,
    origins: FileProvenance,
    *,
    program: bool = False,
) -> bool:
    """Whether a command or program could have read what others wrote, whatever it names."""
    from hermes.tools.provenance.unverified_reads import may_read_unverified  # noqa: PLC0415 - only needed to run commands

    return may_read_unverified(origins, scope, command, folder, program=program)


def offline_provenance(command: str, folder: Path, origins: FileProvenance) -> CommandProvenance:
    """Judge a command without network access by the files it touches."""
    words, bases = command_words(command), command_folders(command, folder)
    where = target_folders(words, bases)
    if origins.names_untrusted(words, *bases):
        return CommandProvenance(shown=True, fetched=True, folders=where)
    if any(word == "git" or word.endswith("/git") for word in words):
        fetched = any(map(origins.has_fetched_commits, bases))
        theirs = any(ref in word for word in words for ref in _REMOTE_REFS)
        shown = fetched and theirs and not _GIT_SHOWS.isdisjoint(words)
        return CommandProvenance(shown, fetched and not _GIT_WRITES.isdisjoint(words), where)
    return CommandProvenance(folders=where)


def target_folders(words: Sequence[str], bases: Sequence[Path]) -> tuple[Path, ...]:
    """Return existing folders in which it may create others."""
    named = ((base / word).parent for word in words if "/" in word for base in bases)
    existing = (folder for folder in named if folder.is_dir())
    return tuple(dict.fromkeys([*bases, *islice(existing, MAX_FOLDERS)]))


class FetchRecorder:
    """Records changes on disk from the moment a command may fetch something."""

    def __init__(self, begin: Callable[[], FetchRecord], others: UntrustedWork | None) -> None:
        self._begin = begin
        self._fetching: FetchRecord | None = None
        self._others = others

    def start(self) -> None:
        if self._fetching is None:
            self._fetching = self._begin()

    def end(self) -> None:
        for running in (self._fetching, self._others):
            if running is not None:
                running.end()
        self._fetching = self._others = None


def start_recorder(
    origins: FileProvenance,
    foreign: CommandProvenance,
    longest: float = MAX_FOREGROUND,
    at: float | None = None,
) -> FetchRecorder:
    """Start recording a command that begins now, or began `at`; call `end` when it ends."""
    others = None if foreign.others is None else origins.record_untrusted_work(foreign.others, at)
    recorder = FetchRecorder(partial(origins.start_fetch, foreign.folders, longest, at), others)
    if foreign.fetched:
        recorder.start()
    return recorder


@contextmanager
def record_fetches(
    origins: FileProvenance, foreign: CommandProvenance, longest: float = MAX_FOREGROUND
) -> Generator[FetchRecorder]:
    """Record the changes made in the block if the command fetches anything."""
    recorder = start_recorder(origins, foreign, longest)
    try:
        yield recorder
    finally:
        recorder.end()


class WatchedCommand:
    """A command run by a runtime: what it may show, and what it fetches until it is over."""

    def __init__(
        self,
        origins: FileProvenance,
        command: str,
        folder: str,
        began: float | None = None,
        others: Path | None = None,
        scope: Scope | None = None,
    ) -> None:
        now = origins.now()
        began = now if began is None else min(max(began, now - MAX_FOREGROUND), now)
        found = structs.replace(online_provenance(command, Path(folder), origins), others=others)
        self._recorder = start_recorder(origins, found, MAX_BACKGROUND, began)
        self.shown = found.shown
        self.unverified = scope is None or may_show_unverified(
            command, Path(folder), scope, origins
        )
        self.start_recording = self._recorder.start
        self.end = self._recorder.end


_LISTS_FILES = re.compile(r"\b(?:r?glob|i?glob|walk|iterdir|listdir|scandir|copytree|fwalk)\b")
"""Functions that find files which no word of the program names."""
_USES_NETWORK = re.compile(
    r"://|\b(?:socket|urllib|urllib3|requests|httpx|aiohttp|http\.client|ftplib|telnetlib|paramiko)\b"
)


def program_provenance(
    code: str, folder: Path, origins: FileProvenance, *, isolated: bool
) -> CommandProvenance:
    """Judge a program; without a sandbox including its network access."""
    fetches = not isolated and (_USES_NETWORK.search(code) is not None or _fetches(code, folder))
    words, bases = command_words(code), command_folders(code, folder)
    if _LISTS_FILES.search(code):
        words = [*words, "."]
    named = origins.names_untrusted(words, *bases)
    return CommandProvenance(fetches or named, fetches or named, target_folders(words, bases))


def _fetches(code: str, folder: Path) -> bool:
    from hermes.approvals.shell_commands import ShellContext, parse_script  # noqa: PLC0415 - rarely needed
    from hermes.approvals.shell_hints import downloads_files  # noqa: PLC0415 - only without a sandbox

    context = ShellContext(str(folder), "/")
    return downloads_files(parse_script(code, context, shell=False, code=True).commands)
