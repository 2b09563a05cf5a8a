"""Encode requests for OpenAI's Chat Completions API.

The messages come last in the body and each is encoded separately and deterministically, so two
requests of one conversation share their bytes up to the first new message.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import takewhile
from operator import is_
from typing import Any, ClassVar, TypeAlias, assert_never

from msgspec import Raw, Struct, field

from hermes.models.images import ImageUrlMap, is_image, missing_image_text, part_text
from hermes.models.providers import (
    EffortFormat,
    ModelProfile,
    ReasoningReplay,
    nearest_effort,
)
from hermes.models.wire.chat_stream import ChatStream
from hermes.models.wire.codec import (
    RequestCodec,
    openai_schema,
    openai_tool_choice,
    read_signature,
)
from hermes.ports.model import UNCONSTRAINED, ModelRequest
from hermes.schema.messages import (
    Assistant,
    Media,
    Message,
    Reasoning,
    Result,
    Text,
    User,
    text_of,
)
from hermes.schema.tools import ToolSpec

Part: TypeAlias = dict[str, Any]
WireMessage: TypeAlias = dict[str, Any]


class _EncodedConversation(Struct, frozen=True):
    messages: Sequence[Message]
    pieces: list[bytes]


_NO_CONVERSATION = _EncodedConversation((), [])
MAX_CONVERSATIONS = 8
"""Number of conversations whose encoded messages are cached."""


class ChatWire(RequestCodec):
    """Implements `wire.codec.Wire`."""

    rejection_patterns: ClassVar[Mapping[str, str]] = {
        "stream_options": r"stream_options",
        "effort": r"reasoning_effort|enable_thinking|chat_template_kwargs",
    }

    stream = ChatStream

    _last_system: tuple[str, bytes] = ("", b"")
    _encoded: dict[str, _EncodedConversation] = field(default_factory=dict)
    """By the id of the first message; the last used one comes last."""

    def path(self, base_url: str) -> str:
        return "/chat/completions"

    def body(self, request: ModelRequest, images: ImageUrlMap | None = None) -> bytes:
        return b"".join(self.body_pieces(request, images))

    def body_pieces(self, request: ModelRequest, images: ImageUrlMap | None = None) -> list[bytes]:
        """Requests share the same bytes objects where possible, unless there are images."""
        head, encode, messages = self._prefix(request), self._encoder.encode, request.messages
        if images is not None:
            return [*head, b',"messages":', encode(self.messages(request, images)), b"}"]
        system, last = request.system, self._last_system
        # The same object is encoded once.
        if last[0] is not system:
            prompt = {"role": "system", "content": system}
            last = self._last_system = system, encode(prompt) if system else b""
        # What the last request of the conversation contained is not encoded again.
        conversation = messages[0].id if messages else ""
        known = self._encoded.pop(conversation, _NO_CONVERSATION)
        pieces = known.pieces[: sum(takewhile(bool, map(is_, known.messages, messages)))]
        for message in messages[len(pieces) :]:
            one = self._message(message, None)
            pieces.append(encode(one) if one else b"")
        self._encoded[conversation] = _EncodedConversation(messages, pieces)
        if len(self._encoded) > MAX_CONVERSATIONS:
            del self._encoded[next(iter(self._encoded))]
        encoded = b",".join(filter(None, pieces))
        between = b"," if system and encoded else b""
        return [*head, b',"messages":[', last[1], between, encoded, b"]}"]

    def _prefix(self, request: ModelRequest) -> list[bytes]:
        """Return everything before the messages, with the tools as a separate piece."""
        profile, encode = self._served.profile, self._encoder.encode
        head: dict[str, Any] = {"model": self._served.model, "stream": True}
        if profile.stream_usage and "stream_options" not in self._rejected:
            head["stream_options"] = {"include_usage": True}
        if limit := request.max_output or self._served.max_output:
            head[profile.max_tokens_field] = limit
        if request.effort and "effort" not in self._rejected:
            head |= _effort(request.effort, profile)
        if request.constraints.format is not None:
            schema = openai_schema(request.constraints.format)
            form = {"type": "json_schema", "json_schema": schema}
            head["response_format"] = form if schema else {"type": "json_object"}
        head |= self._served.extra
        if not request.tools:
            return [encode(head)[:-1]]
        choice: Mapping[str, Any] = {}
        if request.constraints != UNCONSTRAINED:
            named = {"function": {"name": request.constraints.name}}
            choice = openai_tool_choice(request.constraints, named)
        for name in ("tools", *choice):
            head.pop(name, None)
        wanted = [b",", encode(choice)[1:-1]] if choice else []
        return [encode(head)[:-1], b',"tools":', self._encode_tools(request.tools), *wanted]

    def messages(self, request: ModelRequest, images: ImageUrlMap) -> list[WireMessage]:
        written: list[WireMessage] = []
        if request.system:
            written.append({"role": "system", "content": request.system})
        shown: list[Media] = []
        for message in request.messages:
            if shown and not isinstance(message, Result):
                written.append(self._shown(shown, images))
                shown = []
            if isinstance(message, Result):
                shown += filter(self._sends_image, message.parts)
            if one := self._message(message, images):
                written.append(one)
        if shown:
            written.append(self._shown(shown, images))
        return written

    def _message(self, message: Message, images: ImageUrlMap | None) -> WireMessage | None:
        """Without `images`, the message has none to send."""
        match message:
            case User(parts=parts):
                if images is not None and any(map(self._sends_image, parts)):
                    return {"role": "user", "content": [_part(part, images) for part in parts]}
                texts = (one.text if isinstance(one, Text) else part_text(one) for one in parts)
                return {"role": "user", "content": "\n".join(texts)}
            case Assistant():
                return self._answer(message) if message.parts else None
            case Result():
                call, text = self._call_id(message.call), self._result_text(message)
                return {"role": "tool", "tool_call_id": call, "content": text}
            case _:
                assert_never(message)

    @staticmethod
    def _tool(spec: ToolSpec) -> dict[str, Any]:
        function = {"name": spec.name, "description": spec.description, "parameters": spec.schema}
        return {"type": "function", "function": function}

    def _answer(self, message: Assistant) -> WireMessage | None:
        text = text_of(message)
        calls = [
            {
                "type": "function",
                "id": self._call_id(call.id),
                "function": {"name": call.name, "arguments": bytes(call.args).decode()},
            }
            for call in message.calls
        ]
        if not text and not calls:
            return None
        content = text or self._served.profile.empty_content
        answer = {"role": "assistant", "content": content, **self._replay(message, text)}
        return answer | {"tool_calls": calls} if calls else answer

    def _replay(self, message: Assistant, text: str) -> WireMessage:
        """Send reasoning back to the provider it came from only."""
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        if not thoughts or message.provider != self._served.provider:
            return {}
        signature = thoughts[-1].signature or ""
        reasoning = "".join(thought.text for thought in thoughts)
        match self._served.profile.replay:
            # Sent verbatim, so it must not be able to break the message around it.
            case ReasoningReplay.DETAILS if read_signature(signature, list[object]) is not None:
                return {"reasoning_details": Raw(signature.encode())}
            case ReasoningReplay.CONTENT:
                return {"reasoning_content": reasoning}
            case ReasoningReplay.TAGS:
                content = text or self._served.profile.empty_content or ""
                return {"content": f"<think>\n{reasoning}\n</think>\n\n{content}"}
            case _:
                return {}

    def _call_id(self, identity: str) -> str:
        if not self._served.profile.short_call_ids or (len(identity) == 9 and identity.isalnum()):
            return identity
        return sha256(identity.encode()).hexdigest()[:9]

    def _shown(self, shown: Sequence[Media], images: ImageUrlMap) -> WireMessage:
        label = {"type": "text", "text": "[Images from the tool results above]"}
        return {"role": "user", "content": [label, *(_part(image, images) for image in shown)]}


def _part(part: Text | Media, images: ImageUrlMap) -> Part:
    if isinstance(part, Text) or not is_image(part):
        return {"type": "text", "text": part_text(part)}
    url = images.get(part.digest)
    if not url:
        return {"type": "text", "text": missing_image_text(part, url)}
    return {"type": "image_url", "image_url": {"url": url}}


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
