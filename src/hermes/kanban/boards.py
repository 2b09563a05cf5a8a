"""The boards of a home: their names, settings and files."""

import re
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from hermes.kit.files import file_signature, write_atomic
from hermes.ports.board import Board
from hermes.schema.errors import NotFound, StateConflict, UsageError

DEFAULT_BOARD = "default"
_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Access(StrEnum):
    READ = "read"
    WRITE = "write"


class BoardInfo(Struct, frozen=True, kw_only=True):
    """The contents of `board.json`."""

    slug: str
    name: str = ""
    description: str = ""
    icon: str = ""
    color: str = ""
    default_workdir: str | None = None
    created_at: int = 0
    archived: bool = False
    project_id: str | None = None
    access: Mapping[str, Access] = {}
    """Permissions of single profiles' agents; if empty, all may do everything."""

    people: Mapping[str, tuple[str, ...]] = {}
    """Names of assignees and their accounts, as PLATFORM:USER or PLATFORM:CHAT."""

    def allows(self, profile: str, wanted: Access) -> bool:
        """Whether the profile's agents may read the board, or also change it and work on it."""
        return not self.access or self.access.get(profile) in {wanted, Access.WRITE}


class BoardPaths(Struct, frozen=True):
    """Where a board keeps its files; the default board has them in the root of the home."""

    database: Path
    workspaces: Path
    logs: Path
    attachments: Path


class Boards:
    """`root` is the folder shared by all profiles."""

    def __init__(
        self,
        *,
        root: Path,
        environment: Mapping[str, str],
        open_board: Callable[[Path], Awaitable[Board]],
    ) -> None:
        self._root = Path(environment.get("HERMES_KANBAN_HOME") or root)
        self._folder = kanban_folder(root, environment)
        self._environment = environment
        self.open_board = open_board

    def choose(self, slug: str | None = None) -> str:
        """The board to use: the given one, that of the environment, or the current one."""
        chosen = slug or self._environment.get("HERMES_KANBAN_BOARD") or self.current()
        self.info(chosen)
        return chosen

    def current(self) -> str:
        try:
            name = (self._folder / "current").read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            return DEFAULT_BOARD
        return name if self._exists(name) else DEFAULT_BOARD

    def switch(self, slug: str) -> None:
        self.info(slug)
        write_atomic(self._folder / "current", f"{slug}\n".encode(), mode=0o600)

    def all(self) -> Sequence[BoardInfo]:
        """The default board first, then the others by name."""
        folder = self._folder / "boards"
        slugs = sorted(path.name for path in folder.glob("*") if _SLUG.fullmatch(path.name))
        named = [slug for slug in slugs if slug != DEFAULT_BOARD and self._exists(slug)]
        # Another process may remove one of them meanwhile.
        return [self._read_info(slug) for slug in (DEFAULT_BOARD, *named)]

    def info(self, slug: str) -> BoardInfo:
        """Raises `NotFound` for an unknown board."""
        if not self._exists(slug):
            raise NotFound(
                f"There is no board {slug!r}.", hint="List them: hermes kanban boards list"
            )
        return self._read_info(slug)

    def _read_info(self, slug: str) -> BoardInfo:
        try:
            found = msgspec.json.decode(self._info_file(slug).read_bytes(), type=BoardInfo)
        except (OSError, ValueError, msgspec.DecodeError):
            # The settings are optional; the board is its database.
            found = BoardInfo(slug=slug)
        return structs.replace(found, slug=slug, name=found.name or slug)

    def create(self, info: BoardInfo) -> BoardInfo:
        if not _SLUG.fullmatch(info.slug):
            raise UsageError(
                f"{info.slug!r} is not a board name.",
                hint="Use up to 64 lowercase letters, digits, hyphens and underscores.",
            )
        if self._exists(info.slug):
            raise StateConflict(f"The board {info.slug!r} already exists.")
        return self.save(info)

    def save(self, info: BoardInfo) -> BoardInfo:
        file = self._info_file(info.slug)
        file.parent.mkdir(parents=True, exist_ok=True)
        # Another version of the public system may have stored more.
        merged = {**_read_object(file), **msgspec.to_builtins(info)}
        text = msgspec.json.format(msgspec.json.encode(merged), indent=2)
        write_atomic(file, text, mode=0o600)
        return self.info(info.slug)

    def remove(self, slug: str, now: int, *, delete: bool) -> Path | None:
        """Archive a board's folder and return where it is now, or delete it."""
        if slug == DEFAULT_BOARD:
            raise UsageError("The default board cannot be removed.")
        self.info(slug)
        folder = self._folder / "boards" / slug
        if self.current() == slug:
            self.switch(DEFAULT_BOARD)
        if delete:
            shutil.rmtree(folder)
            return None
        archived = self._folder / "boards" / "_archived" / f"{slug}-{now}"
        archived.parent.mkdir(parents=True, exist_ok=True)
        return folder.rename(archived)

    def paths(self, slug: str) -> BoardPaths:
        env = self._environment
        default = slug == DEFAULT_BOARD
        folder = self._folder if default else self._folder / "boards" / slug
        database = self._root / "kanban.db" if default else folder / "kanban.db"
        if slug == env.get("HERMES_KANBAN_BOARD", DEFAULT_BOARD) and env.get("HERMES_KANBAN_DB"):
            database = Path(env["HERMES_KANBAN_DB"])
        return BoardPaths(
            database=database,
            workspaces=Path(env.get("HERMES_KANBAN_WORKSPACES_ROOT") or folder / "workspaces"),
            logs=folder / "logs",
            attachments=Path(env.get("HERMES_KANBAN_ATTACHMENTS_ROOT") or folder / "attachments"),
        )

    def folders(self) -> Sequence[Path]:
        """The existing folders in which other processes change boards."""
        files = [self.paths(info.slug).database.parent for info in self.all()]
        found = dict.fromkeys([self._root, self._folder, self._folder / "boards", *files])
        return [folder for folder in found if folder.is_dir()]

    def signature(self) -> Sequence[tuple[str, int, int]]:
        """Return a value that changes with the board's files, but not with their neighbors."""
        databases = [self.paths(info.slug).database for info in self.all()]
        files = [Path(f"{database}{end}") for database in databases for end in ("", "-wal")]
        return [file_signature(file) for file in (*files, self.wake_file, self._folder / "current")]

    @property
    def wake_file(self) -> Path:
        """Written to tell the gateways of this home that a board has changed."""
        return self._folder / ".wake"

    def take_scratch_tip(self) -> bool:
        """Whether to show the tip about scratch workspaces: once per home, by whichever program."""
        try:
            (self._root / ".scratch_tip_shown").touch(mode=0o600, exist_ok=False)
        except OSError:
            return False
        return True

    def _exists(self, slug: str) -> bool:
        if slug == DEFAULT_BOARD:
            return True
        return bool(_SLUG.fullmatch(slug)) and (self._folder / "boards" / slug).is_dir()

    def _info_file(self, slug: str) -> Path:
        return self._folder / "boards" / slug / "board.json"


def _read_object(file: Path) -> dict[str, object]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, object])
    except (OSError, ValueError, msgspec.DecodeError):
        return {}


def kanban_folder(root: Path, environment: Mapping[str, str]) -> Path:
    """Return the folder of the boards' files."""
    return Path(environment.get("HERMES_KANBAN_HOME") or root) / "kanban"


def dispatcher_lock(root: Path, environment: Mapping[str, str]) -> Path:
    """Return the lock held by the program, ours or the public system, that starts all tasks."""
    return kanban_folder(root, environment) / ".dispatcher.lock"
