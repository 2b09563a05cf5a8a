"""The `terminal` tool: one shell command at a time, in the folder the last one left us in."""

import codecs
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from hermes.kit.clock import Clock
from hermes.kit.text import HEAD
from hermes.ports.sandbox import Finished, Job, Sandbox
from hermes.ports.tool import Output, ToolContext
from hermes.schema.errors import SandboxError, ToolError
from hermes.schema.messages import Message, text_of
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect, ToolSpec
from hermes.tools.arguments import Arguments, description, result
from hermes.tools.places import Places, is_folder
from hermes.tools.terminal.exit_codes import as_shell, is_benign, meaning
from hermes.tools.terminal.plain import plain
from hermes.tools.terminal.shell import MAX_COMMAND, Shell, new_mark, split_mark
from hermes.tools.terminal.spills import Spill, Spills
from hermes.tools.transcript import results

log = logging.getLogger(__name__)

MAX_TIMEOUT = 600
MAX_OUTPUT = 50_000
"""Characters the model sees: `FRONT` from the beginning, the rest from the end."""
FRONT = int(MAX_OUTPUT * HEAD)
KEEP = MAX_OUTPUT * 4
PROGRESS_EVERY = 0.1
PROGRESS_LENGTH = 2_000
PROGRESS_KEPT = 32_000
TORN = 4_096
"""Characters beside a cut that may be half of a secret, when no line ends before."""
_FOREGROUND = "Commands run in the foreground, without a terminal of their own."


class TerminalArgs(Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    timeout: Annotated[int, Meta(ge=0, le=MAX_TIMEOUT, description="Seconds, default 180")] = 0
    workdir: Annotated[str, Meta(description="For this command only")] = ""


class TerminalResult(Struct, frozen=True, kw_only=True):
    output: str
    exit_code: int
    error: str | None = None
    exit_code_meaning: str | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    full_output: str | UnsetType = UNSET
    note: str | UnsetType = UNSET


class _Moved(Struct, frozen=True):
    """The part of an answer that says where the shell stands from then on."""

    cwd: str = ""


_MOVED = msgspec.json.Decoder(_Moved)


class TerminalParts(Struct, frozen=True, kw_only=True):
    """What the tool is made of; `env` builds a child's environment, `redact` masks secrets."""

    sandbox: Sandbox
    shell: Shell
    env: Callable[[Scope], dict[str, str]]
    places: Places
    spills: Spills
    redact: Callable[[str], str]
    clock: Clock
    timeout: float = 180.0


class Terminal:
    def __init__(self, parts: TerminalParts) -> None:
        self._parts = parts
        self._arguments = Arguments("terminal", TerminalArgs, hint=_FOREGROUND)
        self.spec = ToolSpec(
            "terminal",
            description(f"{Path(__file__).parent}/terminal"),
            self._arguments.schema,
            Effect.OUTSIDE,
            timeout=MAX_TIMEOUT + 20.0,
            toolset="terminal",
        )

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        asked = self._arguments.decode(args)
        _check(asked.command)
        if not asked.timeout:
            asked = structs.replace(asked, timeout=max(1, round(self._parts.timeout)))
        folder = self._folder(ctx.scope, asked.workdir)
        mark = new_mark()
        with self._parts.spills.opened() as spill:
            job = Job(
                argv=self._parts.shell.argv(asked.command, mark),
                cwd=str(folder),
                env=self._parts.env(ctx.scope),
                timeout=asked.timeout,
                keep=KEEP,
                spill=spill.path if spill else None,
            )
            try:
                done = await self._parts.sandbox.run(job, _Progress(ctx, self._parts, mark).hear)
            except SandboxError as error:
                raise ToolError(f"terminal: {error}", hint=error.hint) from error
            seen = await self._view(done, spill, mark)
        moved = seen.standing if seen.standing != folder and not asked.workdir else None
        if moved is not None:
            self._parts.places.move(ctx.scope.session, moved)
        return _output(asked, done, seen, moved)

    def restore(self, session: str, messages: Sequence[Message]) -> None:
        """Stand where the transcript says the shell stood last, if that folder is still there."""
        folders = (_folder_in(text_of(message)) for message in results(self.spec.name, messages))
        last = next((Path(folder) for folder in folders if folder), None)
        self._parts.places.move(session, last if last and is_folder(last) else None)

    def _folder(self, scope: Scope, workdir: str) -> Path:
        if not workdir:
            return self._parts.places.cwd(scope)
        folder = self._parts.places.find(scope, workdir)
        if not is_folder(folder):
            raise ToolError(f"terminal: `workdir` is not a folder: {folder}")
        return folder

    async def _view(self, done: Finished, spill: Spill | None, mark: str) -> "_View":
        """What the model sees, and the file that has all of it when this is less."""

        def clean(text: str) -> str:
            return self._parts.redact(plain(split_mark(text, mark)[0]))

        if done.seam is not None:
            begin = _without_end(_text(done.output[: done.seam]))
            end = _without_beginning(_text(done.output[done.seam :]))
            kept = await self._kept(partial(spill.keep, clean)) if spill else None
            standing = split_mark(end, mark)[1]
            return _View(_cut(clean(begin), clean(end), done.total), standing, True, kept)
        raw = _text(done.output)
        text, standing = clean(raw), split_mark(raw, mark)[1]
        if len(text) <= MAX_OUTPUT:
            return _View(text, standing)
        kept = await self._kept(partial(spill.keep_text, text)) if spill else None
        return _View(_cut(text[:FRONT], text[FRONT:], len(text)), standing, True, kept)

    async def _kept(self, write: Callable[[], Path]) -> Path | None:
        """The file with everything, unless the disk would not take it."""
        try:
            path = await anyio.to_thread.run_sync(write)
            self._parts.spills.prune()
        except OSError as error:
            log.warning("the full output is not kept: %s", error)
            return None
        return path


class _View(Struct, frozen=True):
    text: str
    standing: Path | None
    cut: bool = False
    full: Path | None = None


class _Progress:
    """Passes whole lines on to people, not more often than they can read."""

    def __init__(self, ctx: ToolContext, parts: TerminalParts, mark: str) -> None:
        self._ctx = ctx
        self._parts = parts
        self._mark = mark
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""
        self._torn = False
        self._told = float("-inf")

    async def hear(self, data: bytes) -> None:
        self._waiting += self._decoder.decode(data)
        if len(self._waiting) > PROGRESS_KEPT:
            self._waiting = self._waiting[-PROGRESS_KEPT:]
            self._torn = True
        now = self._parts.clock.monotonic()
        lines, newline, rest = self._waiting.rpartition("\n")
        if not newline or now - self._told < PROGRESS_EVERY:
            return
        if self._torn:
            lines = lines.partition("\n")[2]
        self._waiting, self._torn = rest, False
        self._told = now
        text = self._parts.redact(plain(split_mark(lines, self._mark)[0]))[-PROGRESS_LENGTH:]
        if text.strip():
            await self._ctx.progress(text)


def _check(command: str) -> None:
    if not command.strip():
        raise ToolError("terminal: `command` is empty")
    if "\0" in command:
        raise ToolError("terminal: `command` contains a NUL character")
    if len(command.encode("utf-8", "replace")) > MAX_COMMAND:
        raise ToolError(
            f"terminal: `command` is longer than {MAX_COMMAND:,} bytes.",
            hint="Write the data into a file with write_file first.",
        )


def _folder_in(answer: str) -> str:
    """Nothing for a refusal, which is no JSON, and for a command that did not move."""
    try:
        return _MOVED.decode(answer).cwd
    except msgspec.DecodeError:
        return ""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _without_end(text: str) -> str:
    """Without the line, or the part of it, in which the middle of the output went missing."""
    return text[: -min(len(text) - text.rfind("\n") - 1, TORN) or None]


def _without_beginning(text: str) -> str:
    line = text.find("\n") + 1
    return text[min(line or TORN, TORN) :]


def _cut(begin: str, end: str, total: int) -> str:
    """Whole lines from both ends, so that no half of a secret is left standing at the cut."""
    begin = begin[:FRONT]
    end = end[-(MAX_OUTPUT - len(begin)) :]
    begin = begin[: begin.rfind("\n") + 1] or begin
    end = end[end.find("\n") + 1 :] or end
    left_out = max(total - len(begin) - len(end), 0)
    return f"{begin}[… about {left_out:,} characters left out …]\n{end}"


def _output(asked: TerminalArgs, done: Finished, seen: _View, moved: Path | None) -> Output:
    code = as_shell(done.exit_code)
    explained = meaning(asked.command, code)
    error = f"The command was ended after {asked.timeout} s." if done.timed_out else None
    answer = TerminalResult(
        output=seen.text,
        exit_code=code,
        error=error,
        exit_code_meaning=explained if explained and not error else UNSET,
        cwd=str(moved) if moved else UNSET,
        truncated=True if seen.cut else UNSET,
        full_output=str(seen.full) if seen.full else UNSET,
        note=_ended_too(done.left) if done.left else UNSET,
    )
    failed = not is_benign(asked.command, code)
    return Output.text(result(answer), shown=seen.text, failed=failed)


def _ended_too(count: int) -> str:
    what = "A process" if count == 1 else f"{count} processes"
    return f"{what} left in the background ended with the command."
