"""Encode requests for OpenAI's Responses API, continuing from stored responses if possible."""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, ClassVar, TypeAlias, assert_never

from msgspec import Raw, Struct, field

from hermes.models.images import ImageUrlMap, missing_image_text, part_text
from hermes.models.providers import EffortFormat, nearest_effort
from hermes.models.wire.codec import (
    RequestCodec,
    WireStream,
    openai_schema,
    openai_tool_choice,
    portable_call_id,
    read_signature,
)
from hermes.models.wire.responses_stream import EncryptedReasoning, ResponsesStream
from hermes.ports.model import ModelRequest
from hermes.schema.messages import (
    Assistant,
    Media,
    Message,
    Reasoning,
    Result,
    Text,
    ToolCall,
    User,
)
from hermes.schema.tools import ToolSpec

MAX_RESPONSES = 1_000
"""Answers to remember; to continue from an older one, the whole history is sent."""

_MISSING_RESPONSE = re.compile(r"previous[_ ]response", re.IGNORECASE)
_NOT_SUPPORTED = re.compile(
    r"zero data retention|not support|unsupported|unknown parameter", re.IGNORECASE
)
_RESPONSE_ID = re.compile(r"resp_[\w-]+")


class _PreviousResponse(Struct, frozen=True):
    """`past` is a digest of all messages up to the answer, which is what the server has."""

    response: str
    past: bytes


class PreviousResponses(Struct):
    """Maps answers to stored responses; disabled unless the server stores them."""

    enabled: bool = False
    _known: OrderedDict[str, _PreviousResponse] = field(default_factory=OrderedDict)

    def remember(self, answer: Assistant, messages: Sequence[Message], response: str) -> None:
        if not self.enabled or not response:
            return
        self._known[answer.id] = _PreviousResponse(response, _history_digest([*messages, answer]))
        if len(self._known) > MAX_RESPONSES:
            self._known.popitem(last=False)

    def continue_from(self, messages: Sequence[Message]) -> tuple[str, int]:
        """Return the response to continue from and the next message's index, or `("", 0)`."""
        if not self._known:
            return "", 0
        for at in range(len(messages) - 2, -1, -1):
            known = self._known.get(messages[at].id)
            if known is not None:
                same = known.past == _history_digest(messages[: at + 1])
                return (known.response, at + 1) if same else ("", 0)
        return "", 0

    def drop_rejected(self, rejection: str) -> bool:
        """Forget rejected responses; return whether the error was about one."""
        if not self.enabled or not _MISSING_RESPONSE.search(rejection):
            return False
        named = _RESPONSE_ID.search(rejection)
        gone = [key for key, known in self._known.items() if named and known.response == named[0]]
        if _NOT_SUPPORTED.search(rejection) or not gone:
            gone = list(self._known)
        for key in gone:
            del self._known[key]
        if _NOT_SUPPORTED.search(rejection):
            self.enabled = False
        return bool(gone)


def _history_digest(messages: Sequence[Message]) -> bytes:
    """Messages are immutable, so their ids identify the content."""
    return sha256("\n".join(message.id for message in messages).encode()).digest()


Item: TypeAlias = dict[str, Any]


class ResponsesWire(RequestCodec):
    """Implements `wire.codec.Wire`."""

    rejection_patterns: ClassVar[Mapping[str, str]] = {
        "summary": r"reasoning[.\s_']*summar",
        "cache_key": r"prompt_cache_key",
        "reasoning": r"reasoning[._]effort|parameter:? '?reasoning|encrypted_content. is not",
    }

    stream = ResponsesStream

    previous_responses: PreviousResponses = field(default_factory=PreviousResponses)

    def __post_init__(self) -> None:
        self.previous_responses.enabled = self._served.profile.stores_responses

    def path(self, base_url: str) -> str:
        return "/responses"

    def answer_received(self, request: ModelRequest, stream: WireStream, answer: Assistant) -> None:
        if isinstance(stream, ResponsesStream) and stream.finish_reason == "completed":
            self.previous_responses.remember(answer, request.messages, stream.response)

    def body(self, request: ModelRequest, images: ImageUrlMap | None = None) -> bytes:
        head, messages = self._head(request), request.messages
        if self.previous_responses.enabled:
            head["store"] = True
            response, first = self.previous_responses.continue_from(messages)
            if response:
                head["previous_response_id"] = response
                messages = messages[first:]
        items = [item for message in messages for item in self._items(message, images or {})]
        return self._encoder.encode(head | {"input": items})

    def images_in(self, messages: Sequence[Message]) -> list[Media]:
        return super().images_in(messages[self.previous_responses.continue_from(messages)[1] :])

    def _head(self, request: ModelRequest) -> Item:
        head: Item = {"model": self._served.model, "stream": True, "store": False}
        if request.system:
            head["instructions"] = request.system
        if request.messages and self._accepts("cache_key"):
            head["prompt_cache_key"] = request.messages[0].id
        if self._served.profile.effort is not EffortFormat.NONE and self._accepts("reasoning"):
            head["include"] = ["reasoning.encrypted_content"]
            head |= self._effort(request.effort)
        if limit := request.max_output or self._served.max_output:
            head["max_output_tokens"] = limit
        if request.tools:
            head["tools"] = Raw(self._encode_tools(request.tools))
            head |= openai_tool_choice(request.constraints, {"name": request.constraints.name})
        if request.constraints.format is not None:
            schema = openai_schema(request.constraints.format)
            form = {"type": "json_schema", **schema} if schema else {"type": "json_object"}
            head["text"] = {"format": form}
        return {**head, **self._served.extra}

    def drop_rejected(self, rejection: str) -> bool:
        return self.previous_responses.drop_rejected(rejection) or super().drop_rejected(rejection)

    @staticmethod
    def _tool(spec: ToolSpec) -> dict[str, Any]:
        return {
            "type": "function",
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.schema,
            "strict": False,
        }

    def _effort(self, wanted: str | None) -> Item:
        nearest = nearest_effort(wanted, self._served.profile.efforts) if wanted else None
        reasoning: Item = {"effort": nearest} if nearest else {}
        if self._accepts("summary"):
            reasoning["summary"] = "auto"
        return {"reasoning": reasoning} if reasoning else {}

    def _items(self, message: Message, images: ImageUrlMap) -> list[Item | Raw]:
        match message:
            case User():
                return [{"role": "user", "content": self._content(message.parts, images)}]
            case Assistant():
                return self._answer(message)
            case Result():
                output = self._content(message.parts, images)
                call = portable_call_id(message.call)
                return [{"type": "function_call_output", "call_id": call, "output": output}]
            case _:
                assert_never(message)

    def _content(self, parts: Sequence[Text | Media], images: ImageUrlMap) -> str | list[Item]:
        if not any(map(self._sends_image, parts)):
            return "\n".join(map(part_text, parts))
        return [self._part(part, images) for part in parts]

    def _part(self, part: Text | Media, images: ImageUrlMap) -> Item:
        if not self._sends_image(part):
            return {"type": "input_text", "text": part_text(part)}
        url = images.get(part.digest)
        if not url:
            return {"type": "input_text", "text": missing_image_text(part, url)}
        return {"type": "input_image", "image_url": url, "detail": "auto"}

    def _answer(self, message: Assistant) -> list[Item | Raw]:
        """Reasoning is only accepted together with the text or call that followed it."""
        items: list[Item | Raw] = []
        thoughts: list[Raw] = []
        own = self._owns(message)
        for part in message.parts:
            match part:
                case Reasoning(signature=signature):
                    if own and read_signature(signature, EncryptedReasoning):
                        thoughts.append(Raw((signature or "").encode()))
                    continue
                case Text():
                    if not part.text:
                        continue
                    content = [{"type": "output_text", "text": part.text}]
                    item: Item = {"role": "assistant", "content": content}
                case ToolCall():
                    item = _call_item(part)
                case _:
                    assert_never(part)
            items += [*thoughts, item]
            thoughts = []
        return items


def _call_item(call: ToolCall) -> Item:
    return {
        "type": "function_call",
        "call_id": portable_call_id(call.id),
        "name": call.name,
        "arguments": bytes(call.args).decode(),
    }
