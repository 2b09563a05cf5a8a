"""Items of responses that are named by their ids, and what a response was asked with."""

from collections.abc import Sequence
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct, structs

from hermes.api.context import integer_schema, query_parameter
from hermes.api.errors import invalid
from hermes.api.response_builder import response_id_of_item
from hermes.api.response_objects import (
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


async def resolve_references(app: App, given: Input) -> Input:
    """With the items themselves where only their ids were sent. Raises `ApiError`."""
    if isinstance(given, str):
        return given
    responses: dict[str, ResponseObject] = {}
    found: list[str | InputItem] = []
    for number, item in enumerate(given):
        if isinstance(item, str) or item.type != "item_reference":
            found.append(item)
            continue
        named = item.id or ""
        home = response_id_of_item(named)
        if home and home not in responses:
            responses[home] = await _load_response(app, home)
        items = responses[home].output if home else []
        one = next((one for one in items if one.id == named), None)
        if one is None:
            told = f"There is no item {one_line(named, 100)!r} here."
            raise invalid(told, param=f"input[{number}].id", code="item_not_found")
        found.append(_input_item(one))
    return found


async def _load_response(app: App, identity: str) -> ResponseObject:
    try:
        kept = await app.store.responses.get(identity, OWNER)
    except NotFound:
        return ResponseObject(id=identity, created_at=0, model="")
    return _OBJECT.decode(kept.body)


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
                arguments=item.arguments,
            )
        case ServerCallItem():
            plain = InputItem(type="mcp_call", id=item.id, name=item.name)
            return structs.replace(
                plain, arguments=item.arguments, output=item.output, error=item.error
            )
        case ReasoningItem():
            return InputItem(type="reasoning")


PAGE_PARAMETERS = (
    query_parameter(
        "limit", integer_schema(1, MAX_PAGE), f"How many at most; usually {DEFAULT_PAGE}."
    ),
    query_parameter(
        "order", {"enum": ["asc", "desc"]}, "desc, which is usual, is the newest first."
    ),
    query_parameter("after", {"type": "string"}, "What follows the item of this id."),
)


async def input_items(app: App, request: web.Request, kept: StoredResponse) -> InputList:
    """What the response was asked with, the newest first, a page at a time. Raises `ApiError`."""
    limit = request.query.get("limit") or str(DEFAULT_PAGE)
    if not limit.isascii() or not limit.isdecimal() or not 0 < int(limit[:9]) <= MAX_PAGE:
        raise invalid(f"limit is a number from 1 to {MAX_PAGE}.", param="limit")
    order = request.query.get("order") or "desc"
    if order not in {"asc", "desc"}:
        raise invalid("order is asc or desc.", param="order")
    rows = await app.store.archive_for(OWNER).messages(kept.session)
    told = [item for message in _request_messages(rows, kept) for item in _message_items(message)]
    if order == "desc":
        told.reverse()
    if after := request.query.get("after"):
        places = [place for place, item in enumerate(told, 1) if item["id"] == after]
        if not places:
            raise invalid("after is no item of this response.", param="after")
        told = told[places[0] :]
    page = told[: int(limit)]
    names = [str(item["id"]) for item in page]
    return InputList(
        data=page,
        first_id=names[0] if names else None,
        last_id=names[-1] if names else None,
        has_more=len(told) > len(page),
    )


def _request_messages(rows: Sequence[StoredMessage], kept: StoredResponse) -> list[Message]:
    """What came with its request: before its first answer, and of no other turn."""
    asked: list[Message] = []
    for row in rows:
        if row.run == kept.id and isinstance(row.message, Assistant):
            break
        if row.seq <= kept.seq and row.run in {"", kept.id}:
            asked.append(row.message)
    return asked


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
            said = [_message_item(message, "assistant", "output_text")] if message.text else []
            return said + [
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
    told = {"id": message.id, "type": "message", "role": role, "content": [part]}
    return told | {"status": "completed"}
