"""Encode requests for Gemini's generateContent API."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, assert_never
from urllib.parse import quote

import msgspec
from msgspec import Struct

from hermes.models.model_profile import EffortFormat, ModelProfile, nearest_effort
from hermes.models.wire.gemini_stream import GeminiStream, ReasoningSignature, StreamEvent
from hermes.models.wire.images import InlineImage, LinkedImage, image_content, part_text
from hermes.models.wire.request_codec import RequestCodec
from hermes.models.wire.stream import ImageUrlMap
from hermes.models.wire_model import ServedModel
from hermes.ports.model import ModelRequest, OutputConstraints
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
