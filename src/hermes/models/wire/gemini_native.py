"""Gemini's generateContent API: encode requests, decode streams."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, assert_never
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct, field

from hermes.kit.ids import new_id
from hermes.models.images import ImageUrlMap, InlineImage, LinkedImage, image_content, part_text
from hermes.models.providers import EffortFormat, ModelProfile, nearest_effort
from hermes.models.urls import gemini_version
from hermes.models.wire.answer_builder import Block, BlockKind, BlockStream
from hermes.models.wire.codec import RequestCodec, StreamError, clamp_tokens, read_signature
from hermes.ports.model import ModelRequest, OutputConstraints
from hermes.schema.messages import (
    Assistant,
    Media,
    Message,
    Reasoning,
    Result,
    Stop,
    Text,
    ToolCall,
    Usage,
    User,
)
from hermes.schema.tools import ToolSpec

_STOPS = {
    "MAX_TOKENS": Stop.LENGTH,
    "SAFETY": Stop.REFUSED,
    "RECITATION": Stop.REFUSED,
    "LANGUAGE": Stop.REFUSED,
    "BLOCKLIST": Stop.REFUSED,
    "PROHIBITED_CONTENT": Stop.REFUSED,
    "SPII": Stop.REFUSED,
    "IMAGE_SAFETY": Stop.REFUSED,
}
_FAILED_FINISHES = frozenset(
    {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "OTHER"}
)


class WireCall(Struct):
    name: str = ""
    id: str | None = None
    args: Raw = Raw(b"{}")


class WirePart(Struct):
    text: str | None = None
    thought: bool = False
    signature: str | None = field(default=None, name="thoughtSignature")
    call: WireCall | None = field(default=None, name="functionCall")


class WireContent(Struct):
    parts: list[WirePart] | None = None


class Candidate(Struct, rename="camel"):
    content: WireContent | None = None
    finish_reason: str | None = None


class WireUsage(Struct, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class Feedback(Struct, rename="camel"):
    block_reason: str | None = None


class StreamEvent(Struct, rename="camel"):
    candidates: list[Candidate] | None = None
    usage_metadata: WireUsage | None = None
    prompt_feedback: Feedback | None = None
    error: dict[str, Any] | None = None


class ReasoningSignature(Struct):
    """The signature of the part that follows, or of the reasoning it belongs to."""

    thought_signature: str


_DECODER = msgspec.json.Decoder(StreamEvent, strict=False)


class GeminiStream(BlockStream[StreamEvent]):
    """Implements `wire.codec.WireStream`.

    A signature on text or a call becomes an empty reasoning part before it, so that it can be sent
    back in the same position.
    """

    def __init__(self) -> None:
        super().__init__(_DECODER, _STOPS)

    def _take(self, event: StreamEvent, data: bytes) -> None:
        if event.error:
            raise StreamError(data)
        if event.usage_metadata is not None:
            self._usage = usage_of(event.usage_metadata)
        if event.prompt_feedback is not None and event.prompt_feedback.block_reason:
            self.finish_reason = "SAFETY"
        for candidate in (event.candidates or ())[:1]:
            for part in (candidate.content and candidate.content.parts) or ():
                self._part(part)
            reason = candidate.finish_reason or self.finish_reason
            self.finish_reason = "error" if reason in _FAILED_FINISHES else reason

    def _part(self, part: WirePart) -> None:
        if part.call is not None:
            self._add_signature(part.signature)
            call = part.call
            block = self._begin(BlockKind.CALL, call.id or new_id("call"), call.name)
            self._append(block, bytes(call.args).decode())
        elif part.thought:
            block = self._growing(BlockKind.REASONING)
            self._append(block, part.text or "")
            if part.signature:
                self._sign(block, _encode_signature(part.signature))
        elif part.signature:
            # A signed part must be sent back unchanged, so it is not merged with others.
            self._add_signature(part.signature)
            self._append(self._begin(BlockKind.TEXT), part.text or "")
        elif part.text:
            self._append(self._growing(BlockKind.TEXT), part.text)

    def _growing(self, kind: BlockKind) -> Block:
        last = self._blocks[-1] if self._blocks else None
        if last is None or last.kind is not kind or last.signature:
            return self._begin(kind)
        return last

    def _add_signature(self, signature: str | None) -> None:
        if signature:
            self._sign(self._begin(BlockKind.REASONING), _encode_signature(signature))


def usage_of(wire: WireUsage) -> Usage:
    """Gemini counts reasoning tokens separately from the answer."""
    thought = clamp_tokens(wire.thoughts_token_count)
    return Usage(
        input=clamp_tokens(wire.prompt_token_count)
        + clamp_tokens(wire.tool_use_prompt_token_count),
        output=clamp_tokens(wire.candidates_token_count) + thought,
        cache_read=clamp_tokens(wire.cached_content_token_count),
        reasoning=thought,
    )


def _encode_signature(signature: str) -> str:
    return msgspec.json.encode(ReasoningSignature(signature)).decode()


Part: TypeAlias = dict[str, Any]

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""Replaces the signature of a call that another model made; the API requires one."""


class Content(Struct):
    role: str
    parts: list[Part]


class GeminiWire(RequestCodec):
    """Implements `wire.codec.Wire`."""

    rejection_patterns: ClassVar[Mapping[str, str]] = {"thinking": r"thinking"}
    stream = GeminiStream

    def path(self, base_url: str) -> str:
        name = quote(self._served.model.removeprefix("models/"), safe="-._~")
        return f"{gemini_version(base_url)}/models/{name}:streamGenerateContent?alt=sse"

    def headers(self, key: str, base_url: str) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def body(self, request: ModelRequest, images: ImageUrlMap | None = None) -> bytes:
        head: Part = {"contents": self._contents(request.messages, images or {})}
        if request.system:
            head["systemInstruction"] = {"parts": [{"text": request.system}], "role": "user"}
        if request.tools:
            head["tools"] = [{"functionDeclarations": Raw(self._encode_tools(request.tools))}]
            head |= _tool_config(request.constraints)
        if generation := self._generation(request):
            head["generationConfig"] = generation
        return self._encoder.encode({**head, **self._served.extra})

    @staticmethod
    def _tool(spec: ToolSpec) -> dict[str, Any]:
        return {
            "name": spec.name,
            "description": spec.description,
            "parametersJsonSchema": spec.schema,
        }

    def _generation(self, request: ModelRequest) -> Part:
        generation: Part = {}
        if limit := request.max_output or self._served.max_output:
            generation["maxOutputTokens"] = limit
        effort = request.effort if self._accepts("thinking") else None
        if effort and (thinking := _effort(effort, self._served.profile)):
            generation["thinkingConfig"] = thinking
        return generation

    def _contents(self, messages: Sequence[Message], images: ImageUrlMap) -> list[Content]:
        names = {
            call.id: call.name
            for message in messages
            if isinstance(message, Assistant)
            for call in message.calls
        }
        contents: list[Content] = []
        for message in messages:
            role = "model" if isinstance(message, Assistant) else "user"
            parts = self._parts(message, images, names)
            if not parts:
                continue
            if contents and contents[-1].role == role:
                contents[-1].parts += parts
            else:
                contents.append(Content(role, parts))
        return contents

    def _parts(self, message: Message, images: ImageUrlMap, names: Mapping[str, str]) -> list[Part]:
        match message:
            case User():
                return self._content_parts(message.parts, images)
            case Assistant():
                return self._answer(message)
            case Result():
                return self._result(message, images, names.get(message.call, "unnamed"))
            case _:
                assert_never(message)

    def _content_parts(self, parts: Sequence[Text | Media], images: ImageUrlMap) -> list[Part]:
        return [
            _image(part, images) if self._sends_image(part) else {"text": part_text(part)}
            for part in parts
            if part != Text("")
        ]

    def _result(self, result: Result, images: ImageUrlMap, name: str) -> list[Part]:
        output = {"error" if result.failed else "output": self._result_text(result)}
        answer: Part = {"id": result.call, "name": name, "response": output}
        shown = (_image(part, images) for part in result.parts if self._sends_image(part))
        return [{"functionResponse": answer}, *shown]

    def _answer(self, message: Assistant) -> list[Part]:
        parts: list[Part] = []
        signature = ""
        own = self._owns(message)
        for part in message.parts:
            match part:
                case Reasoning():
                    read = read_signature(part.signature, ReasoningSignature)
                    signature = read.thought_signature if read and own and not part.text else ""
                    continue
                case Text():
                    encoded: Part = {"text": part.text}
                case ToolCall():
                    call: Part = {"id": part.id, "name": part.name, "args": part.args}
                    encoded = {"functionCall": call}
                case _:
                    assert_never(part)
            if signature:
                encoded["thoughtSignature"] = signature
                signature = ""
            parts.append(encoded)
        if self._served.profile.effort is EffortFormat.LEVEL and not own:
            # The first call of a step needs a signature, even if another model made it.
            for encoded in [one for one in parts if "functionCall" in one][:1]:
                encoded["thoughtSignature"] = SKIP_SIGNATURE
        return parts


def _image(media: Media, images: ImageUrlMap) -> Part:
    match image_content(media, images):
        case InlineImage(media_type, data):
            return {"inlineData": {"data": data, "mimeType": media_type}}
        case LinkedImage(url):
            return {"fileData": {"fileUri": url, "mimeType": _image_type(url)}}
        case text:
            return {"text": text}


def _image_type(url: str) -> str:
    """Guess the media type from the URL; JPEG by default."""
    ending = url.partition("?")[0].rpartition(".")[2].lower()
    return f"image/{ending}" if ending in {"png", "webp", "gif", "heic"} else "image/jpeg"


def _tool_config(wanted: OutputConstraints) -> Part:
    if not (wanted.required or wanted.name):
        return {}
    config: Part = {"mode": "ANY"}
    if wanted.name:
        config["allowedFunctionNames"] = [wanted.name]
    return {"toolConfig": {"functionCallingConfig": config}}


def _effort(wanted: str, profile: ModelProfile) -> Part:
    if profile.effort is EffortFormat.BUDGET:
        budget = profile.budget(wanted)
        return {"includeThoughts": budget > 0, "thinkingBudget": budget}
    if profile.effort is EffortFormat.LEVEL and (near := nearest_effort(wanted, profile.efforts)):
        return {"includeThoughts": True, "thinkingLevel": near.upper()}
    return {}
