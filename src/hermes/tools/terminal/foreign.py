"""What of others a command may show or bring: by its reach, its words, and the files it touches."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from msgspec import Struct, structs

from hermes.ports.tool import ToolContext
from hermes.schema.scope import Role, Scope
from hermes.tools.origins import LONGEST, LONGEST_BEHIND, Fetching, Origins, OthersAtWork
from hermes.tools.touched import bases_of, words_of

MOST_FOLDERS = 32
"""In which a command is expected to make something new."""
_GIT_BRINGS = frozenset(
    (
        "am", "apply", "archive", "checkout", "checkout-index", "cherry-pick", "merge", "pull",
        "read-tree", "rebase", "reset", "restore", "revert", "stash", "submodule", "switch",
        "worktree",
    )
)  # fmt: skip
"""Verbs of git that put into files what was fetched before, without the network."""
_GIT_SHOWS = frozenset(["archive", "blame", "cat-file", "diff", "grep", "log", "show"])
_THEIRS = ("FETCH_HEAD", "origin/", "upstream/", "remotes/", "@{u")


class Foreign(Struct, frozen=True):
    """`shown`: in what it prints; `brought`: in files that it writes, most likely in `where`.

    `others` is the workspace, if others than the owner have a say in what it does.
    `unverified`: it could have read, and shown, a file that somebody else wrote.
    """

    shown: bool = False
    brought: bool = False
    where: tuple[Path, ...] = ()
    others: Path | None = None
    unverified: bool = False


def others_in(ctx: ToolContext) -> Path | None:
    own = ctx.scope.role is Role.OWNER and not ctx.foreign
    return None if own else Path(ctx.scope.workspace)


def foreign_of(command: str, folder: Path, origins: Origins | None) -> Foreign:
    """For a command that can reach the network: what its words say that it does with it."""
    from hermes.approvals.outward import brings_in, shows_others  # noqa: PLC0415 - few commands need it
    from hermes.approvals.script import Place  # noqa: PLC0415 - as above
    from hermes.approvals.unwrap import every_command  # noqa: PLC0415 - as above

    found = every_command(command, Place(str(folder), "/")).found
    named = named_in(command, folder, origins)
    return Foreign(
        shown=named.shown or shows_others(found),
        brought=named.brought or brings_in(found),
        where=named.where,
    )


def could_show_others(command: str, folder: Path, scope: Scope, origins: Origins | None) -> bool:
    """Whether a shell command could have read what somebody else wrote, whatever it names."""
    if origins is None:
        return False
    from hermes.tools.readable import Readable  # noqa: PLC0415 - who runs no command needs none

    return Readable(origins, scope).by_command(command, folder)


def named_in(command: str, folder: Path, origins: Origins | None) -> Foreign:
    """A command that touches what came in may show it, copy it or unpack it."""
    if origins is None:
        return Foreign()
    words, bases = words_of(command), bases_of(command, folder)
    where = places_of(words, bases)
    if origins.names_foreign(words, *bases):
        return Foreign(shown=True, brought=True, where=where)
    if any(word == "git" or word.endswith("/git") for word in words):
        fetched = any(map(origins.has_fetched, bases))
        theirs = any(one in word for word in words for one in _THEIRS)
        shown = fetched and theirs and not _GIT_SHOWS.isdisjoint(words)
        return Foreign(shown, fetched and not _GIT_BRINGS.isdisjoint(words), where)
    return Foreign(where=where)


def places_of(words: Sequence[str], bases: Sequence[Path]) -> tuple[Path, ...]:
    """Folders that are there, in which it may make new ones."""
    named = ((base / word).parent for word in words if "/" in word for base in bases)
    there = (one for one in named if one.is_dir())
    return tuple(dict.fromkeys([*bases, *islice(there, MOST_FOLDERS)]))


class Bringing:
    """What changes on disk while a command runs; noted from the moment on that it may bring."""

    def __init__(self, begin: Callable[[], Fetching] | None) -> None:
        self._begin = begin
        self._fetching: Fetching | None = None
        self.others: OthersAtWork | None = None

    def brings(self) -> None:
        if self._fetching is None and self._begin is not None:
            self._fetching = self._begin()

    def over(self) -> None:
        if self._fetching is not None:
            self._fetching.over()
            self._fetching = None
        if self.others is not None:
            self.others.over()
            self.others = None


def begun(
    origins: Origins | None, foreign: Foreign, longest: float = LONGEST, at: float | None = None
) -> Bringing:
    """For a command that begins now, or began `at`; whoever begins it says when it is over."""

    def begin(origins: Origins) -> Fetching:
        return origins.fetching(foreign.where, longest, at)

    found = Bringing(None if origins is None else partial(begin, origins))
    if origins is not None and foreign.others is not None:
        found.others = origins.others_at_work(foreign.others, at)
    if foreign.brought:
        found.brings()
    return found


@contextmanager
def bringing(
    origins: Origins | None, foreign: Foreign, longest: float = LONGEST
) -> Generator[Bringing]:
    """What changes on disk in the block was brought by a command, if it brings anything."""
    found = begun(origins, foreign, longest)
    try:
        yield found
    finally:
        found.over()


class Watched:
    """A command that others run: what it may show, and what it brings until it is over."""

    def __init__(
        self,
        origins: Origins,
        command: str,
        folder: str,
        began: float | None = None,
        others: Path | None = None,
        scope: Scope | None = None,
    ) -> None:
        now = origins.now()
        began = now if began is None else min(max(began, now - LONGEST), now)
        found = structs.replace(foreign_of(command, Path(folder), origins), others=others)
        self._bringing = begun(origins, found, LONGEST_BEHIND, began)
        self.shown = found.shown
        self.unverified = scope is None or could_show_others(command, Path(folder), scope, origins)
        self.brings = self._bringing.brings
        self.over = self._bringing.over
