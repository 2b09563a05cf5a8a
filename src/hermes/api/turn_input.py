"""Convert a request to turn input: messages and output format."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from hermes.agent.history import join_users
from hermes.api.attachments import (
    AttachedDocument,
    AttachedImage,
    Attachment,
    read_file,
    read_image,
    store_attachment,
)
from hermes.api.chat_objects import (
    ChatMessage,
    HistoryCall,
    ResponseFormat,
    TextFormat,
)
from hermes.api.client_tools import ToolChoice
from hermes.api.errors import ApiError, invalid
from hermes.api.settings import ModelRoute
from hermes.app.build import App
from hermes.kit.ids import new_id
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.text import one_line
from hermes.ports.model import OutputFormat
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
from hermes.schema.sessions import Session

MAX_ATTACHMENTS = 50

_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_IMAGE_TYPES = frozenset({"image_url", "input_image"})
_FILE_TYPES = frozenset({"file", "input_file"})


class _ParsedMessage(Struct):
    """A message whose attachments are not stored yet."""

    role: str
    parts: list[Text | Attachment]
    calls: tuple[ToolCall, ...] = ()
    call: str = ""


class TurnInput(Struct, frozen=True):
    """What a turn gets: the history, and the question or tool results that start it."""

    instructions: str
    history: tuple[Message, ...]
    question: User | None
    results: tuple[Result, ...]


class ParsedMessages:
    """The validated messages of a request. Nothing is stored before `store`."""

    def __init__(self, messages: Sequence[ChatMessage]) -> None:
        self._system: list[str] = []
        self._messages: list[_ParsedMessage] = []
        for number, message in enumerate(messages):
            self._read(message, f"messages[{number}]")
        answers = [
            number for number, parsed in enumerate(self._messages, 1) if parsed.role == "assistant"
        ]
        begin = answers[-1] if answers else 0
        self._history, tail = self._messages[:begin], self._messages[begin:]
        self._results = [parsed for parsed in tail if parsed.role == "tool"]
        self._users = [
            parsed
            for parsed in tail
            if parsed.role == "user"
            and any(not isinstance(part, Text) or part.text.strip() for part in parsed.parts)
        ]
        if not self._results and not self._users:
            text = "The last message must be a user message or a tool result."
            raise invalid(text, param="messages")
        known = {call.id for parsed in self._history for call in parsed.calls}
        for result in self._results:
            if result.call not in known:
                text = f"No earlier message made the call {one_line(result.call, 100)!r}."
                raise invalid(text, param="messages", code="unknown_tool_call")

    async def store(self, app: App) -> TurnInput:
        """Store attachments and return the input. Raises `ApiError` before storing anything."""
        history = [await _store_message(message, app) for message in self._history]
        users = [User(new_id("msg"), await _store_parts(user.parts, app)) for user in self._users]
        # A turn has one question, so several messages in a row are joined.
        question = reduce(join_users, users) if users else None
        results: list[Result] = []
        for result in self._results:
            parts = await _store_parts(result.parts, app)
            results.append(Result(new_id("msg"), result.call, parts))
        instructions = "\n\n".join(self._system)
        return TurnInput(instructions, tuple(history), question, tuple(results))

    def _read(self, message: ChatMessage, param: str) -> None:
        content, parts = message.content, list[Text | Attachment]()
        if isinstance(content, str):
            parts += [Text(content)] if content else []
        elif content is not None:
            parts = _read_content(content, f"{param}.content")
        match message.role:
            case "system" | "developer":
                text = "".join(part.text for part in parts if isinstance(part, Text))
                self._system += [text] if text.strip() else []
            case "user":
                self._messages.append(_ParsedMessage("user", parts))
            case "assistant":
                calls = tuple(
                    _read_call(call, f"{param}.tool_calls[{number}]")
                    for number, call in enumerate(message.tool_calls or ())
                )
                if parts or calls:
                    self._messages.append(_ParsedMessage("assistant", parts, calls))
            case "tool" | "function":
                if not message.tool_call_id:
                    raise invalid(
                        "A tool message needs a tool_call_id.", param=f"{param}.tool_call_id"
                    )
                self._messages.append(_ParsedMessage("tool", parts, call=message.tool_call_id))


def _read_content(content: Sequence[dict[str, Any]], param: str) -> list[Text | Attachment]:
    parts = [_read_part(part, f"{param}[{number}]") for number, part in enumerate(content)]
    if sum(isinstance(part, AttachedImage | AttachedDocument) for part in parts) > MAX_ATTACHMENTS:
        message = f"A message may contain at most {MAX_ATTACHMENTS} images and files."
        raise invalid(message, param=param, code="too_many_images")
    return [part for part in parts if not isinstance(part, Text) or part.text]


def _read_part(part: dict[str, Any], param: str) -> Text | Attachment:
    kind: object = part.get("type")
    if not isinstance(kind, str):
        raise invalid("A content part needs a type.", param=param)
    if kind in _TEXT_TYPES and isinstance(text := part.get("text"), str):
        return Text(text)
    if kind == "refusal" and isinstance(text := part.get("refusal"), str):
        return Text(text)
    if kind in _IMAGE_TYPES:
        return read_image(part.get("image_url"), param)
    if kind in _FILE_TYPES:
        return read_file(part, param)
    if kind not in _TEXT_TYPES:
        message = f"Unsupported content part type {one_line(kind, 60)!r}: "
        message += "send text, images or files."
        raise invalid(message, param=param, code="unsupported_content_type")
    raise invalid("A text part needs a text field.", param=param)


def _read_call(call: HistoryCall, param: str) -> ToolCall:
    called = call.called
    if not call.id or not called.name:
        raise invalid("A tool call needs an id and a name.", param=param)
    text = called.arguments.strip() or "{}"
    try:
        msgspec.json.decode(text, type=dict[str, Raw])
    except JSON_ERRORS:
        return ToolCall(call.id, called.name, Raw(b"{}"), text)
    return ToolCall(call.id, called.name, Raw(text.encode()))


async def _store_parts(parts: Sequence[Text | Attachment], app: App) -> tuple[Text | Media, ...]:
    stored = [
        part if isinstance(part, Text) else await store_attachment(part, app) for part in parts
    ]
    return tuple(stored)


async def _store_message(parsed: _ParsedMessage, app: App) -> Message:
    parts = await _store_parts(parsed.parts, app)
    message_id = new_id("msg")
    match parsed.role:
        case "user":
            return User(message_id, parts)
        case "tool":
            return Result(message_id, parsed.call, parts)
        case "assistant":
            texts = tuple(part for part in parts if isinstance(part, Text))
            stop = Stop.TOOLS if parsed.calls else Stop.END
            return Assistant(message_id, (*texts, *parsed.calls), stop)
        case _:
            raise ApiError(400, "invalid_request", f"Unknown role {parsed.role!r}.")


def read_response_format(requested: ResponseFormat | None) -> OutputFormat | None:
    """Raises `ApiError` if the schema is missing."""
    if requested is None or requested.type == "text":
        return None
    if requested.type == "json_object":
        return OutputFormat()
    json_schema = requested.json_schema
    if json_schema is None or json_schema.schema is None:
        raise invalid("The schema is missing.", param="response_format.json_schema")
    return OutputFormat(schema=json_schema.schema, name=json_schema.name, strict=json_schema.strict)


def read_text_format(requested: TextFormat | None) -> OutputFormat | None:
    """Raises `ApiError` if the name or the schema is missing."""
    if requested is None or requested.type == "text":
        return None
    if requested.type == "json_object":
        return OutputFormat()
    if requested.schema is UNSET or requested.name is UNSET:
        raise invalid("The schema or its name is missing.", param="text.format")
    strict = None if requested.strict is UNSET else requested.strict
    return OutputFormat(schema=requested.schema, name=requested.name, strict=strict)


def with_output_format(choice: ToolChoice, output_format: OutputFormat | None) -> ToolChoice:
    """Return the choice with this output format added."""
    if output_format is None:
        return choice
    return structs.replace(
        choice, constraints=structs.replace(choice.constraints, format=output_format)
    )


async def require_output_format(app: App, session: Session, route: ModelRoute | None) -> None:
    """Raises `ApiError` if the model does not support JSON output."""
    if route is not None:
        session = structs.replace(session, model=route.model, provider=route.provider)
    backend = "The runtime of this session"
    if has_own_model(app):
        model = await app.models.model_for(session)
        if app.models.profile_of(model).json_output:
            return
        backend = f"{model.provider}/{model.name}"
    message = f"{backend} does not support structured output."
    message = f"{message} Ask for JSON in the prompt, or use a tool."
    raise invalid(message, param="response_format", code="unsupported_response_format")


def has_own_model(app: App) -> bool:
    """Whether turns run on one of our models, not in another runtime."""
    return not app.runtimes.enabled
