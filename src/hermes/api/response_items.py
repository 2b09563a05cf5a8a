"""Resolve item references, and list the input items of a response."""

from collections.abc import Sequence
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct

from hermes.api.context import Parameter, integer_schema
from hermes.api.errors import invalid
from hermes.api.response_builder import response_id_of_item
from hermes.api.response_objects import (
    CustomCallItem,
    FunctionCallItem,
    MessageItem,
    OutputItem,
    ReasoningItem,
    ResponseObject,
    ServerCallItem,
)
from hermes.api.run_input import Input, InputItem
from hermes.app.build import App
from hermes.kit.text import one_line
from hermes.ports.journal import StoredResponse
from hermes.schema.errors import NotFound
from hermes.schema.messages import Assistant, Message, Result, Trust, User, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import StoredMessage

MAX_PAGE = 100
DEFAULT_PAGE = 20
_OBJECT = msgspec.json.Decoder(ResponseObject)


class InputList(Struct, frozen=True, kw_only=True):
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


async def resolve_references(app: App, items_or_text: Input) -> Input:
    """Replace item references with the items themselves. Raises `ApiError`."""
    if isinstance(items_or_text, str):
        return items_or_text
    responses: dict[str, ResponseObject] = {}
    resolved: list[str | InputItem] = []
    for number, item in enumerate(items_or_text):
        if isinstance(item, str) or item.type != "item_reference":
            resolved.append(item)
            continue
        item_id = item.id or ""
        response_id = response_id_of_item(item_id)
        if response_id and response_id not in responses:
            responses[response_id] = await _load_response(app, response_id)
        items = responses[response_id].output if response_id else []
        referenced = next((referenced for referenced in items if referenced.id == item_id), None)
        if referenced is None:
            message = f"Item {one_line(item_id, 100)!r} not found."
            raise invalid(message, param=f"input[{number}].id", code="item_not_found")
        resolved.append(_input_item(referenced))
    return resolved


async def _load_response(app: App, response_id: str) -> ResponseObject:
    try:
        stored = await app.store.responses.get(response_id, OWNER)
    except NotFound:
        return ResponseObject(id=response_id, created_at=0, model="")
    return _OBJECT.decode(stored.body)


def _input_item(item: OutputItem) -> InputItem:
    match item:
        case MessageItem():
            text = "".join(part.text for part in item.content)
            return InputItem(type="message", role="assistant", content=text)
        case FunctionCallItem():
            return InputItem(
                type="function_call",
                call_id=item.call_id,
                name=item.name,
                namespace=item.namespace or None,
                arguments=item.arguments,
            )
        case CustomCallItem():
            return InputItem(
                type="custom_tool_call",
                call_id=item.call_id,
                name=item.name,
                namespace=item.namespace or None,
                input=item.input,
            )
        case ServerCallItem():
            return InputItem(
                type="mcp_call",
                id=item.id,
                name=item.name,
                arguments=item.arguments,
                output=item.output,
                error=item.error,
            )
        case ReasoningItem():
            return InputItem(type="reasoning")


PAGE_PARAMETERS = (
    Parameter(
        "limit",
        "query",
        integer_schema(1, MAX_PAGE),
        f"Maximum number of items (default {DEFAULT_PAGE}).",
    ),
    Parameter(
        "order", "query", {"enum": ["asc", "desc"]}, "Sort order; desc (newest first) by default."
    ),
    Parameter(
        "after", "query", {"type": "string"}, "Return the items that follow the one with this id."
    ),
)


async def input_items(app: App, request: web.Request, stored: StoredResponse) -> InputList:
    """Return one page of the response's input, newest first by default. Raises `ApiError`."""
    limit = request.query.get("limit") or str(DEFAULT_PAGE)
    if not limit.isascii() or not limit.isdecimal() or not 0 < int(limit[:9]) <= MAX_PAGE:
        raise invalid(f"limit must be a number from 1 to {MAX_PAGE}.", param="limit")
    order = request.query.get("order") or "desc"
    if order not in {"asc", "desc"}:
        raise invalid("order must be asc or desc.", param="order")
    rows = await app.store.archive_for(OWNER).messages(stored.session)
    items = [
        item for message in _request_messages(rows, stored) for item in _message_items(message)
    ]
    if order == "desc":
        items.reverse()
    if after := request.query.get("after"):
        positions = [position for position, item in enumerate(items, 1) if item["id"] == after]
        if not positions:
            raise invalid("after does not name an item of this response.", param="after")
        items = items[positions[0] :]
    page = items[: int(limit)]
    ids = [str(item["id"]) for item in page]
    return InputList(
        data=page,
        first_id=ids[0] if ids else None,
        last_id=ids[-1] if ids else None,
        has_more=len(items) > len(page),
    )


def _request_messages(rows: Sequence[StoredMessage], stored: StoredResponse) -> list[Message]:
    """Return the messages sent with the request: before its first answer, of no other turn."""
    messages: list[Message] = []
    for row in rows:
        if row.run == stored.id and isinstance(row.message, Assistant):
            break
        if row.seq <= stored.seq and row.run in {"", stored.id}:
            messages.append(row.message)
    return messages


def _message_items(message: Message) -> list[dict[str, Any]]:
    match message:
        case User(trust=Trust.PROGRAM):
            return []
        case User():
            return [_message_item(message, "user", "input_text")]
        case Result():
            output = {"call_id": message.call, "output": text_of(message)}
            return [{"id": message.id, "type": "function_call_output", **output}]
        case Assistant():
            items = [_message_item(message, "assistant", "output_text")] if message.text else []
            return items + [
                {
                    "id": f"fc_{call.id}",
                    "type": "function_call",
                    "call_id": call.id,
                    "name": call.name,
                    "arguments": bytes(call.args).decode("utf-8", "replace"),
                }
                for call in message.calls
            ]


def _message_item(message: User | Assistant, role: str, kind: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": kind, "text": text_of(message)}
    if role == "assistant":
        part["annotations"] = []
    item = {"id": message.id, "type": "message", "role": role, "content": [part]}
    return item | {"status": "completed"}
