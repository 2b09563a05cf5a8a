"""From the messages of a body to what a turn is asked: instructions, past, words and results."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import msgspec
from msgspec import Raw, Struct

from hermes.agent.history import join_users
from hermes.api import attachments
from hermes.api.attachments import (
    AttachedDocument,
    AttachedImage,
    Attachment,
    read_file,
    read_image,
)
from hermes.api.chat_objects import ChatMessage, ChatTool, HistoryCall
from hermes.api.errors import ApiError, invalid
from hermes.app.build import App
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.schema.messages import (
    Assistant,
    Media,
    Message,
    Result,
    Stop,
    Text,
    ToolCall,
    User,
)
from hermes.schema.tools import ToolSpec

MAX_ATTACHMENTS = 50

_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_IMAGE_TYPES = frozenset({"image_url", "input_image"})
_FILE_TYPES = frozenset({"file", "input_file"})


class _ParsedMessage(Struct):
    """A message whose attachments are not kept yet."""

    role: str
    parts: list[Text | Attachment]
    calls: tuple[ToolCall, ...] = ()
    call: str = ""

    @property
    def has_content(self) -> bool:
        return any(not isinstance(part, Text) or part.text.strip() for part in self.parts)


class TurnInput(Struct, frozen=True):
    """`past` is what was said before; `asked` and `results` are what the turn begins with."""

    instructions: str
    past: tuple[Message, ...]
    asked: User | None
    results: tuple[Result, ...]


class ParsedMessages:
    """The messages of a body, checked. Nothing is written before `keep`."""

    def __init__(self, messages: Sequence[ChatMessage]) -> None:
        self._system: list[str] = []
        self._said: list[_ParsedMessage] = []
        for number, message in enumerate(messages):
            self._read(message, f"messages[{number}]")
        begin = _last_assistant(self._said) + 1
        self._past, tail = self._said[:begin], self._said[begin:]
        self._results = [one for one in tail if one.role == "tool"]
        self._users = [one for one in tail if one.role == "user" and one.has_content]
        if not self._results and not self._users:
            told = "The last message must be one of the user, or the result of a call."
            raise invalid(told, param="messages")
        known = {call.id for one in self._past for call in one.calls}
        for one in self._results:
            if one.call not in known:
                told = f"No message before it made the call {one_line(one.call, 100)!r}."
                raise invalid(told, param="messages", code="unknown_tool_call")

    @property
    def instructions(self) -> str:
        return "\n\n".join(self._system)

    async def keep(self, app: App) -> TurnInput:
        """The messages, with pictures in the blob store. Raises `ApiError` before that."""
        past = [await _store_message(one, app) for one in self._past]
        users = [User(new_id("msg"), await _store_parts(one.parts, app)) for one in self._users]
        asked = reduce(join_users, users) if users else None
        results: list[Result] = []
        for one in self._results:
            parts = await _store_parts(one.parts, app)
            results.append(Result(new_id("msg"), one.call, parts))
        return TurnInput(self.instructions, tuple(past), asked, tuple(results))

    def _read(self, message: ChatMessage, place: str) -> None:
        parts = _read_content(message.content, f"{place}.content")
        match message.role:
            case "system" | "developer":
                text = "".join(part.text for part in parts if isinstance(part, Text))
                self._system += [text] if text.strip() else []
            case "user":
                self._said.append(_ParsedMessage("user", parts))
            case "assistant":
                calls = tuple(
                    _read_call(call, f"{place}.tool_calls[{number}]")
                    for number, call in enumerate(message.tool_calls or ())
                )
                if parts or calls:
                    self._said.append(_ParsedMessage("assistant", parts, calls))
            case "tool" | "function":
                if not message.tool_call_id:
                    raise invalid(
                        "The result of a call must name it.", param=f"{place}.tool_call_id"
                    )
                self._said.append(_ParsedMessage("tool", parts, call=message.tool_call_id))


def client_tools(tools: Sequence[ChatTool] | None) -> tuple[ToolSpec, ...]:
    """The asker's tools, as the model is offered them."""
    found: dict[str, ToolSpec] = {}
    for number, tool in enumerate(tools or ()):
        one = tool.function
        if one.name in found:
            told = f"There are two tools named {one.name!r}."
            raise invalid(told, param=f"tools[{number}].function.name")
        schema = one.parameters or {"type": "object", "properties": {}}
        found[one.name] = ToolSpec(one.name, one.description or "", schema)
    return tuple(found.values())


def _last_assistant(said: Sequence[_ParsedMessage]) -> int:
    places = [place for place, one in enumerate(said) if one.role == "assistant"]
    return places[-1] if places else -1


def _read_content(
    content: str | Sequence[dict[str, Any]] | None, place: str
) -> list[Text | Attachment]:
    if content is None or isinstance(content, str):
        return [Text(content)] if content else []
    parts = [_read_part(part, f"{place}[{number}]") for number, part in enumerate(content)]
    if sum(isinstance(part, AttachedImage | AttachedDocument) for part in parts) > MAX_ATTACHMENTS:
        told = f"There are more than {MAX_ATTACHMENTS} images and files in one message."
        raise invalid(told, param=place, code="too_many_images")
    return [part for part in parts if not isinstance(part, Text) or part.text]


def _read_part(part: dict[str, Any], place: str) -> Text | Attachment:
    kind: object = part.get("type")
    if not isinstance(kind, str):
        raise invalid("A part must have a type.", param=place)
    if kind in _TEXT_TYPES and isinstance(text := part.get("text"), str):
        return Text(text)
    if kind == "refusal" and isinstance(text := part.get("refusal"), str):
        return Text(text)
    if kind in _IMAGE_TYPES:
        return read_image(part.get("image_url"), place)
    if kind in _FILE_TYPES:
        return read_file(part, place)
    if kind not in _TEXT_TYPES:
        told = f"A part of the type {one_line(kind, 60)!r} is not understood: "
        told += "send text, images or files."
        raise invalid(told, param=place, code="unsupported_content_type")
    raise invalid("A part of text must have a text.", param=place)


def _read_call(call: HistoryCall, place: str) -> ToolCall:
    if not call.id or not call.function.name:
        raise invalid("A call must have an id and a name.", param=place)
    text = call.function.arguments.strip() or "{}"
    try:
        msgspec.json.decode(text, type=dict[str, Raw])
    except msgspec.MsgspecError:
        return ToolCall(call.id, call.function.name, Raw(b"{}"), text)
    return ToolCall(call.id, call.function.name, Raw(text.encode()))


async def _store_parts(parts: Sequence[Text | Attachment], app: App) -> tuple[Text | Media, ...]:
    return tuple(
        [
            part if isinstance(part, Text) else await attachments.store_attachment(part, app)
            for part in parts
        ]
    )


async def _store_message(one: _ParsedMessage, app: App) -> Message:
    parts = await _store_parts(one.parts, app)
    identity = new_id("msg")
    match one.role:
        case "user":
            return User(identity, parts)
        case "tool":
            return Result(identity, one.call, parts)
        case "assistant":
            words = tuple(part for part in parts if isinstance(part, Text))
            stop = Stop.TOOLS if one.calls else Stop.END
            return Assistant(identity, (*words, *one.calls), stop)
        case _:
            raise ApiError(400, "invalid_request", f"There is no role {one.role!r}.")
