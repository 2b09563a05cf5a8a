"""A request in the words of OpenAI's responses API.

Nothing is kept on the server: the whole conversation goes along every time, with the
encrypted thoughts of the model in it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, assert_never

import msgspec
from msgspec import Raw

from hermes.models.profile import EffortForm, Profile, nearest_effort
from hermes.models.wire.call_ids import plain_call_id
from hermes.models.wire.offered import Offered
from hermes.models.wire.optional import Optional
from hermes.models.wire.pictures import as_text, is_image, missing
from hermes.models.wire.responses_stream import SealedItem
from hermes.models.wire.stream import Urls
from hermes.ports.model import Calling, Request
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

Item: TypeAlias = dict[str, Any]


class ResponsesRequestCodec:
    """Writes the bodies for one model of one provider."""

    def __init__(
        self,
        model: str,
        provider: str,
        profile: Profile,
        max_output: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = model
        self._provider = provider
        self._profile = profile
        self._max_output = max_output
        self._extra = dict(extra or {})
        self._offered = Offered(_tool)
        self._optional = Optional(
            summary=r"reasoning[.\s_']*summar",
            cache_key=r"prompt_cache_key",
            reasoning=r"reasoning[._]effort|parameter:? '?reasoning|encrypted_content. is not",
        )
        self._encoder = msgspec.json.Encoder()

    def body(self, request: Request, images: Urls | None = None) -> bytes:
        items = [
            item for message in request.messages for item in self._items(message, images or {})
        ]
        return self._encoder.encode(self._head(request) | {"input": items})

    def images_in(self, messages: Sequence[Message]) -> list[Media]:
        return [
            part
            for message in messages
            if not isinstance(message, Assistant)
            for part in message.parts
            if isinstance(part, Media) and self._shows(part)
        ]

    def _shows(self, media: Media) -> bool:
        return self._profile.images and is_image(media)

    def _head(self, request: Request) -> Item:
        head: Item = {"model": self._model, "stream": True, "store": False}
        if request.system:
            head["instructions"] = request.system
        if request.messages and self._optional.takes("cache_key"):
            head["prompt_cache_key"] = request.messages[0].id
        if self._profile.effort is not EffortForm.NOWHERE and self._optional.takes("reasoning"):
            head["include"] = ["reasoning.encrypted_content"]
            head |= self._effort(request.effort)
        if limit := request.max_output or self._max_output:
            head["max_output_tokens"] = limit
        if request.tools:
            head["tools"] = self._offered(request.tools)
            head |= _calling(request.calling)
        return head | self._extra

    def learn(self, refusal: str) -> bool:
        return self._optional.learn(refusal)

    def _effort(self, wanted: str | None) -> Item:
        nearest = nearest_effort(wanted, self._profile.efforts) if wanted else None
        reasoning: Item = {"effort": nearest} if nearest else {}
        if self._optional.takes("summary"):
            reasoning["summary"] = "auto"
        return {"reasoning": reasoning} if reasoning else {}

    def _items(self, message: Message, images: Urls) -> list[Item | Raw]:
        match message:
            case User():
                return [{"role": "user", "content": self._content(message.parts, images)}]
            case Assistant():
                return self._answer(message)
            case Result():
                output = self._content(message.parts, images)
                call = plain_call_id(message.call)
                return [{"type": "function_call_output", "call_id": call, "output": output}]
            case _:
                assert_never(message)

    def _content(self, parts: Sequence[Text | Media], images: Urls) -> str | list[Item]:
        if not any(isinstance(part, Media) and self._shows(part) for part in parts):
            return "\n".join(map(as_text, parts))
        return [self._part(part, images) for part in parts]

    def _part(self, part: Text | Media, images: Urls) -> Item:
        if isinstance(part, Text) or not self._shows(part):
            return {"type": "input_text", "text": as_text(part)}
        url = images.get(part.digest)
        if not url:
            return {"type": "input_text", "text": missing(part, url)}
        return {"type": "input_image", "image_url": url, "detail": "auto"}

    def _answer(self, message: Assistant) -> list[Item | Raw]:
        """A thought is only taken back together with what was said or done after it."""
        items: list[Item | Raw] = []
        thoughts: list[Raw] = []
        for part in message.parts:
            match part:
                case Reasoning():
                    if sealed := self._thought(part, message):
                        thoughts.append(sealed)
                    continue
                case Text():
                    if not part.text:
                        continue
                    item = _said(part.text)
                case ToolCall():
                    item = _call(part)
                case _:
                    assert_never(part)
            items += [*thoughts, item]
            thoughts = []
        return items

    def _thought(self, part: Reasoning, message: Assistant) -> Raw | None:
        if (message.provider, message.model) != (self._provider, self._model):
            return None
        seal = part.signature or ""
        try:
            msgspec.json.decode(seal, type=SealedItem)
        except (msgspec.DecodeError, RecursionError):
            return None
        return Raw(seal.encode())


def _said(text: str) -> Item:
    return {"role": "assistant", "content": [{"type": "output_text", "text": text}]}


def _call(call: ToolCall) -> Item:
    return {
        "type": "function_call",
        "call_id": plain_call_id(call.id),
        "name": call.name,
        "arguments": bytes(call.args).decode(),
    }


def _tool(spec: ToolSpec) -> Item:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.schema,
        "strict": False,
    }


def _calling(wanted: Calling) -> Item:
    head: Item = {}
    if wanted.name:
        head["tool_choice"] = {"type": "function", "name": wanted.name}
    elif wanted.must:
        head["tool_choice"] = "required"
    if wanted.one:
        head["parallel_tool_calls"] = False
    return head
