"""Run a job behind a wall: the same door and the same following, another beginning."""

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

from hermes.ports.sandbox import Confinement, Process, ProcessExit, ProcessResult, ProcessSpec
from hermes.sandbox.capture import SPILL_LIMIT, OnOutput, OutputCapture, run_to_end
from hermes.sandbox.child_env import DEFAULT_PATH, isolated_env
from hermes.sandbox.git_config import NO_OWNER_CONFIG, OwnerGitConfig
from hermes.sandbox.git_guard import MAX_SCANNED_FOLDERS, GitGuard
from hermes.sandbox.git_scan import RepositoryScanner
from hermes.sandbox.local import spawn_request
from hermes.sandbox.spawner import Child, NotStarted, Spawner, SpawnRequest
from hermes.schema.errors import SandboxError

log = logging.getLogger(__name__)

_MAX_SHOWN = 300
"""Bytes of what a wall said that could not be put up."""


class IsolationBackend(Protocol):
    """What turns a command into the same command behind a wall."""

    @property
    def name(self) -> str: ...

    @property
    def word(self) -> str:
        """What holds the process back, for people."""
        ...

    @property
    def guards(self) -> bool:
        """Whether it keeps single files in a folder that may be changed from being changed."""
        ...

    @property
    def complete(self) -> bool:
        """Whether nothing outside of what a job may change can be changed."""
        ...

    def around(self, start: SpawnRequest, job: ProcessSpec) -> SpawnRequest:
        """The command to start instead. Raises `SandboxError`."""
        ...

    def ended(self, how: ProcessExit) -> ProcessExit:
        """How the command ended, seen from how the wall did."""
        ...


class IsolatedSandbox:
    """`wall` stands between a job and the machine, unless its reach goes beyond.

    What a command planted for the owner's git is set aside when it has ended, and the output
    ends with a line that says so; `owner` is where that git finds its settings. What the wall
    shows or hides may vanish while it is being put up, as sockets do: then it is looked at once
    more, and nothing may be seen or changed that was not before.
    """

    def __init__(
        self,
        door: Spawner,
        wall: IsolationBackend,
        *,
        spill_limit: int = SPILL_LIMIT,
        owner: OwnerGitConfig = NO_OWNER_CONFIG,
        most_folders: int = MAX_SCANNED_FOLDERS,
    ) -> None:
        self._door = door
        self._wall = wall
        self._owner = owner
        self._most_folders = most_folders
        self._scan = RepositoryScanner()
        self._spill_limit = spill_limit

    @property
    def name(self) -> str:
        return self._wall.name

    @property
    def wall(self) -> str:
        return self._wall.word

    async def confinement(self) -> Confinement:
        return Confinement(self.wall, complete=self._wall.complete)

    async def run(
        self, job: ProcessSpec, heard: OnOutput | None = None, *, pty: bool = False
    ) -> ProcessResult:
        try:
            return await self._run(job, heard, pty=pty)
        except NotStarted as error:
            if error.missed is None or job.reach.beyond:
                raise
            return await self._run(job, heard, error.missed, pty=pty)

    async def _run(
        self,
        job: ProcessSpec,
        heard: OnOutput | None,
        known: frozenset[str] | None = None,
        *,
        pty: bool,
    ) -> ProcessResult:
        keeping = OutputCapture(job.keep, job.spill, self._spill_limit)
        try:
            talk = pty or bool(job.stdin)
            opened = self._opened(job, talk=talk, pty=pty, known=known)
            async with opened as process:
                done = await run_to_end(process, job, keeping, heard)
        except NotStarted as error:
            error.said = keeping.kept()[-_MAX_SHOWN:].decode("utf-8", "replace").strip()
            raise
        finally:
            keeping.close()
        return _with_notes(done, process.notes)

    @asynccontextmanager
    async def open(self, job: ProcessSpec, *, pty: bool = False) -> AsyncGenerator[Process]:
        async with AsyncExitStack() as stack:
            process = await stack.enter_async_context(self._opened(job, talk=True, pty=pty))
            await process.begin()
            missed = await process.missed()
            if missed is not None and not job.reach.beyond:
                await stack.aclose()
                again = self._opened(job, talk=True, pty=pty, known=missed)
                process = await stack.enter_async_context(again)
                await process.begin()
            yield process

    @asynccontextmanager
    async def _opened(
        self, job: ProcessSpec, *, talk: bool, pty: bool, known: frozenset[str] | None = None
    ) -> AsyncGenerator["_IsolatedProcess"]:
        start = spawn_request(job, talk=talk, pty=pty)
        if job.reach.beyond or not job.argv:
            async with self._door.open(start) as child:
                yield _IsolatedProcess(child, None)
            return
        start = structs.replace(start, env=isolated_env(start.env))
        armed = await run_sync(self._open_guard, job) if job.reach.writable else None
        notes = self._told(armed, start, job) if armed else []
        read_only = tuple(armed.read_only) if armed else ()
        reach = structs.replace(job.reach, read_only=read_only)
        try:
            walled = self._wall.around(start, structs.replace(job, reach=reach))
            if known is not None and not known.issuperset(walled.places):
                raise SandboxError(f"{start.called}: its folders were moved while it was started")
            async with self._door.open(walled) as child:
                yield _IsolatedProcess(child, self._wall, notes)
        finally:
            if armed:
                with CancelScope(shield=True):
                    notes += await run_sync(armed.since)
            for note in notes:
                log.warning("%s: %s", start.called, note)

    def _open_guard(self, job: ProcessSpec) -> GitGuard:
        """May take a while in a large folder."""
        return GitGuard(
            job.reach.writable,
            kept=self._wall.guards,
            owner=self._owner,
            scan=self._scan,
            most=self._most_folders,
        )

    def _told(self, armed: GitGuard, start: SpawnRequest, job: ProcessSpec) -> list[str]:
        """Why more than usual is read-only. Raises `SandboxError` where it cannot be made so."""
        many = f"there are more than {self._most_folders:,} folders, or it cannot be read"
        why = f"it could not be checked for git repositories: {many}"
        hint = "Work in a smaller folder, or ask to run the command outside of the sandbox."
        if armed.unread and not self._wall.guards:
            raise SandboxError(f"{start.called}: {', '.join(armed.unread)}: {why}", hint=hint)
        notes = [f"{path} was read-only: {why}. {hint}" for path in armed.unread]
        crowd = "there are too many git repositories to protect each of them"
        notes += [f"{path} was read-only: {crowd}. {hint}" for path in armed.crowded]
        closed = {os.path.realpath(folder) for folder in job.reach.writable} & {*armed.read_only}
        named = "git's settings name it as a place of programs or hooks"
        return notes + [
            f"{path} was read-only: {named}" for path in closed - {*armed.unread, *armed.crowded}
        ]


class _IsolatedProcess:
    """A child that tells of the command, not of the wall around it."""

    def __init__(
        self, child: Child, wall: IsolationBackend | None, notes: Sequence[str] = ()
    ) -> None:
        self._child = child
        self._wall = wall
        self.notes = notes
        """Complete once the block is left."""
        self.read = child.read
        self.complaint = child.complaint
        self.feed = child.feed
        self.hang_up = child.hang_up
        self.begin = child.begin
        self.end = child.end

    @property
    def pid(self) -> int:
        return self._child.pid

    async def missed(self) -> frozenset[str] | None:
        """Of one that was not begun: the places that were to be held, if something was gone."""
        if self._child.pid:
            return None
        try:
            await self._child.wait()
        except NotStarted as error:
            return error.missed
        except SandboxError:
            return None
        return None

    async def wait(self) -> ProcessExit:
        how = await self._child.wait()
        return self._wall.ended(how) if self._wall else how


def _with_notes(done: ProcessResult, notes: Sequence[str]) -> ProcessResult:
    if not notes:
        return done
    said = "".join(f"\n[sandbox: {note}]" for note in notes).encode("utf-8", "replace") + b"\n"
    return structs.replace(done, output=done.output + said, total=done.total + len(said))


def require_folder(start: SpawnRequest) -> None:
    """No command begins outside a wall because its folder was gone for a moment.

    Raises `SandboxError` as the door does.
    """
    try:
        number = 0 if stat.S_ISDIR(Path(start.cwd).stat().st_mode) else errno.ENOTDIR
    except OSError as error:
        number = error.errno or errno.ENOENT
    except ValueError:
        number = 0
    if number:
        raise SandboxError(f"{start.called}: it could not be started: {os.strerror(number)}")


def hidden_folder_error(start: SpawnRequest) -> SandboxError:
    return SandboxError(
        f"{start.called}: {start.cwd} is hidden from commands",
        hint="Begin in the workspace or in /tmp.",
    )


def find_program(start: SpawnRequest) -> str:
    """The file to execute. Raises `SandboxError` as the door does when there is none."""
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
    raise SandboxError(f"{start.called}: it could not be started: {os.strerror(number)}")
