"""Copy the files that a turn is about to change; cheap enough to be always on.

A checkpoint is a list of files as they were before the first call that may have changed them. In a
small workspace a command saves all files; in a larger one, those that it names. Restoring an older
checkpoint also undoes the later ones.
"""

import logging
import os
import stat as modes
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import anyio
import msgspec
from anyio.to_thread import run_sync
from msgspec import Raw, Struct

from hermes.kit.clock import Clock
from hermes.kit.files import open_locked, read_regular_file, write_atomic
from hermes.kit.ids import new_id
from hermes.kit.lru_map import LruMap
from hermes.ports.checkpoints import Checkpoint, RestoreResult
from hermes.schema.errors import ToolError, UsageError
from hermes.schema.scope import OWNER, Scope
from hermes.tools.checkpoints.repository import (
    LINK_MODE,
    PROGRAM_MODE,
    RestoreStep,
    RetentionPolicy,
    remove_file,
    restore_file,
    short_hash,
)
from hermes.tools.checkpoints.touched_files import MAX_FILES, files_below, touched_files
from hermes.tools.paths import BlockedPaths, SessionPaths

log = logging.getLogger(__name__)
_T = TypeVar("_T")

FILE_MODE = "100644"
MAX_FAILED = 20
MAX_RUNS = 64
MAX_KNOWN = 20_000
"""Files whose content need not be read again if they did not change."""


class SavedFile(Struct, frozen=True, array_like=True):
    """A file's mode and the hash of its content, both empty if it did not exist."""

    mode: str = ""
    blob: str = ""


class _Manifest(Struct, kw_only=True):
    """Files by path, with bytes that are not UTF-8 kept; `complete`: all of the workspace."""

    checkpoint: Checkpoint
    files: dict[str, SavedFile]
    complete: bool = False


class FileCheckpoints:
    def __init__(
        self,
        *,
        folder: Path,
        paths: SessionPaths,
        clock: Clock,
        home: Path,
        retention: RetentionPolicy,
    ) -> None:
        """`home` is the user's home folder."""
        self._folder = folder / "files"
        self._paths = paths
        self._clock = clock
        self._home = home
        self._retention = retention
        self._runs: LruMap[str, _Manifest] = LruMap(MAX_RUNS)
        self._moved: LruMap[str, bool] = LruMap(MAX_RUNS)
        """Sessions whose commands left the workspace."""
        self._unsaved: LruMap[str, bool] = LruMap(MAX_RUNS)
        """Runs with a command that may have changed files without a copy."""
        self._known: LruMap[str, tuple[tuple[int, ...], SavedFile | None]] = LruMap(MAX_KNOWN)
        self._bytes = 0
        """Bytes of all contents, once they were counted."""
        self._counted = False
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    async def checkpoint_before(self, scope: Scope, args: Raw) -> str:
        async with self._lock(scope.workspace):
            try:
                await run_sync(self._locked, partial(self._save_touched, scope, args))
            except OSError as error:
                log.warning("no checkpoint of %s: %s", scope.workspace, error)
                return f"No checkpoint was made of {scope.workspace}: {error.strerror}"
        return ""

    async def changed(self, run: str) -> bool | None:
        manifest = self._runs.get(run)
        if manifest is None:
            return None if self._unsaved.get(run) else False
        return await run_sync(self._changed, manifest, run)

    async def take(self, workspace: str, session: str, reason: str = "") -> Checkpoint:
        async with self._lock(workspace):
            return await run_sync(self._locked, partial(self._take, workspace, session, reason))

    async def list(self, workspace: str) -> Sequence[Checkpoint]:
        stored = await run_sync(self._stored, workspace)
        return [manifest.checkpoint for manifest in reversed(stored)]

    async def restore(self, checkpoint: Checkpoint, session: str) -> RestoreResult:
        async with self._lock(checkpoint.workspace):
            return await run_sync(self._locked, partial(self._restore, checkpoint, session))

    def _lock(self, workspace: str) -> anyio.Lock:
        return self._locks.setdefault(workspace, anyio.Lock())

    def _locked(self, work: Callable[[], _T]) -> _T:
        """Keep other processes of this home from deleting contents about to be listed."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_locked(self._folder / "lock"):
            return work()

    def _save_touched(self, scope: Scope, args: Raw) -> None:
        workspace = Path(scope.workspace)
        manifest = self._runs.get(scope.run)
        touched = touched_files(workspace, args, self._home)
        wanted = [path for named in touched.paths for path in _expanded(named)]
        whole = None
        if touched.open_ended and not (manifest and manifest.complete):
            whole = files_below(workspace)
            wanted += whole or ()
        if touched.elsewhere:
            # A change of folder lasts for the session.
            self._moved.put(scope.session, value=True)
        partial_copy = touched.open_ended and whole is None and not (manifest and manifest.complete)
        if partial_copy or (touched.open_ended and self._moved.get(scope.session)):
            self._unsaved.put(scope.run, value=True)
        known = manifest.files if manifest else {}
        new = self._saved([path for path in wanted if _name(path) not in known], workspace)
        if not new and whole is None:
            return
        is_first = manifest is None
        if manifest is None:
            checkpoint = self._checkpoint(scope.workspace, scope.session, run=scope.run)
            manifest = _Manifest(checkpoint=checkpoint, files={})
            self._runs.put(scope.run, value=manifest)
        manifest.files.update(new)
        manifest.complete = manifest.complete or whole is not None
        self._write(manifest)
        if is_first:
            self._prune(scope.workspace)

    def _changed(self, manifest: _Manifest, run: str) -> bool | None:
        workspace = Path(manifest.checkpoint.workspace)
        names = [*manifest.files]
        if manifest.complete:
            present = files_below(workspace)
            if present is None or any(_name(path) not in manifest.files for path in present):
                return True
        now = self._saved([_path(name) for name in names], workspace)
        if any(now.get(name) != manifest.files[name] for name in names):
            return True
        return None if self._unsaved.get(run) else False

    def _take(self, workspace: str, session: str, reason: str) -> Checkpoint:
        whole = files_below(Path(workspace))
        if whole is None:
            raise UsageError(
                f"{workspace} has more than {MAX_FILES:,} files.",
                hint="For checkpoints of large folders: hermes config set checkpoints.enabled true",
            )
        checkpoint = self._checkpoint(workspace, session, reason=reason)
        files = self._saved(whole, Path(workspace))
        self._write(_Manifest(checkpoint=checkpoint, files=files, complete=True))
        self._prune(workspace)
        return checkpoint

    def _restore(self, checkpoint: Checkpoint, session: str) -> RestoreResult:
        workspace = Path(checkpoint.workspace)
        stored = self._stored(checkpoint.workspace)
        later = [one for one in stored if _order(one.checkpoint) >= _order(checkpoint)]
        if not later or later[0].checkpoint.id != checkpoint.id:
            raise UsageError("That checkpoint no longer exists.")
        then: dict[str, SavedFile] = {}
        for manifest in later:
            then = {**manifest.files, **then}
        present = files_below(workspace) if later[0].complete else None
        added = self._saved(present or [], workspace).keys() - then.keys()
        then |= dict.fromkeys(added, SavedFile())
        now = self._saved([_path(name) for name in then], workspace)
        before = self._checkpoint(checkpoint.workspace, session, reason="before a rollback")
        self._write(_Manifest(checkpoint=before, files=now))
        steps = {name: file for name, file in then.items() if now.get(name) not in {None, file}}
        return self._apply(steps, before, workspace)

    def _apply(
        self, steps: Mapping[str, SavedFile], before: Checkpoint, workspace: Path
    ) -> RestoreResult:
        """Remove files first: one of them may be where a folder was."""
        failed: list[str] = []
        done: list[SavedFile] = []
        for name, saved in sorted(steps.items(), key=lambda item: bool(item[1].blob)):
            path = _path(name)
            try:
                self._apply_one(path, saved, workspace)
                done.append(saved)
            except (OSError, ToolError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                failed.append(f"{path}: {reason}")
        written = sum(bool(saved.blob) for saved in done)
        return RestoreResult(
            before=before,
            written=written,
            removed=len(done) - written,
            failed=tuple(failed[:MAX_FAILED]),
        )

    def _apply_one(self, path: Path, saved: SavedFile, workspace: Path) -> None:
        work = workspace if path.is_relative_to(workspace) else path.parent
        step = RestoreStep(str(path.relative_to(work)), saved.mode, saved.blob)
        forbids = self._paths.blocked(OWNER, str(workspace)).forbids
        if saved.blob:
            restore_file(work, step, self._blob(saved.blob).read_bytes(), forbids)
        else:
            remove_file(work, step, forbids)

    def _checkpoint(
        self, workspace: str, session: str, *, run: str = "", reason: str = ""
    ) -> Checkpoint:
        return Checkpoint(
            id=new_id("cp"),
            workspace=workspace,
            session=session,
            at=self._clock.now(),
            run=run,
            reason=reason,
        )

    def _saved(self, paths: Sequence[Path], workspace: Path) -> dict[str, SavedFile]:
        """The current state of these files, without private and large ones."""
        blocked: BlockedPaths | None = None
        found: dict[str, SavedFile] = {}
        for path in paths:
            name = _name(path)
            stat = _stat(path)
            if stat is None or modes.S_ISDIR(stat.st_mode):
                found[name] = SavedFile()
                continue
            mark = (stat.st_mode, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            mark_then, state = self._known.get(name) or ((), None)
            if mark_then != mark or not self._is_kept(state):
                blocked = blocked or self._paths.blocked(OWNER, str(workspace))
                state = self._read(path, stat, blocked)
                self._known.put(name, value=(mark, state))
            if state is not None:
                found[name] = state
        return found

    def _is_kept(self, state: SavedFile | None) -> bool:
        """Another process may have deleted the content."""
        return state is None or self._blob(state.blob).exists()

    def _read(self, path: Path, stat: os.stat_result, blocked: BlockedPaths) -> SavedFile | None:
        """Store the content of a file; None if it must not or cannot be saved."""
        if blocked.covers(Path(os.path.realpath(path.parent), path.name)):
            return None
        try:
            if modes.S_ISLNK(stat.st_mode):
                return SavedFile(LINK_MODE, self._keep(os.fsencode(path.readlink())))
            if not modes.S_ISREG(stat.st_mode) or stat.st_size > self._retention.limits.file:
                return None
            mode = PROGRAM_MODE if stat.st_mode & 0o111 else FILE_MODE
            return SavedFile(mode, self._keep(read_regular_file(path, self._retention.limits.file)))
        except (PermissionError, FileNotFoundError):
            return None

    def _keep(self, data: bytes) -> str:
        blob = sha256(data).hexdigest()
        path = self._blob(blob)
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A killed process leaves complete copies or none; a power failure may lose the last
            # ones.
            part = path.with_suffix(f".{new_id('tmp')}")
            part.write_bytes(data)
            part.replace(path)
            self._bytes += len(data)
        return blob

    def _blob(self, blob: str) -> Path:
        return Path(f"{self._folder}/content/{blob[:2]}/{blob[2:]}")

    def _write(self, manifest: _Manifest) -> None:
        checkpoint = manifest.checkpoint
        folder = self._folder / "lists" / short_hash(checkpoint.workspace)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(folder / f"{checkpoint.id}.json", msgspec.json.encode(manifest))

    def _stored(self, workspace: str = "") -> "list[_Manifest]":
        """The checkpoints of a workspace, or all, oldest first."""
        found: list[_Manifest] = []
        folder = short_hash(workspace) if workspace else "*"
        for path in (self._folder / "lists").glob(f"{folder}/*.json"):
            with suppress(OSError, msgspec.DecodeError):
                found.append(msgspec.json.decode(path.read_bytes(), type=_Manifest))
        return sorted(found, key=lambda manifest: _order(manifest.checkpoint))

    def _prune(self, workspace: str) -> None:
        """Delete checkpoints beyond the limits before adding another one."""
        keeping = self._retention
        if not keeping.prune:
            return
        stored = self._stored()
        own = [manifest for manifest in stored if manifest.checkpoint.workspace == workspace]
        oldest = self._clock.now() - timedelta(days=keeping.days)
        surplus = own[: -max(keeping.snapshots, 1)]
        dropped = [
            manifest
            for manifest in stored
            if manifest.checkpoint.at < oldest or manifest in surplus
        ]
        left = [manifest for manifest in stored if manifest not in dropped]
        if dropped or not self._counted:
            self._sweep(dropped, left)
        while len(left) > 1 and self._bytes > keeping.limits.total:
            self._sweep([left.pop(0)], left)

    def _sweep(self, dropped: Sequence[_Manifest], left: Sequence[_Manifest]) -> None:
        """Delete checkpoints and the contents that no other has, and count what remains."""
        for manifest in dropped:
            folder = self._folder / "lists" / short_hash(manifest.checkpoint.workspace)
            (folder / f"{manifest.checkpoint.id}.json").unlink(missing_ok=True)
        needed = {file.blob for manifest in left for file in manifest.files.values()}
        self._bytes, self._counted = 0, True
        for path in (self._folder / "content").glob("*/*"):
            if path.parent.name + path.name in needed:
                self._bytes += path.stat().st_size
            else:
                path.unlink(missing_ok=True)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _expanded(path: Path) -> "list[Path]":
    """A folder's files, up to the limit; the path itself otherwise."""
    is_folder = path.is_dir() and not path.is_symlink()
    return (files_below(path) or []) if is_folder else [path]


def _order(checkpoint: Checkpoint) -> tuple[float, str]:
    return checkpoint.at.timestamp(), checkpoint.id


def _name(path: Path) -> str:
    """Return a name that JSON can represent, whatever its bytes."""
    return os.fsencode(path).decode("latin-1")


def _path(name: str) -> Path:
    return Path(os.fsdecode(name.encode("latin-1")))
