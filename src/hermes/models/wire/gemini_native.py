"""Decode Gemini's stream of responses into deltas and an answer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, assert_never
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct, field

from hermes.kit.ids import new_id
from hermes.models.images import InlineImage, LinkedImage, image_content, part_text
from hermes.models.providers import EffortFormat, ModelProfile, nearest_effort
from hermes.models.wire.answer_builder import Block, BlockKind, BlockStream, build_answer
from hermes.models.wire.request_codec import RequestCodec
from hermes.models.wire.stream import (
    ImageUrlMap,
    InvalidChunk,
    StreamDelta,
    StreamError,
    clamp_tokens,
)
from hermes.models.wire_model import ServedModel
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
    "STOP": Stop.END,
    "FINISH_REASON_UNSPECIFIED": Stop.END,
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


class GeminiStream(BlockStream):
    """Implements `wire.stream.WireStream`.

    A signature on text or a call becomes an empty reasoning part before it, so that it can be sent
    back in the same position.
    """

    def __init__(self, decoder: msgspec.json.Decoder[StreamEvent]) -> None:
        super().__init__()
        self._decoder = decoder
        self._usage = Usage()

    def feed(self, batch: Iterable[bytes]) -> list[StreamDelta]:
        for data in batch:
            try:
                event = self._decoder.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InvalidChunk(str(error)) from error
            if event.error:
                raise StreamError(data)
            self._take(event)
        return self._builder.take_deltas()

    def _take(self, event: StreamEvent) -> None:
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
            block = self._builder.begin(BlockKind.CALL, call.id or new_id("call"), call.name)
            self._builder.append(block, bytes(call.args).decode())
        elif part.thought:
            block = self._growing(BlockKind.REASONING)
            self._builder.append(block, part.text or "")
            if part.signature:
                self._builder.sign(block, _encode_signature(part.signature))
        elif part.signature:
            # A signed part must be sent back unchanged, so it is not merged with others.
            self._add_signature(part.signature)
            self._builder.append(self._builder.begin(BlockKind.TEXT), part.text or "")
        elif part.text:
            self._builder.append(self._growing(BlockKind.TEXT), part.text)

    def _growing(self, kind: BlockKind) -> Block:
        last = self._builder.last
        if last is None or last.kind is not kind or last.signature:
            return self._builder.begin(kind)
        return last

    def _add_signature(self, signature: str | None) -> None:
        if signature:
            self._builder.sign(
                self._builder.begin(BlockKind.REASONING), _encode_signature(signature)
            )

    def answer(self, model: str, provider: str) -> Assistant:
        stop = _STOPS.get(self.finish_reason, Stop.END)
        return build_answer(self._builder, stop, self._usage, model, provider)


def usage_of(wire: WireUsage) -> Usage:
    """Gemini counts reasoning tokens separately from the answer."""
    thought = clamp_tokens(wire.thoughts_token_count or 0)
    return Usage(
        input=clamp_tokens(wire.prompt_token_count or 0)
        + clamp_tokens(wire.tool_use_prompt_token_count or 0),
        output=clamp_tokens(wire.candidates_token_count or 0) + thought,
        cache_read=clamp_tokens(wire.cached_content_token_count or 0),
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


class GeminiRequestCodec(RequestCodec):
    """Encodes request bodies for one model of a provider."""

    refusal_patterns: ClassVar[Mapping[str, str]] = {"thinking": r"thinking"}

    def body(self, request: ModelRequest, images: ImageUrlMap | None = None) -> bytes:
        head: Part = {"contents": self._contents(request.messages, images or {})}
        if request.system:
            head["systemInstruction"] = {"parts": [{"text": request.system}], "role": "user"}
        if request.tools:
            head["tools"] = [{"functionDeclarations": self._tool_encoder(request.tools)}]
            head |= _tool_config(request.constraints)
        if generation := self._generation(request):
            head["generationConfig"] = generation
        return self._encoder.encode(head | self._extra)

    @staticmethod
    def _tool(spec: ToolSpec) -> dict[str, Any]:
        return {
            "name": spec.name,
            "description": spec.description,
            "parametersJsonSchema": spec.schema,
        }

    def _generation(self, request: ModelRequest) -> Part:
        generation: Part = {}
        if limit := request.max_output or self._max_output:
            generation["maxOutputTokens"] = limit
        effort = request.effort if self._optional.is_accepted("thinking") else None
        if effort and (thinking := _effort(effort, self._profile)):
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
            _image(part, images)
            if isinstance(part, Media) and self._sends_image(part)
            else {"text": part_text(part)}
            for part in parts
            if part != Text("")
        ]

    def _result(self, result: Result, images: ImageUrlMap, name: str) -> list[Part]:
        """Return a result; its images follow as separate parts."""
        shown = [one for one in result.parts if isinstance(one, Media) and self._sends_image(one)]
        text = "\n".join(
            f"[the image {part.name or part.media_type} follows]"
            if isinstance(part, Media) and part in shown
            else part_text(part)
            for part in result.parts
        )
        output = {"error" if result.failed else "output": text}
        answer: Part = {"id": result.call, "name": name, "response": output}
        return [{"functionResponse": answer}, *(_image(one, images) for one in shown)]

    def _answer(self, message: Assistant) -> list[Part]:
        parts: list[Part] = []
        signature = ""
        own = self._owns(message)
        for part in message.parts:
            match part:
                case Reasoning():
                    signature = _read_signature(part.signature) if own and not part.text else ""
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
        if self._profile.effort is EffortFormat.LEVEL and not own:
            _skip_signature(parts)
        return parts


def _skip_signature(parts: Sequence[Part]) -> None:
    """The first call of a step needs a signature, even if another model made it."""
    for part in parts:
        if "functionCall" in part:
            part["thoughtSignature"] = SKIP_SIGNATURE
            return


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


def _read_signature(signature: str | None) -> str:
    """Return an empty string for a missing signature, or another provider's."""
    try:
        return msgspec.json.decode(signature or "", type=ReasoningSignature).thought_signature
    except (msgspec.DecodeError, RecursionError):
        return ""


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


def version_prefix(base_url: str) -> str:
    """Return the API version, unless the address contains one."""
    return "" if "/v1" in base_url else "/v1"


class GeminiWire(GeminiRequestCodec):
    """Implements `wire.stream.Wire`."""

    def __init__(self, served: ServedModel) -> None:
        super().__init__(
            served.model, served.provider, served.profile, served.max_output, served.extra
        )
        self._name = quote(served.model.removeprefix("models/"), safe="-._~")
        self._decoder = msgspec.json.Decoder(StreamEvent, strict=False)

    def path(self, base_url: str) -> str:
        return f"{version_prefix(base_url)}/models/{self._name}:streamGenerateContent?alt=sse"

    def headers(self, key: str, base_url: str) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def stream(self) -> GeminiStream:
        return GeminiStream(self._decoder)
