"""Decode Gemini's stream of responses into deltas and an answer."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from hermes.kit.ids import new_id
from hermes.models.wire.answer_builder import Block, BlockKind, BlockStream, build_answer
from hermes.models.wire.stream import InvalidChunk, StreamDelta, StreamError
from hermes.models.wire.usage import clamp_tokens
from hermes.schema.messages import Assistant, Stop, Usage

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
