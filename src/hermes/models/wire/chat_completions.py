"""Encode requests for OpenAI's Chat Completions API.

The messages come last in the body and each is encoded separately and deterministically, so two
requests of one conversation share their bytes up to the first new message.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, ClassVar, TypeAlias, assert_never

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from hermes.kit.clock import Clock
from hermes.models.endpoint import Endpoint
from hermes.models.images import ImageUrls, is_image, missing_image_text, part_text
from hermes.models.providers import EffortFormat, ModelProfile, ReasoningReplay, nearest_effort
from hermes.models.wire.chat_stream import ChatStream, StreamChunk
from hermes.models.wire.request_codec import RequestCodec
from hermes.models.wire.stream import ImageUrlMap
from hermes.models.wire_model import ServedModel, WireModel
from hermes.ports.model import ModelRequest, OutputConstraints, OutputFormat
from hermes.schema.messages import (
    Assistant,
    Media,
    Message,
    Reasoning,
    Result,
    Text,
    ToolCall,
    User,
    text_of,
)
from hermes.schema.tools import ToolSpec


class ImageUrl(Struct):
    url: str


class ImagePart(Struct, tag="image_url"):
    image_url: ImageUrl


class TextPart(Struct, tag="text"):
    text: str


class SystemMessage(Struct, tag_field="role", tag="system"):
    content: str


class UserMessage(Struct, tag_field="role", tag="user"):
    content: str | list[TextPart | ImagePart]


class Function(Struct):
    name: str
    arguments: str


class CallPart(Struct, tag="function"):
    id: str
    function: Function


class AssistantMessage(Struct, tag_field="role", tag="assistant"):
    content: str | None
    reasoning_content: str | UnsetType = UNSET
    reasoning_details: Raw | UnsetType = UNSET
    tool_calls: list[CallPart] | UnsetType = UNSET


class ToolMessage(Struct, tag_field="role", tag="tool"):
    tool_call_id: str
    content: str


WireMessage: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


class _EncodedConversation(Struct, frozen=True):
    messages: Sequence[Message]
    pieces: list[bytes]


_NO_CONVERSATION = _EncodedConversation((), [])
MAX_CONVERSATIONS = 8
"""Number of conversations whose encoded messages are cached."""


class ChatRequestCodec(RequestCodec):
    """Encodes request bodies for one model of a provider."""

    refusal_patterns: ClassVar[Mapping[str, str]] = {
        "stream_options": r"stream_options",
        "effort": r"reasoning_effort|enable_thinking|chat_template_kwargs",
    }

    def __init__(
        self,
        model: str,
        provider: str,
        profile: ModelProfile,
        max_output: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, provider, profile, max_output, extra)
        self._last_system = ("", b"")
        self._encoded: OrderedDict[str, _EncodedConversation] = OrderedDict()

    def body(self, request: ModelRequest, images: ImageUrlMap | None = None) -> bytes:
        """Return the whole body. `images` holds those named by `images_in`, as far as found.

        None means that there are none.
        """
        return b"".join(self.body_pieces(request, images))

    def body_pieces(self, request: ModelRequest, images: ImageUrlMap | None = None) -> list[bytes]:
        """Return the body in pieces; requests share the same bytes objects where possible."""
        head = self._prefix(request)
        if images is not None:
            encoded = self._encoder.encode(self.messages(request, images))
            return [*head, b',"messages":', encoded, b"}"]
        system = self._system(request.system) if request.system else b""
        encoded = b",".join(filter(None, self._encode_messages(request.messages)))
        between = b"," if system and encoded else b""
        return [*head, b',"messages":[', system, between, encoded, b"]}"]

    def _prefix(self, request: ModelRequest) -> list[bytes]:
        """Return everything before the messages, with the tools as a separate piece."""
        encode, head = self._encoder.encode, self._head(request)
        if not request.tools:
            return [encode(head)[:-1]]
        calling = _tool_choice(request.constraints)
        for name in ("tools", *calling):
            head.pop(name, None)
        wanted = [b",", encode(calling)[1:-1]] if calling else []
        return [encode(head)[:-1], b',"tools":', self._tool_encoder.encode(request.tools), *wanted]

    def _system(self, system: str) -> bytes:
        """Encode the system prompt, reusing the last result for the same object."""
        if self._last_system[0] is not system:
            self._last_system = system, self._encoder.encode(SystemMessage(system))
        return self._last_system[1]

    def _encode_messages(self, messages: Sequence[Message]) -> list[bytes]:
        """Encode each message, reusing the prefix of the conversation's last request."""
        last, same = self._last(messages)
        written = last.pieces[:same]
        for message in messages[same:]:
            one = self._message(message, {})
            written.append(self._encoder.encode(one) if one else b"")
        conversation = messages[0].id if messages else ""
        self._encoded[conversation] = _EncodedConversation(messages, written)
        self._encoded.move_to_end(conversation)
        if len(self._encoded) > MAX_CONVERSATIONS:
            self._encoded.popitem(last=False)
        return written

    def messages(self, request: ModelRequest, images: ImageUrlMap) -> list[WireMessage]:
        written: list[WireMessage] = [SystemMessage(request.system)] if request.system else []
        shown: list[Media] = []
        for message in request.messages:
            if shown and not isinstance(message, Result):
                written.append(self._shown(shown, images))
                shown = []
            if isinstance(message, Result):
                shown += self._images(message.parts)
            if one := self._message(message, images):
                written.append(one)
        if shown:
            written.append(self._shown(shown, images))
        return written

    def _message(self, message: Message, images: ImageUrlMap) -> WireMessage | None:
        match message:
            case User():
                return UserMessage(self._content(message.parts, images))
            case Assistant():
                return self._answer(message) if message.parts else None
            case Result():
                return ToolMessage(self._call_id(message.call), self._result_text(message))
            case _:
                assert_never(message)

    def _last(self, messages: Sequence[Message]) -> tuple[_EncodedConversation, int]:
        """Return the conversation's last request, and the length of the common prefix."""
        last = self._encoded.get(messages[0].id, _NO_CONVERSATION) if messages else _NO_CONVERSATION
        same = 0
        for old, new in zip(last.messages, messages, strict=False):
            if old is not new:
                break
            same += 1
        return last, same

    def images_in(self, messages: Sequence[Message]) -> list[Media]:
        """Return the images that `body` needs; cached messages have none."""
        _, same = self._last(messages)
        return super().images_in(messages[same:])

    def _head(self, request: ModelRequest) -> dict[str, Any]:
        head: dict[str, Any] = {"model": self._model, "stream": True}
        if self._profile.stream_usage and self._optional.is_accepted("stream_options"):
            head["stream_options"] = {"include_usage": True}
        limit = request.max_output or self._max_output
        if limit:
            head[self._profile.max_tokens_field] = limit
        if request.effort and self._optional.is_accepted("effort"):
            head |= _effort(request.effort, self._profile)
        if request.constraints.format is not None:
            head["response_format"] = _response_format(request.constraints.format)
        return head | self._extra

    @staticmethod
    def _tool(spec: ToolSpec) -> dict[str, Any]:
        function = {"name": spec.name, "description": spec.description, "parameters": spec.schema}
        return {"type": "function", "function": function}

    def _images(self, parts: Sequence[Text | Media]) -> list[Media]:
        if not self._profile.images:
            return []
        return [part for part in parts if isinstance(part, Media) and is_image(part)]

    def _content(
        self, parts: Sequence[Text | Media], images: ImageUrlMap
    ) -> str | list[TextPart | ImagePart]:
        if len(parts) == 1 and isinstance(parts[0], Text):
            return parts[0].text
        if not self._images(parts):
            return "\n".join(map(part_text, parts))
        return [_part(part, images) for part in parts]

    def _answer(self, message: Assistant) -> AssistantMessage | None:
        text = text_of(message)
        calls = [self._call(part) for part in message.parts if isinstance(part, ToolCall)]
        if not text and not calls:
            return None
        answer = AssistantMessage(text or self._profile.empty_content)
        if calls:
            answer.tool_calls = calls
        if self._profile.replay is not ReasoningReplay.NEVER:
            self._replay(message, answer)
        return answer

    def _replay(self, message: Assistant, answer: AssistantMessage) -> None:
        """Send reasoning back to the provider it came from only."""
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        if not thoughts or message.provider != self._provider:
            return
        signature = thoughts[-1].signature
        if (
            self._profile.replay is ReasoningReplay.DETAILS
            and signature
            and _is_json_list(signature)
        ):
            answer.reasoning_details = Raw(signature.encode())
            return
        thought = "".join(thought.text for thought in thoughts)
        if self._profile.replay is ReasoningReplay.CONTENT:
            answer.reasoning_content = thought
        elif self._profile.replay is ReasoningReplay.TAGS:
            answer.content = f"<think>\n{thought}\n</think>\n\n{answer.content or ''}"

    def _call(self, call: ToolCall) -> CallPart:
        arguments = bytes(call.args).decode()
        return CallPart(self._call_id(call.id), Function(call.name, arguments))

    def _call_id(self, identity: str) -> str:
        if not self._profile.short_call_ids or (len(identity) == 9 and identity.isalnum()):
            return identity
        return sha256(identity.encode()).hexdigest()[:9]

    def _result_text(self, result: Result) -> str:
        """Return a result's text; its images follow in a separate message."""
        parts = result.parts
        if len(parts) == 1 and isinstance(parts[0], Text):
            return parts[0].text
        seen = self._images(parts)
        return "\n".join(
            f"[the image {part.name or part.media_type} follows below]"
            if part in seen
            else part_text(part)
            for part in parts
        )

    def _shown(self, shown: Sequence[Media], images: ImageUrlMap) -> UserMessage:
        label = TextPart("[Images from the tool results above]")
        return UserMessage([label, *(_part(image, images) for image in shown)])


def _is_json_list(signature: str) -> bool:
    """Signatures are sent verbatim, so they must not be able to break the message around them."""
    try:
        msgspec.json.decode(signature, type=list[object])
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _part(part: Text | Media, images: ImageUrlMap) -> TextPart | ImagePart:
    if isinstance(part, Text) or not is_image(part):
        return TextPart(part_text(part))
    url = images.get(part.digest)
    if not url:
        return TextPart(missing_image_text(part, url))
    return ImagePart(ImageUrl(url))


def _tool_choice(wanted: OutputConstraints) -> dict[str, Any]:
    head: dict[str, Any] = {}
    if wanted.name:
        head["tool_choice"] = {"type": "function", "function": {"name": wanted.name}}
    elif wanted.required:
        head["tool_choice"] = "required"
    if wanted.single:
        head["parallel_tool_calls"] = False
    return head


def _response_format(wanted: OutputFormat) -> dict[str, Any]:
    if wanted.schema is None:
        return {"type": "json_object"}
    schema: dict[str, Any] = {"name": wanted.name, "schema": wanted.schema}
    if wanted.strict is not None:
        schema["strict"] = wanted.strict
    return {"type": "json_schema", "json_schema": schema}


def _effort(wanted: str, profile: ModelProfile) -> dict[str, Any]:
    thinks = wanted != "none"
    nearest = nearest_effort(wanted, profile.efforts)
    match profile.effort:
        case EffortFormat.NONE | EffortFormat.BUDGET | EffortFormat.ADAPTIVE | EffortFormat.LEVEL:
            return {}
        case EffortFormat.FIELD:
            return {"reasoning_effort": nearest} if nearest else {}
        case EffortFormat.OBJECT:
            if not thinks:
                return {"reasoning": {"enabled": False}}
            return {"reasoning": {"effort": nearest}} if nearest else {}
        case EffortFormat.SWITCH:
            return {"thinking": {"type": "enabled" if thinks else "disabled"}}
        case EffortFormat.TEMPLATE:
            return {"chat_template_kwargs": {"enable_thinking": thinks}}
        case _:
            assert_never(profile.effort)


__all__ = ["ChatCompletionsModel", "ChatWire", "ServedModel"]


class ChatWire(ChatRequestCodec):
    """Implements `wire.stream.Wire`."""

    def __init__(self, served: ServedModel) -> None:
        super().__init__(
            served.model, served.provider, served.profile, served.max_output, served.extra
        )
        self._auth_header = served.auth_header
        self._decoder = msgspec.json.Decoder(StreamChunk, strict=False)

    def path(self, base_url: str) -> str:
        return "/chat/completions"

    def headers(self, key: str, base_url: str) -> dict[str, str]:
        if not key:
            return {}
        name = self._auth_header
        return {name: f"Bearer {key}" if name == "authorization" else key}

    def stream(self) -> ChatStream:
        return ChatStream(self._decoder)


class ChatCompletionsModel(WireModel):
    def __init__(
        self,
        endpoint: Endpoint,
        served: ServedModel,
        images: ImageUrls,
        clock: Clock,
        key: str = "",
    ) -> None:
        super().__init__(endpoint, served, images, clock, ChatWire(served), key)
