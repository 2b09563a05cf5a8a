"""The `search_files` tool: search text by regular expression, or files by name."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Annotated, Literal, assert_never

import anyio
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import replace

from hermes.ports.sandbox import ProcessResult, ProcessSpec, Sandbox
from hermes.ports.tool import Tool, ToolContext, ToolOutput
from hermes.schema.errors import SandboxError, ToolError
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.files.path_suggestions import suggest_path
from hermes.tools.paths import BlockedPaths, SessionPaths
from hermes.tools.provenance.file_provenance import FileProvenance
from hermes.tools.search.ripgrep import (
    Collector,
    CountCollector,
    HitCollector,
    LineHit,
    NameCollector,
    PageRange,
    RipgrepQuery,
    content_args,
    files_args,
)
from hermes.tools.tool_io import Arguments, encode_result

TIMEOUT = 60.0
MAX_LIMIT = 500
KEEP = 8_192
"""Bytes of output kept for error messages; results are read from the stream."""


class SearchArgs(Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    target: Literal["content", "files"] = "content"
    path: Annotated[str, Meta(description="File or folder, default .")] = "."
    file_glob: Annotated[str, Meta(description="Only these files, as *.py")] = ""
    limit: Annotated[int, Meta(ge=1, description="Default 50")] = 50
    offset: Annotated[int, Meta(ge=0, description="Results to skip")] = 0
    output_mode: Literal["content", "files_only", "count"] = "content"
    context: Annotated[int, Meta(ge=0, le=20, description="Lines around a match")] = 0


class SearchResult(Struct, frozen=True, kw_only=True):
    total_count: int
    matches: list[LineHit] | UnsetType = UNSET
    files: list[str] | UnsetType = UNSET
    counts: dict[str, int] | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    note: str | UnsetType = UNSET


class SearchDeps(Struct, frozen=True, kw_only=True):
    """`rg` is the path of ripgrep, None if it is not installed."""

    sandbox: Sandbox
    paths: SessionPaths
    rg: str | None
    redact: Callable[[str], str]
    provenance: FileProvenance


class SearchFiles:
    def __init__(self, deps: SearchDeps) -> None:
        self._deps = deps
        self._arguments = Arguments("search_files", SearchArgs)
        self.spec = self._arguments.spec(
            __file__, Effect.READ, timeout=TIMEOUT + 10, toolset="file"
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        if not arguments.pattern:
            raise ToolError("search_files: `pattern` is empty.")
        rg = self._ripgrep()
        cwd = self._deps.paths.cwd(ctx.scope)
        root = self._deps.paths.resolve(ctx.scope, arguments.path)
        blocked = self._deps.paths.blocked_for(ctx.scope, private=True)
        real = self._deps.paths.guard(root, blocked)
        if not _exists(real):
            raise ToolError(f"search_files: {root} does not exist. {suggest_path(real)}")
        query = RipgrepQuery(
            pattern=arguments.pattern,
            # Search the resolved path, which is the one that was checked.
            where=_relative(root if real == root else real, cwd),
            glob=arguments.file_glob,
            context=arguments.context if arguments.output_mode == "content" else 0,
            one_per_file=arguments.output_mode == "files_only",
        )
        allowed = partial(self._is_allowed, cwd, blocked)
        collector, argv = _collector(arguments, query, allowed, self._deps.redact)
        job = ProcessSpec(
            argv=(rg, *argv),
            cwd=str(cwd),
            env={},
            timeout=TIMEOUT,
            keep=KEEP,
            principal=ctx.scope.principal,
        )
        done = await self._search(job, collector)
        _check(done, collector)
        output = self._answer(arguments, collector, done)
        lines = isinstance(collector, HitCollector)
        paths = [cwd / path for path in sorted(collector.paths)]
        look = partial(self._provenance_of, ctx.scope, paths, lines=lines)
        foreign, unverified = await anyio.to_thread.run_sync(look)
        return replace(output, foreign=foreign, unverified=unverified)

    def _ripgrep(self) -> str:
        if self._deps.rg is None:
            raise ToolError(
                "search_files: ripgrep (rg) is not installed.",
                hint="Install ripgrep, or use grep and find in the terminal.",
            )
        return self._deps.rg

    def _provenance_of(
        self, scope: Scope, paths: Sequence[Path], *, lines: bool
    ) -> tuple[bool, bool]:
        """Whether lines of untrusted files are shown, and anything others may have written."""
        origins = self._deps.provenance
        foreign = lines and any(origins.is_foreign(scope, path) for path in paths)
        return foreign, foreign or any(origins.is_unverified(scope, path) for path in paths)

    def _is_allowed(self, cwd: Path, blocked: BlockedPaths, path: str) -> bool:
        return not self._deps.paths.is_protected(cwd / path, blocked)

    async def _search(self, job: ProcessSpec, collector: Collector) -> ProcessResult | None:
        """Return None if the collector had enough before the end."""
        with anyio.CancelScope() as enough:

            async def on_output(data: bytes) -> None:
                collector.feed(data)
                if collector.full:
                    enough.cancel()

            try:
                return await self._deps.sandbox.run(job, on_output)
            except SandboxError as error:
                raise ToolError(f"search_files: {error}", hint=error.hint) from error
        return None

    def _answer(
        self, arguments: SearchArgs, collector: Collector, done: ProcessResult | None
    ) -> ToolOutput:
        notes: list[str] = []
        if done is None:
            notes.append("Stopped counting here; there are more.")
        elif done.timed_out:
            notes.append(f"Stopped after {TIMEOUT:.0f} s; there may be more.")
        next_offset = arguments.offset + collector.shown
        if next_offset < collector.total:
            notes.append(f"Continue with offset={next_offset}.")
        match collector:
            case HitCollector():
                answer = SearchResult(total_count=collector.total, matches=collector.hits)
            case CountCollector() if arguments.output_mode == "count":
                answer = SearchResult(total_count=collector.matched, counts=collector.page())
            case CountCollector():
                answer = SearchResult(total_count=collector.total, files=list(collector.page()))
            case NameCollector():
                answer = SearchResult(total_count=collector.total, files=collector.names)
            case _:
                assert_never(collector)
        if notes:
            answer = replace(answer, truncated=True, note=" ".join(notes))
        shown = f"{collector.total:,} found"
        return ToolOutput.text(encode_result(answer), shown=shown)


def _collector(
    arguments: SearchArgs,
    query: RipgrepQuery,
    allowed: Callable[[str], bool],
    redact: Callable[[str], str],
) -> tuple[Collector, tuple[str, ...]]:
    paging = PageRange(arguments.offset, min(arguments.limit, MAX_LIMIT))
    if arguments.target == "files":
        if arguments.file_glob and not PurePath(arguments.file_glob).parts:
            raise ToolError("search_files: `file_glob` matches nothing; write it as *.py.")

        def wanted(path: str) -> bool:
            matches = not arguments.file_glob or PurePath(path).match(arguments.file_glob)
            return matches and allowed(path)

        return NameCollector(paging, wanted), files_args(query)
    if arguments.output_mode == "content":
        return HitCollector(paging, allowed, query.context, redact), content_args(query)
    return CountCollector(paging, allowed), content_args(query)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise ToolError(f"search_files: {path}: {error.strerror}.") from error


def _relative(root: Path, cwd: Path) -> str:
    """Name files in results as the other tools accept them."""
    return str(root.relative_to(cwd)) if root.is_relative_to(cwd) else str(root)


def _check(done: ProcessResult | None, collector: Collector) -> None:
    if done is None or done.exit_code in {0, 1} or done.timed_out or collector.total:
        return
    message = collector.errors.strip() or done.output.decode("utf-8", "replace").strip()
    raise ToolError(f"search_files: {message.removeprefix('rg: ')}")


def build_search_files(deps: ToolCollaborators) -> Tool:
    return deps.with_instructions(
        SearchFiles(
            SearchDeps(
                sandbox=deps.files_sandbox,
                paths=deps.paths,
                rg=deps.rg,
                redact=deps.file_redactor,
                provenance=deps.provenance,
            )
        )
    )
