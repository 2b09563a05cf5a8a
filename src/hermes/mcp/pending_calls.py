"""A server's pending calls: deadlines, unanswered calls, and its questions to the user."""

import math
import re
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeAlias, TypeVar

import anyio
import mcp_types as types
from mcp.client import Client

from hermes.config.values import as_list, as_mapping
from hermes.kit.terminal_text import show_invisible_line
from hermes.ports.approvals import AskPerson

MAX_FIELDS = 40
MAX_CHOICES = 20
MAX_TRIES = 3
"""Maximum attempts to get a valid answer for a field."""
DECLINE = "decline"
"""Typed by a person who does not want to fill in a form."""
MAX_TEXT = 500
YES, NO = "Yes", "No"
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?")
Value: TypeAlias = str | int | float | bool | list[str] | None
DECLINED = types.ElicitResult(action="decline")
CANCELLED = types.ElicitResult(action="cancel")


async def fill_form(
    ask_person: AskPerson, server: str, request: types.ElicitRequestParams
) -> types.ElicitResult:
    """Decline the form only if the person does; without a usable answer it is cancelled."""
    prompt = f"The MCP server {server} asks: {show_invisible_line(request.message, MAX_TEXT)}"
    if isinstance(request, types.ElicitRequestURLParams):
        url = show_invisible_line(request.url, MAX_TEXT)
        answer = await ask_person(f"{prompt}\nIt asks you to open: {url}\nContinue?", (YES, NO))
        return _yes_no_result(answer)
    fields = _fields(request.requested_schema)
    if fields is None:
        return CANCELLED
    if not fields:
        return _yes_no_result(await ask_person(prompt, (YES, NO)))
    content: dict[str, Value] = {}
    required = {str(name) for name in as_list(request.requested_schema.get("required")) or []}
    for number, (name, field) in enumerate(fields.items(), start=1):
        position = f" ({number} of {len(fields)})" if len(fields) > 1 else ""
        question = f"{prompt}\n{_label(name, field)}{position}\n{_help(field)}"
        value = await _ask_field(ask_person, question, field, optional=name not in required)
        if isinstance(value, types.ElicitResult):
            return value
        if value is not None:
            content[name] = value
    return types.ElicitResult(action="accept", content=content)


async def _ask_field(
    ask_person: AskPerson, question: str, field: Mapping[str, Any], *, optional: bool
) -> Value | types.ElicitResult:
    """Return a valid value, None for an empty optional field, or how the form ends."""
    for attempt in range(MAX_TRIES):
        again = "That is not a valid answer.\n" if attempt else ""
        answer = await ask_person(f"{again}{question}", _choices(field))
        if answer is None:
            return CANCELLED
        answer = answer.strip()
        if answer.lower() == DECLINE:
            return DECLINED
        if optional and answer in {"", "-"}:
            return None
        value = _value(field, answer)
        if value is not None:
            return value
    return CANCELLED


def _help(field: Mapping[str, Any]) -> str:
    """Describe the valid answers."""
    refuse = f"Answer “{DECLINE}” to refuse the form."
    if not _is_list(field):
        return refuse
    allowed = ", ".join(show_invisible_line(str(one), 100) for one in _allowed(_items(field)))
    return f"Several can be chosen, separated by commas: {allowed}. {refuse}"


def _yes_no_result(answer: str | None) -> types.ElicitResult:
    if answer is None:
        return CANCELLED
    return types.ElicitResult(action="accept") if answer == YES else DECLINED


def _fields(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    properties = as_mapping(schema.get("properties") or {})
    if properties is None or len(properties) > MAX_FIELDS:
        return None
    fields = {str(name): as_mapping(field) for name, field in properties.items()}
    known = {
        name: {str(key): value for key, value in field.items()}
        for name, field in fields.items()
        if field is not None
    }
    return known if len(known) == len(fields) else None


def _label(name: str, field: Mapping[str, Any]) -> str:
    label = str(field.get("title") or field.get("description") or name)
    return show_invisible_line(label, MAX_TEXT)


def _is_list(field: Mapping[str, Any]) -> bool:
    return field.get("type") == "array"


def _items(field: Mapping[str, Any]) -> Mapping[str, Any]:
    return {str(key): value for key, value in (as_mapping(field.get("items")) or {}).items()}


def _choices(field: Mapping[str, Any]) -> Sequence[str]:
    if _is_list(field):
        return ()
    if field.get("type") == "boolean":
        return (YES, NO)
    return [show_invisible_line(str(choice), 100) for choice in _allowed(field)][:MAX_CHOICES]


def _allowed(field: Mapping[str, Any]) -> list[object]:
    listed = as_list(field.get("oneOf")) or as_list(field.get("anyOf")) or []
    titled = [as_mapping(one) or {} for one in listed]
    return as_list(field.get("enum")) or [one.get("const") for one in titled]


def _value(field: Mapping[str, Any], answer: str) -> Value:
    """Convert the answer; None if it is not allowed."""
    match field.get("type"):
        case "boolean":
            known = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
            return known.get(answer.lower())
        case "integer":
            return int(answer) if _INTEGER.fullmatch(answer) else None
        case "number":
            return float(answer) if _NUMBER.fullmatch(answer) else None
        case "string" | None:
            allowed = [str(one) for one in _allowed(field)]
            return answer if not allowed or answer in allowed else None
        case "array":
            return _list_value(field, answer)
        case _:
            return None


def _list_value(field: Mapping[str, Any], answer: str) -> list[str] | None:
    allowed = {str(one).lower(): str(one) for one in _allowed(_items(field))}
    words = list(dict.fromkeys(word.strip() for word in answer.split(",") if word.strip()))
    chosen = [allowed.get(word.lower(), "") for word in words] if allowed else words
    min_items, max_items = field.get("minItems"), field.get("maxItems")
    fits = (not isinstance(min_items, int) or len(chosen) >= min_items) and (
        not isinstance(max_items, int) or len(chosen) <= max_items
    )
    return chosen if fits and all(chosen) else None


T = TypeVar("T")

MAX_QUESTIONS = 5
MAX_UNANSWERED = 3
"""Unanswered calls in a row after which a server is restarted."""


class PendingCall(Generic[T]):
    """One call: its result or failure, and how to ask the user meanwhile."""

    def __init__(self, ask_person: AskPerson | None) -> None:
        self.ask_person = ask_person
        self.questions = 0
        self.limit = anyio.CancelScope()
        self.cancelled = anyio.Event()
        self.done = anyio.Event()
        self.result: list[T] = []
        self.failure: Exception | None = None
        self._scope = anyio.CancelScope()
        self._open_questions = 0
        self._left = math.inf

    async def run(self, work: Callable[[Client], Awaitable[T]], client: Client) -> None:
        """Run the call in the connection's task group; the caller may be gone before it ends."""
        try:
            with self._scope:
                self.result.append(await work(client))
        except Exception as error:  # noqa: BLE001 - raised or logged by `McpConnection._answer`
            self.failure = error
        finally:
            self.done.set()

    async def wait_answered(self, seconds: float) -> bool:
        """Wait for the answer; False if none came in time."""
        self.limit.deadline = anyio.current_time() + seconds
        with self.limit:
            await self.done.wait()
        return self.done.is_set()

    def cancel(self) -> None:
        self._scope.cancel()
        self.cancelled.set()

    @contextmanager
    def deadline_suspended(self) -> Generator[None]:
        """Suspend the time limit while the user answers one or more questions."""
        if not self._open_questions:
            self._left = self.limit.deadline - anyio.current_time()
            self.limit.deadline = math.inf
        self._open_questions += 1
        try:
            yield
        finally:
            self._open_questions -= 1
            if not self._open_questions:
                self.limit.deadline = anyio.current_time() + self._left


class PendingCalls:
    def __init__(self) -> None:
        self.last_used = 0.0
        """When a call last ended."""
        self._calls: list[PendingCall[Any]] = []
        self._unanswered = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    @contextmanager
    def track(self, caller: PendingCall[Any]) -> Generator[None]:
        self._calls.append(caller)
        try:
            yield
        finally:
            caller.cancel()
            self._calls.remove(caller)
            self.last_used = anyio.current_time()

    def record_outcome(self, *, answered: bool) -> bool:
        """Count an outcome; return whether too many calls in a row got no answer."""
        self._unanswered = 0 if answered else self._unanswered + 1
        if self._unanswered < MAX_UNANSWERED:
            return False
        self._unanswered = 0
        return True

    async def ask_user(self, server: str, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Ask the user only if it is certain which call the question belongs to."""
        caller = self._calls[0] if len(self._calls) == 1 else None
        if caller is None or caller.ask_person is None or caller.questions >= MAX_QUESTIONS:
            return CANCELLED
        caller.questions += 1
        answer = CANCELLED
        with caller.deadline_suspended():
            async with anyio.create_task_group() as group:

                async def cancel_with_call() -> None:
                    await caller.cancelled.wait()
                    group.cancel_scope.cancel()

                group.start_soon(cancel_with_call)
                answer = await fill_form(caller.ask_person, server, params)
                group.cancel_scope.cancel()
        return answer
