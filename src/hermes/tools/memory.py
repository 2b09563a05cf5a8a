"""The `memory` tool: add, replace and remove lasting facts in one atomic change."""

from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from hermes.kit.errors import HermesError
from hermes.kit.lru_map import LruMap
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
from hermes.learning.provenance import WAITING_NOTICE, change_provenance
from hermes.ports.ledger import Author
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect
from hermes.tools.collaborators import ToolCollaborators, required
from hermes.tools.tool_io import Arguments, encode_result

MAX_REJECTIONS = 3
"""Changes rejected for lack of room in one turn, after which the model should stop trying."""
MAX_OPERATIONS = 20
REMEMBERED = "Remembered for later sessions."
PROPOSED = "Saved as a proposal: the user decides with /changes whether to remember it."
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


class MemoryTool:
    name = "memory"

    def __init__(
        self, store: MemoryStore, needs_approval: Callable[[], bool] = lambda: False
    ) -> None:
        """`needs_approval`: whether the owner decides about every change."""
        self._store = store
        self._needs_approval = needs_approval
        self._arguments = Arguments(self.name, MemoryArgs)
        self._rejections: LruMap[str, int] = LruMap(_MAX_RUNS)
        self.spec = self._arguments.spec(
            __file__, Effect.WRITE, timeout=30.0, toolset="memory", own=True
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        operations = _operations(arguments)
        contents = [operation.content for operation in operations]
        only_adds = all(operation.action == "add" for operation in operations)
        provenance = change_provenance(ctx, "\n".join(contents), contents if only_adds else ())
        if provenance.author is Author.REVIEW and await self._store.was_rejected(operations):
            raise ToolError("memory: the user undid this before. Do not repeat it.")
        request = MemoryRequest(
            target=MemoryTarget(arguments.target),
            operations=operations,
            by=provenance.author,
            origin=provenance.origin,
        )
        proposed = self._needs_approval() or provenance.doubtful
        try:
            if proposed:
                await self._store.propose(request)
                file = await self._store.read(request.target)
            else:
                file = await self._store.change(request)
        except InvalidOperation as error:
            raise ToolError(f"memory: {error}") from error
        except MemoryFull as full:
            return self._full(full.file, ctx.scope)
        except HermesError as error:
            raise ToolError(f"memory: {error}", hint=error.hint) from error
        result = MemoryResult(
            success=True,
            done=not proposed,
            target=file.target,
            usage=file.usage,
            entry_count=len(file.entries),
            message=PROPOSED if proposed else REMEMBERED,
        )
        shown = WAITING_NOTICE if proposed else REMEMBERED
        return ToolOutput.text(encode_result(result), shown=f"{shown}{provenance.note}")

    def _full(self, file: MemoryFile, scope: Scope) -> ToolOutput:
        times = (self._rejections.get(scope.run) or 0) + 1
        self._rejections.put(scope.run, times)
        error = "Memory is full: merge or remove entries in the same call."
        if times >= MAX_REJECTIONS:
            error = "Memory is still full. Do not use it again in this turn."
        result = MemoryResult(
            success=False,
            target=file.target,
            usage=file.usage,
            entry_count=len(file.entries),
            error=error,
            current_entries=list(file.entries) if times < MAX_REJECTIONS else UNSET,
        )
        return ToolOutput.text(encode_result(result), failed=True)


def _operations(arguments: MemoryArgs) -> tuple[MemoryOperation, ...]:
    steps = list(arguments.operations)
    if not isinstance(arguments.action, UnsetType):
        steps.insert(0, MemoryStep(arguments.action, arguments.content, arguments.old_text))
    if not steps:
        raise ToolError("memory: give an `action`, or several as `operations`.")
    return tuple(
        MemoryOperation(action=step.action, content=step.content, old_text=step.old_text)
        for step in steps
    )


def build_memory(deps: ToolCollaborators) -> MemoryTool:
    learning = required(deps.learning)
    return MemoryTool(learning.memory_store(), learning.memory_needs_approval)
