"""The `patch` tool: replace a passage, or apply a patch to several files."""

import stat as modes
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, assert_never

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from hermes.kit.text import head_and_tail
from hermes.ports.tool import Tool, ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect
from hermes.tools.catalog import RedactedTool
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.files.drafts import Drafts, TextFormat
from hermes.tools.files.editor import NO_PATHS, FileEditor, WriteProvenance
from hermes.tools.files.fuzzy_match import (
    ANCHORED,
    TextMatches,
    apply_edits,
    find_matches,
    line_number,
    nearest_lines,
)
from hermes.tools.files.lint import LintResult
from hermes.tools.files.v4a import MOVE, Add, Delete, Operation, Update, apply_update, parse_patch
from hermes.tools.tool_io import Arguments, encode_result

MAX_DIFF = 10_000
MAX_FILES = 100
MAX_PATCH = 5_000_000
"""Characters of all arguments."""


class PatchArgs(Struct, frozen=True, forbid_unknown_fields=True):
    mode: Literal["replace", "patch"] = "replace"
    path: str = ""
    old_string: str = ""
    new_string: str = ""
    replace_all: bool = False
    patch: Annotated[str, Meta(description="For mode patch")] = ""


class PatchResult(Struct, frozen=True, kw_only=True):
    success: bool
    diff: str
    files_modified: list[str]
    lint: LintResult
    resolved_path: str
    strategy: str
    replacements: int | UnsetType = UNSET
    warning: str | UnsetType = UNSET


class Patch:
    def __init__(self, editor: FileEditor, redact: Callable[[str], str]) -> None:
        """`redact` masks a diff before it is cut: part of a secret would not be recognized."""
        self._editor = editor
        self._redact = redact
        self._arguments = Arguments("patch", PatchArgs)
        self.spec = self._arguments.spec(
            __file__, Effect.WRITE, timeout=60.0, toolset="file", changes_files=True
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        if len(arguments.patch) + len(arguments.old_string) + len(arguments.new_string) > MAX_PATCH:
            raise ToolError(
                f"patch: more than {MAX_PATCH:,} characters in one call.",
                hint="Send it in parts, or use write_file.",
            )
        if arguments.mode == "patch" or (arguments.patch and not arguments.old_string):
            operations = parse_patch(arguments.patch)
            names, shown = _named_paths(operations), arguments.patch
            if len(names) > MAX_FILES:
                raise ToolError(f"patch: more than {MAX_FILES} files in one patch.")
            prepare = partial(_apply, operations)
        else:
            _check(arguments)
            names, shown = [arguments.path], _preview(arguments)
            prepare = partial(_replace, arguments)
        files = {
            name: await self._editor.resolve_writable(ctx, name, "patch", shown) for name in names
        }

        def work() -> _PreparedPatch:
            return prepare(files, Drafts(self._editor.paths.blocked_for(ctx.scope).forbids))

        async with self._editor.locks.holding(files.values()):
            done = await self._editor.threads.run(work)
            text, paths = arguments.patch or arguments.new_string, [*files.values()]
            provenance = await self._editor.provenance_of(ctx, paths, text, whole=False)
            provenance = self._keep_untrusted(provenance, paths, moves=MOVE in arguments.patch)
            return await self._write(done, paths[0], ctx.scope, provenance)

    def _keep_untrusted(
        self, provenance: WriteProvenance, paths: Sequence[Path], *, moves: bool
    ) -> WriteProvenance:
        """Keep partly changed and moved files marked as untrusted if they were."""
        others = frozenset(filter(self._editor.provenance.was_fetched, paths))
        if moves:
            others = frozenset(paths if others else ())
        return WriteProvenance(
            foreign=provenance.foreign | others,
            trusted=NO_PATHS if moves else provenance.trusted,
            whole=provenance.whole,
        )

    async def _write(
        self, done: "_PreparedPatch", first: Path, scope: Scope, provenance: WriteProvenance
    ) -> ToolOutput:
        changed = done.drafts.changed
        if not changed:
            raise ToolError("patch: the files already have this content.")
        stale = [
            d.path for d in changed if self._editor.seen.changed(scope.session, d.path, d.stat)
        ]
        await self._editor.apply(scope, [draft.change for draft in changed], provenance)
        lint = done.lint
        if len(changed) == 1 and changed[0].text is not None:
            lint = await self._editor.lint(lint, changed[0].path, changed[0].text, changed[0].old)
        diff = self._redact(done.diff)
        answer = PatchResult(
            success=True,
            diff=head_and_tail(diff, MAX_DIFF),
            files_modified=[str(draft.path) for draft in changed],
            lint=lint,
            resolved_path=str(first),
            strategy=done.strategy,
            replacements=done.count if done.count > 1 else UNSET,
            warning=_stale_warning(stale) if stale else UNSET,
        )
        return ToolOutput.text(encode_result(answer), shown=diff)


class _PreparedPatch(Struct, frozen=True):
    drafts: Drafts
    diff: str
    lint: LintResult
    strategy: str
    count: int = 1


def _preview(arguments: PatchArgs) -> str:
    """The change as shown to the approver."""
    old = [f"-{line}" for line in arguments.old_string.split("\n")]
    new = [f"+{line}" for line in arguments.new_string.split("\n")]
    return "\n".join([*old, *new, *(["everywhere in the file"] if arguments.replace_all else [])])


def _check(arguments: PatchArgs) -> None:
    if not arguments.path:
        raise ToolError("patch: the parameter `path` (text) is missing.")
    if not arguments.old_string:
        raise ToolError(
            "patch: the parameter `old_string` (text) is missing.",
            hint="To write a whole file use write_file.",
        )
    if arguments.old_string == arguments.new_string:
        raise ToolError("patch: `old_string` and `new_string` are the same.")


def _replace(arguments: PatchArgs, files: dict[str, Path], drafts: Drafts) -> _PreparedPatch:
    path = files[arguments.path]
    draft = drafts.open(path)
    text, format_ = draft.require_text(), draft.text_format
    old, new = arguments.old_string, arguments.new_string
    if format_.newline != "\n":
        old = old if old in text else format_.with_newlines(old)
        new = format_.with_newlines(new)
    found = find_matches(text, old, new)
    if found is None:
        near = nearest_lines(text, arguments.old_string)
        shown = f" The nearest lines are:\n{near}" if near else ""
        raise ToolError(f"patch: `old_string` is not in {path}.{shown}")
    _check_unique(found, text, arguments, path)
    draft.text = apply_edits(text, found.edits)
    count = len(found.edits) if arguments.replace_all else 1
    return _PreparedPatch(drafts, drafts.diff(), drafts.lint(), found.strategy, count)


def _check_unique(found: TextMatches, text: str, arguments: PatchArgs, path: Path) -> None:
    if len(found.edits) == 1 or (arguments.replace_all and found.strategy != ANCHORED):
        return
    numbers = ", ".join(str(line_number(text, place.start)) for place in found.edits[:10])
    raise ToolError(
        f"patch: `old_string` occurs {len(found.edits)} times in {path} (lines {numbers}).",
        hint="Include more surrounding lines, or set replace_all.",
    )


def _named_paths(operations: list[Operation]) -> list[str]:
    moved = [op.move_to for op in operations if isinstance(op, Update) and op.move_to]
    return list(dict.fromkeys([*(op.path for op in operations), *moved]))


def _apply(operations: list[Operation], files: dict[str, Path], drafts: Drafts) -> _PreparedPatch:
    strategies: list[str] = []
    for operation in operations:
        draft = drafts.open(files[operation.path])
        match operation:
            case Add():
                draft.create(operation.text, TextFormat())
            case Delete():
                draft.require_text()
                draft.text = None
            case Update():
                edited = apply_update(draft.require_text(), operation, draft.text_format.newline)
                strategies.append(edited.strategy)
                draft.text = edited.text
                if operation.move_to:
                    mode = modes.S_IMODE(draft.stat.st_mode) if draft.stat else None
                    moved = drafts.open(files[operation.move_to])
                    moved.create(edited.text, draft.text_format, mode)
                    draft.text = None
            case _:
                assert_never(operation)
    loose = [strategy for strategy in strategies if strategy != "exact"]
    return _PreparedPatch(drafts, drafts.diff(), drafts.lint(), loose[0] if loose else "exact")


def _stale_warning(paths: list[Path]) -> str:
    names = ", ".join(map(str, paths))
    return f"Changed elsewhere since you last read it: {names}. Those changes were kept."


def build_patch(deps: ToolCollaborators) -> Tool:
    return deps.with_instructions(
        RedactedTool(Patch(deps.editor, deps.file_redactor), deps.file_redactor)
    )
