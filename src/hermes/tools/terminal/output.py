"""Keep output that is too long for the model in files it can read with read_file.

While a command runs, its output goes to an unnamed file, so that unredacted output never stays on
disk, even after a crash. The redacted output is then written under a name.
"""

import codecs
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.files import surplus_files
from hermes.kit.ids import new_id
from hermes.kit.tasks import background_tasks
from hermes.ports.protected_paths import principal_folder
from hermes.ports.sandbox import ProcessResult
from hermes.schema.scope import OWNER
from hermes.tools.terminal.output_cleaner import (
    StreamCleaner,
    drop_cut_beginning,
    drop_cut_end,
    join_ends,
    strip_controls,
)
from hermes.tools.terminal.shell import ShellExit, find_shell_exit, without_marks
from hermes.tools.tool_io import DEFAULT_LIMITS

log = logging.getLogger(__name__)

MAX_FILES = 100
MAX_TOTAL_BYTES = 512 * 1024 * 1024
"""Total size of all files."""
MAX_FILE_BYTES = 64 * 1024 * 1024
"""Size of one file: redacted output may be longer than the original."""
_BLOCK = 65_536


class OutputFiles:
    """A folder that keeps only the newest files, separately for the owner and everyone else."""

    def __init__(self, folder: Path, max_files: int = MAX_FILES) -> None:
        self._folder = folder
        self._max_files = max_files

    @contextmanager
    def opened(self, principal: str = OWNER) -> Generator["OutputFile | None"]:
        """Open a file for one command's output, or yield None if that fails."""
        try:
            folder = principal_folder(self._folder, principal)
            file = OutputFile(_open_unnamed(folder), folder)
        except OSError as error:
            log.warning("long output cannot be kept in %s: %s", self._folder, error)
            yield None
            return
        try:
            yield file
        finally:
            os.close(file.handle)

    def prune(self) -> None:
        for pattern in ("out_*", "of-*/out_*"):
            for old in surplus_files(self._folder.glob(pattern), self._max_files, MAX_TOTAL_BYTES):
                old.unlink(missing_ok=True)


def _open_unnamed(folder: Path) -> int:
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / new_id("raw")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    path.unlink()
    return handle


class OutputFile:
    """The raw output of one command, readable through `handle`."""

    def __init__(self, handle: int, folder: Path) -> None:
        self.handle = handle
        self._folder = folder

    @property
    def path(self) -> str:
        """A path to the file that only our own process can open."""
        return f"/dev/fd/{self.handle}"

    def keep(self, clean: Callable[[str], str]) -> Path:
        """Write the whole output under a name, cleaned piece by piece in bounded memory."""
        return self._write(self._cleaned(StreamCleaner(clean)))

    def write_cleaned(self, text: str) -> Path:
        """Write this text instead, which is cleaned already."""
        return self._write([text])

    def _cleaned(self, cleaner: StreamCleaner) -> Iterator[str]:
        os.lseek(self.handle, 0, os.SEEK_SET)
        raw = os.fdopen(os.dup(self.handle), encoding="utf-8", errors="replace", newline="")
        with raw:
            while text := raw.read(_BLOCK):
                yield cleaner.add(text)
        yield cleaner.finish()

    def _write(self, pieces: Iterable[str]) -> Path:
        path = self._folder / f"{new_id('out')}.txt"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                room = MAX_FILE_BYTES
                for piece in pieces:
                    data = piece.encode("utf-8", "replace")
                    file.write(data[:room])
                    room -= len(data)
                    if room < 0:
                        file.write(b"\n[the rest was not kept]\n")
                        break
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path


PROGRESS_EVERY = 0.1
PROGRESS_LENGTH = 2_000
PROGRESS_KEPT = 32_000


class OutputView(Struct, frozen=True):
    """Output as shown to the model.

    `mark` is the exit reported by the shell, `full` the file with the complete output.
    """

    text: str
    mark: ShellExit | None
    cut: bool = False
    full: Path | None = None


class OutputViewer:
    """Cleans and shortens a command's output for the model and for progress messages."""

    def __init__(
        self,
        redact: Callable[[str], str],
        files: OutputFiles,
        max_chars: int = DEFAULT_LIMITS.output,
    ) -> None:
        """`max_chars`: characters shown to the model, more from the end than from the beginning."""
        self._redact = redact
        self._files = files
        self._max_chars = max_chars

    async def view(self, done: ProcessResult, spill: OutputFile | None) -> OutputView:
        """Return what the model sees, with a file of the full output if that was cut."""
        if done.seam is not None:
            first = _decode(done.output[: done.seam])
            last = drop_cut_beginning(_decode(done.output[done.seam :]))
            kept = await self._keep(partial(spill.keep, self._clean)) if spill else None
            begin, end = self._clean(drop_cut_end(first)), self._clean(last)
            shown = join_ends(begin, end, done.total, self._max_chars)
            return OutputView(shown, find_shell_exit(first, last), True, kept)
        raw = _decode(done.output)
        text, mark = self._clean(raw), find_shell_exit(raw, raw)
        if len(text) <= self._max_chars:
            return OutputView(text, mark)
        kept = await self._keep(partial(spill.write_cleaned, text)) if spill else None
        return OutputView(join_ends(text, text, len(text), self._max_chars), mark, True, kept)

    def progress(self, send: Callable[[str], Awaitable[None]], clock: Clock) -> "ProgressReporter":
        return ProgressReporter(send, clock, self._clean)

    def _clean(self, text: str) -> str:
        return self._redact(strip_controls(without_marks(text)))

    async def _keep(self, write: Callable[[], Path]) -> Path | None:
        """Write the full output; None if that fails."""
        try:
            path = await anyio.to_thread.run_sync(write)
            self._files.prune()
        except OSError as error:
            log.warning("the full output cannot be kept: %s", error)
            return None
        return path


class ProgressReporter:
    """Sends complete lines as progress: the first ones immediately, then at a limited rate."""

    def __init__(
        self, send: Callable[[str], Awaitable[None]], clock: Clock, clean: Callable[[str], str]
    ) -> None:
        self._send = send
        self._clock = clock
        self._clean = clean
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self._cut = False
        self._has_line = anyio.Event()

    async def feed(self, data: bytes) -> None:
        self._pending += self._decoder.decode(data)
        if len(self._pending) > PROGRESS_KEPT:
            self._pending = self._pending[-PROGRESS_KEPT:]
            self._cut = True
        if "\n" in self._pending:
            self._has_line.set()

    @asynccontextmanager
    async def reporting(self) -> AsyncGenerator[None]:
        """Report during the block, with the last lines at its end."""
        async with background_tasks() as group:
            group.start_soon(self._report)
            yield
            await self._send_lines()

    async def _report(self) -> None:
        while True:
            await self._has_line.wait()
            self._has_line = anyio.Event()
            await self._send_lines()
            await self._clock.sleep(PROGRESS_EVERY)

    async def _send_lines(self) -> None:
        lines, newline, self._pending = self._pending.rpartition("\n")
        if self._cut:
            lines = lines.partition("\n")[2]
            self._cut = False
        text = self._clean(lines + newline)[-PROGRESS_LENGTH:]
        if text.strip():
            await self._send(text)


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")
