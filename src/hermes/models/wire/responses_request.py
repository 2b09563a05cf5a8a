"""A request in the words of OpenAI's responses API.

The whole conversation goes along every time, with the encrypted thoughts of the model in it, and
nothing is kept on the server; unless its profile says so: then only what is new goes along.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeAlias, assert_never

import msgspec
from msgspec import Raw

from hermes.models.profile import EffortForm, nearest_effort
from hermes.models.wire.call_ids import plain_call_id
from hermes.models.wire.codec import RequestCodec
from hermes.models.wire.kept_responses import KeptResponses
from hermes.models.wire.pictures import as_text, missing
from hermes.models.wire.responses_stream import SealedItem
from hermes.models.wire.stream import Urls
from hermes.ports.model import Calling, Form, Request
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


class ResponsesRequestCodec(RequestCodec):
    """Writes the bodies for one model of one provider."""

    complaints: ClassVar[Mapping[str, str]] = {
        "summary": r"reasoning[.\s_']*summar",
        "cache_key": r"prompt_cache_key",
        "reasoning": r"reasoning[._]effort|parameter:? '?reasoning|encrypted_content. is not",
    }

    @cached_property
    def kept(self) -> KeptResponses:
        return KeptResponses(on=self._profile.keeps)

    def body(self, request: Request, images: Urls | None = None) -> bytes:
        head, messages = self._head(request), request.messages
        if self.kept.on:
            head["store"] = True
            response, first = self.kept.place(messages)
            if response:
                head["previous_response_id"] = response
                messages = messages[first:]
        items = [item for message in messages for item in self._items(message, images or {})]
        return self._encoder.encode(head | {"input": items})

    def images_in(self, messages: Sequence[Message]) -> list[Media]:
        return super().images_in(messages[self.kept.place(messages)[1] :])

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
        if request.calling.form is not None:
            head["text"] = {"format": _form(request.calling.form)}
        return head | self._extra

    def learn(self, refusal: str) -> bool:
        return self.kept.learn(refusal) or super().learn(refusal)

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
        if not self._owns(message):
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


def _form(wanted: Form) -> Item:
    if wanted.schema is None:
        return {"type": "json_object"}
    form: Item = {"type": "json_schema", "name": wanted.name, "schema": wanted.schema}
    return form if wanted.strict is None else form | {"strict": wanted.strict}


def _calling(wanted: Calling) -> Item:
    head: Item = {}
    if wanted.name:
        head["tool_choice"] = {"type": "function", "name": wanted.name}
    elif wanted.must:
        head["tool_choice"] = "required"
    if wanted.one:
        head["parallel_tool_calls"] = False
    return head
