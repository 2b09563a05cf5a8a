"""The `write_file` tool: write a whole file atomically."""

import os
from functools import partial
from pathlib import Path

from msgspec import UNSET, Raw, Struct, UnsetType

from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.tools import Effect, ToolSpec
from hermes.tools.files.drafts import TextFormat, decode_text, diff_text
from hermes.tools.files.editor import FileChange, FileEditor, read_bytes
from hermes.tools.files.lint import LintResult, check_syntax
from hermes.tools.files.safe_open import Forbids
from hermes.tools.tool_io import Arguments, encode_result, load_description

MAX_CONTENT = 20_000_000


class WriteArgs(Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    content: str


class WriteResult(Struct, frozen=True, kw_only=True):
    bytes_written: int
    dirs_created: bool
    lint: LintResult
    resolved_path: str
    files_modified: list[str]
    note: str | UnsetType = UNSET


class WriteFile:
    def __init__(self, editor: FileEditor) -> None:
        self._editor = editor
        self._arguments = Arguments("write_file", WriteArgs)
        self.spec = ToolSpec(
            "write_file",
            load_description(__file__),
            self._arguments.schema,
            Effect.WRITE,
            timeout=60.0,
            toolset="file",
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        if len(arguments.content) > MAX_CONTENT:
            raise ToolError(f"write_file: `content` is longer than {MAX_CONTENT:,} characters")
        path = await self._editor.resolve_writable(
            ctx, arguments.path, "write_file", arguments.content
        )
        async with self._editor.locks.holding([path]):
            return await self._write(path, arguments.content, ctx)

    async def _write(self, path: Path, content: str, ctx: ToolContext) -> ToolOutput:
        session = ctx.scope.session
        forbids = self._editor.paths.blocked_for(ctx.scope).forbids
        draft = await self._editor.threads.run(partial(_draft, path, content, forbids))
        seen, known = self._editor.seen, self._editor.seen.knows(session, path)
        if draft.stat is not None and seen.changed(session, path, draft.stat):
            raise ToolError(
                f"write_file: {path} was changed by another program since you last read it; "
                "nothing was written.",
                hint="Read it again, then write with those changes kept.",
            )
        provenance = await self._editor.provenance_of(ctx, [path], content, whole=True)
        made = await self._editor.apply(ctx.scope, [draft.change], provenance)
        lint = await self._editor.lint(draft.lint, path, draft.text, draft.old)
        answer = WriteResult(
            bytes_written=len(draft.change.after or b""),
            dirs_created=bool(made),
            lint=lint,
            resolved_path=str(path),
            files_modified=[str(path)],
            note=_note(draft, known=known) or UNSET,
        )
        return ToolOutput.text(encode_result(answer), shown=draft.diff)


class _Draft(Struct, frozen=True, kw_only=True):
    change: FileChange
    text: str
    old: str | None
    stat: os.stat_result | None
    lint: LintResult
    text_format: TextFormat
    diff: str


def _draft(path: Path, content: str, forbids: Forbids) -> _Draft:
    found = read_bytes(path, forbids)
    before, stat = found if found is not None else (None, None)
    old, dress = _format_of(path, before)
    text = dress.with_newlines(content) if dress.newline != "\n" else content
    return _Draft(
        change=FileChange(path, before, dress.encode_text(text, path), stat),
        text=text,
        old=old,
        stat=stat,
        lint=check_syntax(path, text, old),
        text_format=dress,
        diff=diff_text(old, text, path.name),
    )


def _format_of(path: Path, before: bytes | None) -> tuple[str | None, TextFormat]:
    """A text that replaces another keeps its encoding and line ends."""
    if before is None:
        return None, TextFormat()
    try:
        return decode_text(before, path)
    except ToolError:
        return "", TextFormat()


def _note(draft: _Draft, *, known: bool) -> str:
    notes: list[str] = []
    dress = draft.text_format
    if draft.change.before == draft.change.after:
        notes.append("The file already had exactly this content.")
    elif draft.stat is not None and not known:
        notes.append("This replaced an existing file that you had not read in this session.")
    if dress.newline != "\n" or dress.mark or dress.encoding != "utf-8":
        ends = "CRLF" if dress.newline != "\n" else "LF"
        notes.append(f"Kept the file's {dress.encoding} encoding and {ends} line ends.")
    return " ".join(notes)
