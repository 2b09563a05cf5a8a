"""Run jobs isolated by a backend such as bubblewrap or landlock."""

import errno
import logging
import os
import stat
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

from anyio import CancelScope
from anyio.to_thread import run_sync
from msgspec import structs

from hermes.config.env import DEFAULT_PATH
from hermes.ports.sandbox import Confinement, Process, ProcessExit, ProcessResult, ProcessSpec
from hermes.sandbox.child_env import isolated_env
from hermes.sandbox.git_config import NO_OWNER_CONFIG, OwnerGitConfig
from hermes.sandbox.git_guard import MAX_SCANNED_FOLDERS, GitGuard
from hermes.sandbox.git_scan import RepositoryScanner
from hermes.sandbox.local import SPILL_LIMIT, OnOutput, OutputCapture, run_to_end, spawn_request
from hermes.sandbox.spawner import Child, NotStarted, Spawner, SpawnRequest
from hermes.schema.errors import SandboxError

log = logging.getLogger(__name__)

_MAX_SHOWN = 300
"""How many bytes of a backend's error output are shown."""


class IsolationBackend(Protocol):
    """Turns a command into the same command in isolation."""

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str:
        """The name shown to people."""
        ...

    @property
    def protects_files(self) -> bool:
        """Whether it can protect single files in a writable folder."""
        ...

    @property
    def complete(self) -> bool:
        """Whether nothing outside the writable folders can be changed."""
        ...

    def wrap(self, start: SpawnRequest, job: ProcessSpec) -> SpawnRequest:
        """Return the command to start instead. Raises `SandboxError`."""
        ...

    def translate_exit(self, ended: ProcessExit) -> ProcessExit:
        """Translate the exit of the isolated process into that of the command."""
        ...


class IsolatedSandbox:
    """Isolates jobs from the machine, unless their permissions go beyond it.

    Files that a command planted for the owner's git are set aside when it has ended, and the
    output ends with a note about them; `owner` is where that git finds its settings. Paths that
    the backend shows or hides may vanish during the start, as sockets do: the start is then
    repeated once, without widening the permissions.
    """

    def __init__(
        self,
        spawner: Spawner,
        backend: IsolationBackend,
        *,
        spill_limit: int = SPILL_LIMIT,
        owner: OwnerGitConfig = NO_OWNER_CONFIG,
        max_folders: int = MAX_SCANNED_FOLDERS,
    ) -> None:
        self._spawner = spawner
        self._backend = backend
        self._owner = owner
        self._max_folders = max_folders
        self._scan = RepositoryScanner()
        self._spill_limit = spill_limit

    @property
    def name(self) -> str:
        return self._backend.name

    @property
    def isolation(self) -> str:
        return self._backend.label

    async def confinement(self) -> Confinement:
        return Confinement(self.isolation, complete=self._backend.complete)

    async def run(
        self, job: ProcessSpec, on_output: OnOutput | None = None, *, pty: bool = False
    ) -> ProcessResult:
        try:
            return await self._run(job, on_output, pty=pty)
        except NotStarted as error:
            if error.held_paths is None or job.permissions.unsandboxed:
                raise
            return await self._run(job, on_output, error.held_paths, pty=pty)

    async def _run(
        self,
        job: ProcessSpec,
        on_output: OnOutput | None,
        known: frozenset[str] | None = None,
        *,
        pty: bool,
    ) -> ProcessResult:
        capture = OutputCapture(job.keep, job.overflow_file, self._spill_limit)
        try:
            has_stdin = pty or bool(job.stdin)
            opening = self._open_process(job, has_stdin=has_stdin, pty=pty, known=known)
            async with opening as process:
                result = await run_to_end(process, job, capture, on_output)
        except NotStarted as error:
            error.output = capture.kept()[-_MAX_SHOWN:].decode("utf-8", "replace").strip()
            raise
        finally:
            capture.close()
        return _with_notes(result, process.notes)

    @asynccontextmanager
    async def open(self, job: ProcessSpec, *, pty: bool = False) -> AsyncGenerator[Process]:
        async with AsyncExitStack() as stack:
            process = await stack.enter_async_context(
                self._open_process(job, has_stdin=True, pty=pty)
            )
            await process.wait_started()
            missed = await process.missing_paths()
            if missed is not None and not job.permissions.unsandboxed:
                await stack.aclose()
                again = self._open_process(job, has_stdin=True, pty=pty, known=missed)
                process = await stack.enter_async_context(again)
                await process.wait_started()
            yield process

    @asynccontextmanager
    async def _open_process(
        self, job: ProcessSpec, *, has_stdin: bool, pty: bool, known: frozenset[str] | None = None
    ) -> AsyncGenerator["_IsolatedProcess"]:
        start = spawn_request(job, has_stdin=has_stdin, pty=pty)
        if job.permissions.unsandboxed or not job.argv:
            async with self._spawner.open(start) as child:
                yield _IsolatedProcess(child, None)
            return
        start = structs.replace(start, env=isolated_env(start.env))
        guard = await run_sync(self._open_guard, job) if job.permissions.writable else None
        notes = self._read_only_notes(guard, start, job) if guard else []
        read_only = tuple(guard.read_only) if guard else ()
        reach = structs.replace(job.permissions, read_only=read_only)
        try:
            isolated = self._backend.wrap(start, structs.replace(job, permissions=reach))
            if known is not None and not known.issuperset(isolated.held_paths):
                raise SandboxError(f"{start.label}: its folders changed while it was starting")
            async with self._spawner.open(isolated) as child:
                yield _IsolatedProcess(child, self._backend, notes)
        finally:
            if guard:
                with CancelScope(shield=True):
                    notes += await run_sync(guard.undo_planted)
            for note in notes:
                log.warning("%s: %s", start.label, note)

    def _open_guard(self, job: ProcessSpec) -> GitGuard:
        """Scan for git repositories; slow in a large folder."""
        return GitGuard(
            job.permissions.writable,
            can_protect=self._backend.protects_files,
            owner=self._owner,
            scan=self._scan,
            max_folders=self._max_folders,
        )

    def _read_only_notes(self, guard: GitGuard, start: SpawnRequest, job: ProcessSpec) -> list[str]:
        """Explain why more is read-only than usual. Raises `SandboxError` if it cannot be."""
        limit = f"more than {self._max_folders:,} folders, or unreadable ones"
        why = f"it could not be checked for git repositories: {limit}"
        hint = "Work in a smaller folder, or ask to run the command outside the sandbox."
        if guard.unread and not self._backend.protects_files:
            raise SandboxError(f"{start.label}: {', '.join(guard.unread)}: {why}", hint=hint)
        notes = [f"{path} was read-only: {why}. {hint}" for path in guard.unread]
        too_many = "there are too many git repositories to protect each one"
        notes += [f"{path} was read-only: {too_many}. {hint}" for path in guard.crowded]
        closed = {os.path.realpath(folder) for folder in job.permissions.writable} & {
            *guard.read_only
        }
        configured = "git's settings use it for programs or hooks"
        return notes + [
            f"{path} was read-only: {configured}"
            for path in closed - {*guard.unread, *guard.crowded}
        ]


class _IsolatedProcess:
    """A child that reports the command instead of the isolation around it."""

    def __init__(
        self, child: Child, backend: IsolationBackend | None, notes: Sequence[str] = ()
    ) -> None:
        self._child = child
        self._backend = backend
        self.notes = notes
        """Complete once the context has exited."""
        self.read = child.read
        self.read_stderr = child.read_stderr
        self.write_stdin = child.write_stdin
        self.close_stdin = child.close_stdin
        self.wait_started = child.wait_started
        self.end = child.end

    @property
    def pid(self) -> int:
        return self._child.pid

    async def missing_paths(self) -> frozenset[str] | None:
        """For a process that did not start: the paths to be held, if one of them was missing."""
        if self._child.pid:
            return None
        try:
            await self._child.wait()
        except NotStarted as error:
            return error.held_paths
        except SandboxError:
            return None
        return None

    async def wait(self) -> ProcessExit:
        ended = await self._child.wait()
        return self._backend.translate_exit(ended) if self._backend else ended


def _with_notes(result: ProcessResult, notes: Sequence[str]) -> ProcessResult:
    if not notes:
        return result
    text = "".join(f"\n[sandbox: {note}]" for note in notes).encode("utf-8", "replace") + b"\n"
    return structs.replace(result, output=result.output + text, total=result.total + len(text))


def require_folder(start: SpawnRequest) -> None:
    """Refuse to start when the folder is gone, instead of starting outside the sandbox.

    Raises `SandboxError` like the spawner.
    """
    try:
        number = 0 if stat.S_ISDIR(Path(start.cwd).stat().st_mode) else errno.ENOTDIR
    except OSError as error:
        number = error.errno or errno.ENOENT
    except ValueError:
        number = 0
    if number:
        raise SandboxError(f"{start.label}: could not be started: {os.strerror(number)}")


def hidden_folder_error(start: SpawnRequest) -> SandboxError:
    return SandboxError(
        f"{start.label}: {start.cwd} is hidden from commands",
        hint="Start in the workspace or in /tmp.",
    )


def find_program(start: SpawnRequest) -> str:
    """Find the file to execute. Raises `SandboxError` like the spawner if there is none."""
    name = start.argv[0]
    folders = start.env.get("PATH", DEFAULT_PATH).split(":") if "/" not in name else [""]
    number = errno.ENOENT
    for folder in folders:
        path = Path(start.cwd, folder, name)
        if path.is_file():
            if os.access(path, os.X_OK):
                return str(path)
            number = errno.EACCES
        elif path.is_dir() and "/" in name:
            number = errno.EACCES
    raise SandboxError(f"{start.label}: could not be started: {os.strerror(number)}")
