"""The `write_file` tool: write a whole file atomically."""

from functools import partial
from pathlib import Path

from msgspec import UNSET, Raw, Struct, UnsetType

from hermes.ports.tool import Tool, ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.tools import Effect
from hermes.tools.catalog import RedactedTool
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.files.drafts import Draft, diff_text
from hermes.tools.files.editor import FileEditor
from hermes.tools.files.file_changes import FileChange
from hermes.tools.files.lint import LintResult, check_syntax
from hermes.tools.files.safe_open import Forbids
from hermes.tools.tool_io import Arguments, encode_result

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
        self.spec = self._arguments.spec(
            __file__, Effect.WRITE, timeout=60.0, toolset="file", changes_files=True
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        if len(arguments.content) > MAX_CONTENT:
            raise ToolError(f"write_file: `content` is longer than {MAX_CONTENT:,} characters.")
        path = await self._editor.resolve_writable(
            ctx, arguments.path, "write_file", arguments.content
        )
        async with self._editor.locks.holding([path]):
            return await self._write(path, arguments.content, ctx)

    async def _write(self, path: Path, content: str, ctx: ToolContext) -> ToolOutput:
        session, seen = ctx.scope.session, self._editor.seen
        forbids = self._editor.paths.blocked_for(ctx.scope).forbids
        prepare = partial(_prepare, path, content, forbids)
        draft, change, lint, diff = await self._editor.threads.run(prepare)
        known = seen.knows(session, path)
        if draft.stat is not None and seen.changed(session, path, draft.stat):
            raise ToolError(
                f"write_file: {path} was changed by another program since you last read it; "
                "nothing was written.",
                hint="Read it again, then write with those changes kept.",
            )
        provenance = await self._editor.provenance_of(ctx, [path], content, whole=True)
        made = await self._editor.apply(ctx.scope, [change], provenance)
        answer = WriteResult(
            bytes_written=len(change.after or b""),
            dirs_created=bool(made),
            lint=await self._editor.lint(lint, path, draft.text or "", draft.old),
            resolved_path=str(path),
            files_modified=[str(path)],
            note=_note(draft, change, known=known) or UNSET,
        )
        return ToolOutput.text(encode_result(answer), shown=diff)


def _prepare(
    path: Path, content: str, forbids: Forbids
) -> tuple[Draft, FileChange, LintResult, str]:
    """Return the draft, its change, syntax check and diff.

    A text that replaces another keeps its encoding and line ends.
    """
    draft = Draft(path, forbids, whole=True)
    newline = draft.text_format.newline
    text = content if newline == "\n" else draft.text_format.with_newlines(content)
    draft.text = text
    lint, diff = check_syntax(path, text, draft.old), diff_text(draft.old, text, path.name)
    return draft, draft.change, lint, diff


def _note(draft: Draft, change: FileChange, *, known: bool) -> str:
    notes: list[str] = []
    format_ = draft.text_format
    if change.before == change.after:
        notes.append("The file already had exactly this content.")
    elif draft.stat is not None and not known:
        notes.append("This replaced an existing file that you had not read in this session.")
    if format_.newline != "\n" or format_.mark or format_.encoding != "utf-8":
        ends = "CRLF" if format_.newline != "\n" else "LF"
        notes.append(f"Kept the file's {format_.encoding} encoding and {ends} line ends.")
    return " ".join(notes)


def build_write_file(deps: ToolCollaborators) -> Tool:
    return deps.with_instructions(RedactedTool(WriteFile(deps.editor), deps.file_redactor))
