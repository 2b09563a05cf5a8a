"""The `memory` tool: add, replace and remove lasting facts in one atomic change."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from hermes.kit.errors import HermesError
from hermes.kit.lru_map import LruMap
from hermes.learning.ledger import Author
from hermes.learning.memory import (
    InvalidOperation,
    MemoryAction,
    MemoryFile,
    MemoryFull,
    MemoryOperation,
    MemoryRequest,
    MemoryStore,
    MemoryTarget,
)
from hermes.learning.provenance import WAITING_NOTICE, ChangeProvenance, change_provenance
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect, ToolSpec
from hermes.tools.tool_io import Arguments, encode_result, load_description

MAX_REFUSALS = 3
"""Refusals for lack of room in one turn after which the model should stop trying."""
MAX_OPERATIONS = 20
_MAX_RUNS = 256


class MemoryStep(Struct, frozen=True, forbid_unknown_fields=True):
    action: MemoryAction
    content: str = ""
    old_text: str = ""


class MemoryArgs(Struct, frozen=True, forbid_unknown_fields=True):
    target: Literal["memory", "user"]
    action: MemoryAction | UnsetType = UNSET
    content: str = ""
    old_text: str = ""
    operations: Annotated[list[MemoryStep], Meta(max_length=MAX_OPERATIONS)] = []


class MemoryResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    success: bool
    done: bool | UnsetType = UNSET
    target: str = ""
    usage: str = ""
    entry_count: int | UnsetType = UNSET
    message: str = ""
    error: str = ""
    note: str = ""
    current_entries: list[str] | UnsetType = UNSET


class MemoryDeps(Struct, frozen=True, kw_only=True):
    """`needs_approval`: whether every change waits for the owner's decision."""

    store: MemoryStore
    needs_approval: Callable[[], bool] = lambda: False


class MemoryTool:
    name = "memory"

    def __init__(self, deps: MemoryDeps) -> None:
        self._deps = deps
        self._arguments = Arguments(self.name, MemoryArgs)
        self._refusals: LruMap[str, int] = LruMap(_MAX_RUNS)
        self.spec = ToolSpec(
            self.name,
            load_description(f"{Path(__file__).parent}/memory"),
            self._arguments.schema,
            Effect.WRITE,
            timeout=30.0,
            toolset="memory",
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        steps = _memory_changes(self._arguments.decode(args))
        contents = [one.content for one in steps.operations]
        only_adds = all(one.action == "add" for one in steps.operations)
        provenance = change_provenance(ctx, "\n".join(contents), contents if only_adds else ())
        if provenance.author is Author.REVIEW and await self._deps.store.was_rejected(
            steps.operations
        ):
            raise ToolError("memory: the user undid this before. Do not repeat it.")
        request = MemoryRequest(
            target=steps.target,
            operations=steps.operations,
            by=provenance.author,
            origin=provenance.origin,
        )
        try:
            if self._deps.needs_approval() or provenance.doubtful:
                return await self._propose(request, provenance)
            sheet = await self._deps.store.change(request)
        except InvalidOperation as error:
            raise ToolError(f"memory: {error}") from error
        except MemoryFull as full:
            return self._full(full.file, ctx.scope)
        except HermesError as error:
            raise ToolError(f"memory: {error}", hint=error.hint) from error
        done = "Remembered for later sessions."
        return _answer(_sheet_result(sheet, done), f"{done}{provenance.note}")

    async def _propose(self, request: MemoryRequest, provenance: ChangeProvenance) -> ToolOutput:
        await self._deps.store.propose(request)
        sheet = await self._deps.store.read(request.target)
        message = "Saved as a proposal: the user decides with /changes whether to remember it."
        return _answer(
            _sheet_result(sheet, message, done=False), f"{WAITING_NOTICE}{provenance.note}"
        )

    def _full(self, sheet: MemoryFile, scope: Scope) -> ToolOutput:
        times = (self._refusals.get(scope.run) or 0) + 1
        self._refusals.put(scope.run, times)
        error = "Memory is full: merge or remove entries in the same call."
        if times >= MAX_REFUSALS:
            error = "Memory is still full. Do not use it again in this turn."
        refusal = MemoryResult(
            success=False,
            target=sheet.target,
            usage=sheet.usage,
            entry_count=len(sheet.entries),
            error=error,
            current_entries=list(sheet.entries) if times < MAX_REFUSALS else UNSET,
        )
        return ToolOutput.text(encode_result(refusal), failed=True)


class _MemoryChanges(Struct, frozen=True):
    target: MemoryTarget
    operations: tuple[MemoryOperation, ...]


def _memory_changes(arguments: MemoryArgs) -> _MemoryChanges:
    steps = [
        MemoryOperation(action=s.action, content=s.content, old_text=s.old_text)
        for s in arguments.operations
    ]
    if not isinstance(arguments.action, UnsetType):
        single = MemoryOperation(
            action=arguments.action, content=arguments.content, old_text=arguments.old_text
        )
        steps.insert(0, single)
    if not steps:
        raise ToolError("memory: give an `action`, or several as `operations`.")
    return _MemoryChanges(MemoryTarget(arguments.target), tuple(steps))


def _sheet_result(sheet: MemoryFile, message: str, *, done: bool = True) -> MemoryResult:
    return MemoryResult(
        success=True,
        done=done,
        target=sheet.target,
        usage=sheet.usage,
        entry_count=len(sheet.entries),
        message=message,
    )


def _answer(answer: MemoryResult, shown: str) -> ToolOutput:
    return ToolOutput.text(encode_result(answer), shown=shown)
