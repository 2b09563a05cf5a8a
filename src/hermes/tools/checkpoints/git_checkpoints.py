"""Checkpoints in one shadow repository for all workspaces of a home.

A checkpoint is a commit without parents under a reference of its own, so that each can be
dropped for itself: `refs/hermes/<workspace>/<when>`. Its tree has one numbered folder per work
tree, its message says what it is. What two checkpoints share is on the disk once.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import anyio
import msgspec
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.files import write_atomic
from hermes.kit.ids import new_id
from hermes.kit.lru_map import LruMap
from hermes.ports.checkpoints import Checkpoint, RestoreResult
from hermes.ports.sandbox import Sandbox
from hermes.schema.errors import HermesError, SandboxError, ToolError, UsageError
from hermes.schema.scope import OWNER, Scope
from hermes.tools.checkpoints.repository import (
    CheckpointLimits,
    ShadowRepository,
    TreeRoot,
    TreeWriter,
    short_hash,
)
from hermes.tools.checkpoints.restore import (
    EMPTY_TREE,
    RestoreStep,
    batches,
    contents,
    remove_file,
    restore_file,
    restore_steps,
)
from hermes.tools.paths import SessionPaths

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

log = logging.getLogger(__name__)

CHECKPOINT_TIMEOUT = 25.0
"""Seconds that a change waits for its checkpoint."""
RETRY_PAUSE = 600.0
"""Seconds without another try after one that did not work."""
MAX_RUNS = 512
MAX_LOOSE = 2_000
"""Files of the repository after which they are packed."""
MAX_FAILED = 20
_REFS = "refs/hermes"


class RetentionPolicy(Struct, frozen=True, kw_only=True):
    """What is kept and for how long, as the section `checkpoints` of the settings says."""

    snapshots: int = 20
    limits: CheckpointLimits = CheckpointLimits()
    days: int = 7
    prune: bool = True


class CheckpointDeps(Struct, frozen=True, kw_only=True):
    """`git` is the program's path, None where there is none; `home` is the user's own."""

    sandbox: Sandbox
    git: str | None
    folder: Path
    places: SessionPaths
    clock: Clock
    home: Path
    keeping: RetentionPolicy = RetentionPolicy()


class _CommitMessage(Struct, frozen=True, kw_only=True):
    """The message of a commit."""

    checkpoint: Checkpoint
    roots: list[TreeRoot]


class _StoredCheckpoint(Struct, frozen=True):
    ref: str
    commit: str
    note: _CommitMessage


class GitCheckpoints:
    def __init__(self, parts: CheckpointDeps) -> None:
        self._parts = parts
        self._git = ShadowRepository(parts.sandbox, parts.git, parts.folder / "store")
        self._runs: LruMap[str, bool] = LruMap(MAX_RUNS)
        self._paused: LruMap[Path, float] = LruMap(MAX_RUNS)
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    async def before(self, scope: Scope) -> str:
        workspace = Path(scope.workspace)
        async with self._holding(scope.workspace):
            if self._runs.get(scope.run) or self._is_paused(workspace):
                return ""
            self._runs.put(scope.run, value=True)
            try:
                with anyio.fail_after(CHECKPOINT_TIMEOUT):
                    await self._take(scope.workspace, scope.session, run=scope.run)
            except (HermesError, OSError, TimeoutError) as error:
                self._paused.put(workspace, self._parts.clock.monotonic() + RETRY_PAUSE)
                said = str(error) or f"it took longer than {CHECKPOINT_TIMEOUT:g} s"
                log.warning("no checkpoint of %s: %s", workspace, said)
                return f"No checkpoint was made of {workspace}: {said}"
        return ""

    async def take(self, workspace: str, session: str, reason: str = "") -> Checkpoint:
        async with self._holding(workspace):
            return await self._take(workspace, session, reason=reason)

    async def list(self, workspace: str) -> Sequence[Checkpoint]:
        await self._git.ready()
        return [kept.note.checkpoint for kept in await self._kept(short_hash(workspace))]

    async def restore(self, checkpoint: Checkpoint, session: str) -> RestoreResult:
        async with self._holding(checkpoint.workspace):
            kept = {
                one.note.checkpoint.id: one
                for one in await self._kept(short_hash(checkpoint.workspace))
            }
            then = kept.get(checkpoint.id)
            if then is None:
                raise UsageError("That checkpoint is no longer kept.")
            before = await self._take(checkpoint.workspace, session, reason="before a rollback")
            now = next(
                one
                for one in await self._kept(short_hash(checkpoint.workspace))
                if one.note.checkpoint.id == before.id
            )
            return await self._bring_back(now, then)

    @asynccontextmanager
    async def _holding(self, workspace: str) -> "AsyncGenerator[None]":
        """One at a time per workspace; they share an index."""
        lock = self._locks.setdefault(workspace, anyio.Lock())
        async with lock:
            yield

    def _is_paused(self, workspace: Path) -> bool:
        until = self._paused.get(workspace)
        return until is not None and self._parts.clock.monotonic() < until

    async def _take(
        self, workspace: str, session: str, *, run: str = "", reason: str = ""
    ) -> Checkpoint:
        folder = self._checked(workspace)
        await self._git.ready()
        clock, closed = self._parts.clock, self._parts.places.closed(OWNER, workspace)
        trees = TreeWriter(self._git, self._parts.keeping.limits, closed.covers)
        at = clock.now()
        try:
            roots = await trees.write(folder, at.timestamp())
        except SandboxError:
            # An index may remember what is gone; it was dropped, and all is looked at anew.
            roots = await trees.write(folder, at.timestamp())
        checkpoint = Checkpoint(
            id=new_id("cp"),
            workspace=workspace,
            session=session,
            at=at,
            run=run,
            reason=reason,
        )
        await self._commit(_CommitMessage(checkpoint=checkpoint, roots=roots))
        if self._parts.keeping.prune:
            await self._prune(short_hash(workspace))
        return checkpoint

    def _checked(self, workspace: str) -> Path:
        folder = Path(workspace)
        too_wide = {Path("/"), self._parts.home, self._parts.home.parent}
        if not folder.is_absolute() or folder.resolve() in {path.resolve() for path in too_wide}:
            raise UsageError(
                f"{folder} is too wide for checkpoints.", hint="Work in the folder of a project."
            )
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder.")
        if self._git.store.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"{folder} holds the checkpoints themselves.")
        return folder.resolve()

    async def _commit(self, note: _CommitMessage) -> None:
        listed = "".join(
            f"040000 tree {root.tree}\t{number}\n" for number, root in enumerate(note.roots)
        )
        tree = await self._git.sha("mktree", stdin=listed.encode())
        message = msgspec.json.encode(note)
        commit = await self._git.sha("commit-tree", tree, stdin=message)
        project = short_hash(note.checkpoint.workspace)
        await self._git.run("update-ref", f"{_REFS}/{project}/{note.checkpoint.id}", commit)
        about = {"workdir": note.checkpoint.workspace, "last_touch": note.checkpoint.at.timestamp()}
        projects = self._git.store / "projects"
        projects.mkdir(exist_ok=True)
        write_atomic(projects / f"{project}.json", msgspec.json.encode(about))

    async def _kept(self, project: str = "") -> "list[_StoredCheckpoint]":
        """The newest first; what cannot be read is none of ours."""
        where = f"{_REFS}/{project}" if project else _REFS
        form = "--format=%(refname)%00%(objectname)%00%(contents:subject)"
        raw = await self._git.data("for-each-ref", form, where)
        found: list[_StoredCheckpoint] = []
        for line in raw.split(b"\n"):
            ref, _, rest = line.partition(b"\0")
            commit, _, message = rest.partition(b"\0")
            with suppress(msgspec.DecodeError):
                note = msgspec.json.decode(message, type=_CommitMessage)
                found.append(_StoredCheckpoint(ref.decode(), commit.decode(), note))
        return sorted(found, key=lambda one: (one.note.checkpoint.at, one.ref), reverse=True)

    async def _bring_back(self, now: _StoredCheckpoint, then: _StoredCheckpoint) -> RestoreResult:
        folder = self._checked(then.note.checkpoint.workspace)
        present = {root.path: number for number, root in enumerate(now.note.roots)}
        written = removed = 0
        failed: list[str] = []
        for number, root in enumerate(then.note.roots):
            work = folder / root.path
            have = f"{now.commit}:{present[root.path]}" if root.path in present else EMPTY_TREE
            todo = await restore_steps(self._git, have, f"{then.commit}:{number}", root.skipped)
            gone = [step for step in todo if not step.blob]
            wrong = await self._each(gone, partial(self._remove, work))
            removed += len(gone) - len(wrong)
            failed += wrong
            wanted = [step for step in todo if step.blob]
            wrong = await self._write(work, wanted)
            written += len(wanted) - len(wrong)
            failed += wrong
        return RestoreResult(
            before=now.note.checkpoint,
            written=written,
            removed=removed,
            failed=tuple(failed[:MAX_FAILED]),
        )

    async def _write(self, work: Path, wanted: Sequence[RestoreStep]) -> "list[str]":
        failed: list[str] = []
        for batch in await batches(self._git, wanted) if wanted else []:
            data = dict(zip(batch, await contents(self._git, batch), strict=True))
            failed += await self._each(batch, partial(self._put, work, data))
        return failed

    def _put(self, work: Path, data: dict[RestoreStep, bytes], step: RestoreStep) -> None:
        restore_file(work, step, data[step], self._parts.places.closed(OWNER, str(work)).forbids)

    def _remove(self, work: Path, step: RestoreStep) -> None:
        remove_file(work, step, self._parts.places.closed(OWNER, str(work)).forbids)

    async def _each(
        self, wanted: Sequence[RestoreStep], do: Callable[[RestoreStep], None]
    ) -> "list[str]":
        """Those that could not be done, with the reason."""

        def work() -> list[str]:
            failed: list[str] = []
            for step in wanted:
                try:
                    do(step)
                except (OSError, ToolError) as error:
                    reason = error.strerror if isinstance(error, OSError) else str(error)
                    failed.append(f"{step.path}: {reason}")
            return failed

        return await anyio.to_thread.run_sync(work)

    async def _prune(self, project: str) -> None:
        """Drop what is too old or too much; the newest of a workspace always stays."""
        keeping = self._parts.keeping
        oldest = self._parts.clock.now() - timedelta(days=keeping.days)
        every = await self._kept()
        dropped = [one for one in every if _is_old(one, oldest)]
        mine = [one for one in every if one.ref.startswith(f"{_REFS}/{project}/")]
        dropped += [one for one in mine[max(keeping.snapshots, 1) :] if one not in dropped]
        dropped = [one for one in dropped if one not in mine[:1]]
        await self._drop(dropped, every)
        size, loose = await self._size()
        if dropped or loose > MAX_LOOSE:
            await self._pack()
            size, _ = await self._size()
        left = [one for one in every if one not in dropped and one not in mine[:1]]
        while size > keeping.limits.total and left:
            half = left[len(left) // 2 :]
            await self._drop(half, every)
            await self._pack()
            left = left[: len(left) // 2]
            size, _ = await self._size()

    async def _drop(
        self, kept: Sequence[_StoredCheckpoint], every: Sequence[_StoredCheckpoint]
    ) -> None:
        if not kept:
            return
        listed = "".join(f"delete {one.ref}\n" for one in kept)
        await self._git.run("update-ref", "--stdin", stdin=listed.encode())
        left = {_project(one) for one in every if one not in kept}
        for project in {_project(one) for one in kept} - left:
            # An index without a checkpoint would remember files that are cleared away now.
            for index in (self._git.store / "indexes").glob(f"{project}.*"):
                index.unlink(missing_ok=True)
            (self._git.store / "projects" / f"{project}.json").unlink(missing_ok=True)

    async def _size(self) -> tuple[int, int]:
        """Bytes of the repository, and how many files are not packed."""
        raw = await self._git.data("count-objects", "-v")
        facts = dict(line.split(": ") for line in raw.decode().splitlines() if ": " in line)
        return (int(facts["size"]) + int(facts["size-pack"])) << 10, int(facts["count"])

    async def _pack(self) -> None:
        await self._git.run("gc", "--quiet", "--prune=now")


def _is_old(kept: _StoredCheckpoint, oldest: datetime) -> bool:
    return kept.note.checkpoint.at < oldest


def _project(kept: _StoredCheckpoint) -> str:
    return kept.ref.split("/")[2]
