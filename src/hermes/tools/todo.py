"""The `todo` tool: a task list per session, restored from the transcript."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from hermes.kit.lru_map import LruMap
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.messages import Message, text_of
from hermes.schema.tools import Effect
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.tool_io import Arguments, earlier_results, encode_result

MAX_SESSIONS = 512
MAX_ITEMS = 200
MAX_CONTENT = 1_000
MAX_ID = 64
MAX_LIST = 150_000
"""Characters of the whole list; the result must not be truncated, or it cannot be restored."""

Status = Literal["pending", "in_progress", "completed", "cancelled"]
_STATUS_MARKS: dict[str, str] = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class TodoItem(Struct, frozen=True):
    id: str
    content: str
    status: Status = "pending"


class TodoEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """An item as sent by the model, which may number ids; with `merge`, omitted fields are kept."""

    id: str | int
    content: str | UnsetType = UNSET
    status: Status | UnsetType = UNSET


class TodoArgs(Struct, frozen=True, forbid_unknown_fields=True):
    todos: list[TodoEntry] | UnsetType = UNSET
    merge: Annotated[bool, Meta(description="Change only the given items")] = False


class TodoSummary(Struct, frozen=True):
    total: int
    pending: int
    in_progress: int
    completed: int
    cancelled: int


class TodoResult(Struct, frozen=True):
    todos: list[TodoItem]
    summary: TodoSummary


class Todo:
    name = "todo"

    def __init__(self) -> None:
        self._lists: LruMap[str, list[TodoItem]] = LruMap(MAX_SESSIONS)
        self._arguments = Arguments(self.name, TodoArgs)
        fields = self._arguments.schema["properties"]["todos"]["items"]["properties"]
        fields["id"] = {"type": "string"}
        self.spec = self._arguments.spec(
            __file__, Effect.WRITE, timeout=10.0, toolset="todo", own=True, stateful=True
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        items = self._lists.get(ctx.scope.session) or []
        if not isinstance(arguments.todos, UnsetType):
            items = _merge_items(items if arguments.merge else [], arguments.todos)
        counts = Counter(item.status for item in items)
        summary = TodoSummary(len(items), *(counts[status] for status in get_args(Status)))
        answer = encode_result(TodoResult(items, summary))
        if len(answer) > MAX_LIST:
            raise ToolError(f"todo: the list is longer than {MAX_LIST:,} characters.")
        self._lists.put(ctx.scope.session, items)
        shown = "\n".join(
            f"{_STATUS_MARKS.get(item.status, '[-]')} {item.content}" for item in items
        )
        return ToolOutput.text(answer, shown=shown)

    def restore(self, session: str, messages: Sequence[Message]) -> None:
        """Restore the list from the last result in the transcript, or clear it if there is none."""
        self._lists.drop(session)
        for message in earlier_results(self.name, messages):
            if message.failed:
                continue
            try:
                answer = msgspec.json.decode(text_of(message), type=TodoResult)
            except msgspec.DecodeError:
                continue
            self._lists.put(session, answer.todos)
            return


def _merge_items(items: list[TodoItem], entries: list[TodoEntry]) -> list[TodoItem]:
    kept = {item.id: item for item in items}
    for entry in entries:
        name = str(entry.id)
        old = kept.get(name)
        content = entry.content if isinstance(entry.content, str) else (old and old.content)
        if len(name) > MAX_ID:
            raise ToolError(f"todo: an `id` may have at most {MAX_ID} characters.")
        if not content or not name:
            raise ToolError(f"todo: the item {name!r} needs an `id` and a `content`.")
        if len(content) > MAX_CONTENT:
            raise ToolError(f"todo: the item {name!r} is longer than {MAX_CONTENT} characters.")
        status = old.status if old else "pending"
        if not isinstance(entry.status, UnsetType):
            status = entry.status
        kept[name] = TodoItem(name, content, status)
    if len(kept) > MAX_ITEMS:
        raise ToolError(f"todo: at most {MAX_ITEMS} items.", hint="Leave out completed items.")
    return list(kept.values())


def build_todo(deps: ToolCollaborators) -> Todo:
    return Todo()
