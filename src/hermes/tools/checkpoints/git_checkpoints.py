"""Store checkpoints of all workspaces in one shadow git repository.

A checkpoint is a commit without parents under its own ref, so that each can be deleted separately:
`refs/hermes/<workspace>/<id>`. Its tree has one numbered folder per work tree, its message is JSON.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

import anyio
import msgspec
from msgspec import Raw, Struct

from hermes.kit.clock import Clock
from hermes.kit.files import write_atomic
from hermes.kit.ids import new_id
from hermes.kit.lru_map import LruMap
from hermes.ports.checkpoints import Checkpoint, RestoreResult
from hermes.ports.sandbox import Sandbox
from hermes.schema.errors import HermesError, SandboxError, ToolError, UsageError
from hermes.schema.scope import OWNER, Scope
from hermes.tools.checkpoints.repository import (
    EMPTY_TREE,
    RestoreStep,
    RetentionPolicy,
    ShadowRepository,
    TreeRoot,
    TreeWriter,
    batches,
    contents,
    remove_file,
    restore_file,
    restore_steps,
    short_hash,
)
from hermes.tools.paths import SessionPaths

log = logging.getLogger(__name__)

CHECKPOINT_TIMEOUT = 25.0
"""Seconds a change waits for its checkpoint."""
RETRY_PAUSE = 600.0
"""Seconds after a failure before the next attempt."""
MAX_RUNS = 512
MAX_LOOSE = 2_000
"""Loose objects in the repository after which it is packed."""
MAX_FAILED = 20
_REFS = "refs/hermes"


class CheckpointDeps(Struct, frozen=True, kw_only=True):
    """`git` is the path of git, None if it is not installed; `home` is the user's home folder."""

    sandbox: Sandbox
    git: str | None
    folder: Path
    paths: SessionPaths
    clock: Clock
    home: Path
    retention: RetentionPolicy = RetentionPolicy()


class _CommitMessage(Struct, frozen=True, kw_only=True):
    checkpoint: Checkpoint
    roots: list[TreeRoot]


class _StoredCheckpoint(Struct, frozen=True):
    ref: str
    commit: str
    message: _CommitMessage


class GitCheckpoints:
    def __init__(self, deps: CheckpointDeps) -> None:
        self._deps = deps
        self._git = ShadowRepository(deps.sandbox, deps.git, deps.folder / "store")
        self._runs: LruMap[str, bool] = LruMap(MAX_RUNS)
        self._paused: LruMap[Path, float] = LruMap(MAX_RUNS)
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    async def checkpoint_before(self, scope: Scope, args: Raw) -> str:
        workspace = Path(scope.workspace)
        async with self._lock(scope.workspace):
            paused_until = self._paused.get(workspace) or float("-inf")
            if self._runs.get(scope.run) or self._deps.clock.monotonic() < paused_until:
                return ""
            self._runs.put(scope.run, value=True)
            try:
                with anyio.fail_after(CHECKPOINT_TIMEOUT):
                    await self._take(scope.workspace, scope.session, run=scope.run)
            except (HermesError, OSError, TimeoutError) as error:
                self._paused.put(workspace, self._deps.clock.monotonic() + RETRY_PAUSE)
                reason = str(error) or f"it took longer than {CHECKPOINT_TIMEOUT:g} s"
                log.warning("no checkpoint of %s: %s", workspace, reason)
                return f"No checkpoint was made of {workspace}: {reason}"
        return ""

    async def changed(self, run: str) -> bool | None:
        """Comparing would take about a second."""
        return None

    async def take(self, workspace: str, session: str, reason: str = "") -> Checkpoint:
        async with self._lock(workspace):
            return await self._take(workspace, session, reason=reason)

    async def list(self, workspace: str) -> Sequence[Checkpoint]:
        await self._git.ensure_created()
        return [stored.message.checkpoint for stored in await self._stored(short_hash(workspace))]

    async def restore(self, checkpoint: Checkpoint, session: str) -> RestoreResult:
        async with self._lock(checkpoint.workspace):
            then = await self._find(checkpoint)
            before = await self._take(checkpoint.workspace, session, reason="before a rollback")
            return await self._restore(await self._find(before), then)

    async def _find(self, checkpoint: Checkpoint) -> _StoredCheckpoint:
        for stored in await self._stored(short_hash(checkpoint.workspace)):
            if stored.message.checkpoint.id == checkpoint.id:
                return stored
        raise UsageError("That checkpoint no longer exists.")

    def _lock(self, workspace: str) -> anyio.Lock:
        """Serialize work on a workspace: its checkpoints share an index."""
        return self._locks.setdefault(workspace, anyio.Lock())

    async def _take(
        self, workspace: str, session: str, *, run: str = "", reason: str = ""
    ) -> Checkpoint:
        folder = self._checked(workspace)
        await self._git.ensure_created()
        clock, blocked = self._deps.clock, self._deps.paths.blocked(OWNER, workspace)
        trees = TreeWriter(self._git, self._deps.retention.limits, blocked.covers)
        at = clock.now()
        try:
            roots = await trees.write(folder, at.timestamp())
        except SandboxError:
            # The stale index was deleted, so the second attempt starts from scratch.
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
        if self._deps.retention.prune:
            await self._prune(short_hash(workspace))
        return checkpoint

    def _checked(self, workspace: str) -> Path:
        folder = Path(workspace)
        too_wide = {Path("/"), self._deps.home, self._deps.home.parent}
        if not folder.is_absolute() or folder.resolve() in {path.resolve() for path in too_wide}:
            raise UsageError(
                f"{folder} is too broad for checkpoints.", hint="Work in a project folder."
            )
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder.")
        if self._git.store.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"{folder} contains the checkpoints themselves.")
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

    async def _stored(self, project: str = "") -> "list[_StoredCheckpoint]":
        """Return the stored checkpoints, newest first, ignoring other refs."""
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
        return sorted(
            found,
            key=lambda checkpoint: (checkpoint.message.checkpoint.at, checkpoint.ref),
            reverse=True,
        )

    async def _restore(self, now: _StoredCheckpoint, then: _StoredCheckpoint) -> RestoreResult:
        folder = self._checked(then.message.checkpoint.workspace)
        present = {root.path: number for number, root in enumerate(now.message.roots)}
        written = removed = 0
        failed: list[str] = []
        for number, root in enumerate(then.message.roots):
            work = folder / root.path
            have = f"{now.commit}:{present[root.path]}" if root.path in present else EMPTY_TREE
            todo = await restore_steps(self._git, have, f"{then.commit}:{number}", root.skipped)
            removals = [step for step in todo if not step.blob]
            errors = await self._perform(removals, partial(self._remove, work))
            removed += len(removals) - len(errors)
            failed += errors
            writes = [step for step in todo if step.blob]
            errors = await self._write(work, writes)
            written += len(writes) - len(errors)
            failed += errors
        return RestoreResult(
            before=now.message.checkpoint,
            written=written,
            removed=removed,
            failed=tuple(failed[:MAX_FAILED]),
        )

    async def _write(self, work: Path, wanted: Sequence[RestoreStep]) -> "list[str]":
        failed: list[str] = []
        for batch in await batches(self._git, wanted) if wanted else []:
            data = dict(zip(batch, await contents(self._git, batch), strict=True))
            failed += await self._perform(batch, partial(self._restore_file, work, data))
        return failed

    def _restore_file(self, work: Path, data: dict[RestoreStep, bytes], step: RestoreStep) -> None:
        restore_file(work, step, data[step], self._deps.paths.blocked(OWNER, str(work)).forbids)

    def _remove(self, work: Path, step: RestoreStep) -> None:
        remove_file(work, step, self._deps.paths.blocked(OWNER, str(work)).forbids)

    async def _perform(
        self, wanted: Sequence[RestoreStep], do: Callable[[RestoreStep], None]
    ) -> "list[str]":
        """Perform the steps and return those that failed, with the reason."""

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
        """Delete checkpoints beyond the limits, except the newest of each workspace."""
        keeping = self._deps.retention
        oldest = self._deps.clock.now() - timedelta(days=keeping.days)
        stored = await self._stored()
        dropped = [checkpoint for checkpoint in stored if checkpoint.message.checkpoint.at < oldest]
        own = [
            checkpoint for checkpoint in stored if checkpoint.ref.startswith(f"{_REFS}/{project}/")
        ]
        dropped += [
            checkpoint
            for checkpoint in own[max(keeping.snapshots, 1) :]
            if checkpoint not in dropped
        ]
        dropped = [checkpoint for checkpoint in dropped if checkpoint not in own[:1]]
        await self._drop(dropped, stored)
        size, loose = await self._size()
        if dropped or loose > MAX_LOOSE:
            await self._pack()
            size, _ = await self._size()
        remaining = [
            checkpoint
            for checkpoint in stored
            if checkpoint not in dropped and checkpoint not in own[:1]
        ]
        while size > keeping.limits.total and remaining:
            half = remaining[len(remaining) // 2 :]
            await self._drop(half, stored)
            await self._pack()
            remaining = remaining[: len(remaining) // 2]
            size, _ = await self._size()

    async def _drop(
        self, dropped: Sequence[_StoredCheckpoint], stored: Sequence[_StoredCheckpoint]
    ) -> None:
        if not dropped:
            return
        listed = "".join(f"delete {checkpoint.ref}\n" for checkpoint in dropped)
        await self._git.run("update-ref", "--stdin", stdin=listed.encode())
        remaining = {_project(checkpoint) for checkpoint in stored if checkpoint not in dropped}
        for project in {_project(checkpoint) for checkpoint in dropped} - remaining:
            # An index without a checkpoint would refer to objects that are deleted now.
            for index in (self._git.store / "indexes").glob(f"{project}.*"):
                index.unlink(missing_ok=True)
            (self._git.store / "projects" / f"{project}.json").unlink(missing_ok=True)

    async def _size(self) -> tuple[int, int]:
        """Return the bytes of the repository and its number of loose objects."""
        raw = await self._git.data("count-objects", "-v")
        facts = dict(line.split(": ") for line in raw.decode().splitlines() if ": " in line)
        return (int(facts["size"]) + int(facts["size-pack"])) << 10, int(facts["count"])

    async def _pack(self) -> None:
        await self._git.run("gc", "--quiet", "--prune=now")


def _project(stored: _StoredCheckpoint) -> str:
    return stored.ref.split("/")[2]
