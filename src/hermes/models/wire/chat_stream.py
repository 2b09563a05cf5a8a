"""Decode OpenAI's chat completion chunks into deltas and an answer."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct, field

from hermes.kit.ids import new_id
from hermes.models.think_tags import PieceKind, TextPiece, ThinkTagParser
from hermes.models.wire.answer_builder import CallBuilder, CallDelta
from hermes.models.wire.codec import (
    MAX_ANSWER,
    TOO_LONG,
    InvalidChunk,
    StreamDelta,
    StreamError,
    clamp_tokens,
    joined_deltas,
)
from hermes.schema.events import ReasoningDelta, StreamReset, TextDelta
from hermes.schema.messages import Assistant, Reasoning, Stop, Text, ToolCall, Usage

_STOPS = {
    "length": Stop.LENGTH,
    "max_tokens": Stop.LENGTH,
    "model_length": Stop.LENGTH,
    "content_filter": Stop.REFUSED,
    "refusal": Stop.REFUSED,
    "sensitive": Stop.REFUSED,
}
"""Other reasons are a normal end."""

_JOINED_FIELDS = frozenset({"text", "summary", "data"})


class PromptDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_creation_tokens: int | None = None


class CompletionDetails(Struct):
    reasoning_tokens: int | None = None


class WireUsage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class ContentPart(Struct):
    """Some providers send content as parts; a `thinking` part contains parts again."""

    type: str = ""
    text: str | None = None
    thinking: list["ContentPart"] | str | None = None


class Delta(Struct):
    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | dict[str, Any] | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    tool_calls: list[CallDelta] | None = None


class Choice(Struct):
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    usage: WireUsage | None = None


class GroqExtra(Struct):
    usage: WireUsage | None = None


class StreamChunk(Struct):
    choices: list[Choice] | None = None
    usage: WireUsage | None = None
    x_groq: GroqExtra | None = None
    error: dict[str, Any] | str | None = None
    model: str | None = None


_DECODER = msgspec.json.Decoder(StreamChunk, strict=False)


class ChatStream(Struct):
    """Implements `wire.codec.WireStream`."""

    finish_reason: str = ""
    ended: bool = False
    size: int = 0
    runaway: str = ""
    _tags: ThinkTagParser = field(default_factory=ThinkTagParser)
    _texts: list[str] = []
    _thoughts: list[str] = []
    _details: list[dict[str, Any]] = []
    _calls: CallBuilder = field(default_factory=CallBuilder)
    _usage: Usage = Usage()
    _refused: bool = False
    _length: int = 0
    """Characters of text and reasoning."""
    _deltas: list[StreamDelta] = []

    def feed(self, batch: Iterable[bytes]) -> list[StreamDelta]:
        for data in batch:
            try:
                chunk = _DECODER.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InvalidChunk(str(error)) from error
            if chunk.error:
                raise StreamError(data)
            usage = chunk.usage or (chunk.x_groq and chunk.x_groq.usage)
            if usage:
                self._usage = usage_of(usage)
            if chunk.choices:
                self._choice(chunk.choices[0])
        self.size = self._length + self._calls.size
        self.runaway = self._calls.overflow
        if self._length > MAX_ANSWER:
            self.runaway = TOO_LONG
        deltas, self._deltas = self._deltas, []
        return joined_deltas(deltas)

    def _choice(self, choice: Choice) -> None:
        delta = choice.delta or choice.message
        if delta is not None:
            if delta.reasoning_content or delta.reasoning or delta.reasoning_details:
                self._add_reasoning(_reasoning_text(delta), delta.reasoning_details or [])
            if delta.content:
                self._add_content(delta.content)
            if delta.refusal:
                self._refused = True
                self._length += len(delta.refusal)
                self._add_text(delta.refusal)
            for call in delta.tool_calls or ():
                self._calls.add(call)
        if choice.usage:
            self._usage = usage_of(choice.usage)
        self.finish_reason = choice.finish_reason or self.finish_reason

    def _add_reasoning(self, thought: str, details: list[dict[str, Any]]) -> None:
        self._length += len(thought)
        self._add_thought(thought)
        if details:
            self._length += len(msgspec.json.encode(details))
            self._details += details

    def _add_content(self, content: str | list[ContentPart]) -> None:
        if isinstance(content, list):
            self._add_parts(content)
            return
        # Counted on arrival, since text that is held back needs memory too. The excess is dropped.
        text, room = content, MAX_ANSWER + 1 - self._length
        if len(text) > room:
            text = text[: max(room, 0)]
        self._length += len(text)
        if not self._tags.pass_through(text):
            self._add_pieces(self._tags.feed(text))
        elif text:
            self._texts.append(text)
            self._deltas.append(TextDelta(text))

    def _add_parts(self, parts: list[ContentPart]) -> None:
        for part in parts:
            if thinking := part.thinking:
                if isinstance(thinking, list):
                    thinking = "".join(one.text or "" for one in thinking)
                self._add_reasoning(thinking, [])
            elif part.text:
                self._add_content(part.text)

    def _add_pieces(self, pieces: list[TextPiece]) -> None:
        for piece in pieces:
            match piece.kind:
                case PieceKind.TEXT:
                    self._add_text(piece.text)
                case PieceKind.REASONING:
                    self._add_thought(piece.text)
                case PieceKind.RECLASSIFIED:
                    self._thoughts += self._texts
                    self._texts = []
                    self._deltas.append(StreamReset("that was thinking"))
                    self._deltas.append(ReasoningDelta("".join(self._thoughts)))

    def _add_text(self, text: str) -> None:
        self._texts.append(text)
        self._deltas.append(TextDelta(text))

    def _add_thought(self, text: str) -> None:
        self._thoughts.append(text)
        if text:
            self._deltas.append(ReasoningDelta(text))

    def finish(self, model: str, provider: str) -> tuple[list[StreamDelta], Assistant]:
        if self._tags.held:
            self._add_pieces(self._tags.close())
        self.runaway = self.runaway or self._calls.overflow
        stop = _STOPS.get(self.finish_reason)
        cut = bool(self.runaway) or stop is Stop.LENGTH
        calls = self._calls.finish(cut=cut) if self._calls.size else []
        if cut:
            stop = Stop.LENGTH
        elif self._refused:
            stop = Stop.REFUSED
        stop = stop or (Stop.TOOLS if calls else Stop.END)
        parts: list[Text | Reasoning | ToolCall] = []
        thought = "".join(self._thoughts)
        if thought or self._details:
            details = msgspec.json.encode(_joined_details(self._details)).decode()
            parts.append(Reasoning(thought, details if self._details else None))
        if text := "".join(self._texts):
            parts.append(Text(text))
        answer = Assistant(new_id("msg"), (*parts, *calls), stop, self._usage, model, provider)
        return joined_deltas(self._deltas), answer


def usage_of(wire: WireUsage) -> Usage:
    prompt = wire.prompt_tokens_details or PromptDetails()
    reasoning = (wire.completion_tokens_details or CompletionDetails()).reasoning_tokens or 0
    sent, written = wire.prompt_tokens or 0, wire.completion_tokens or 0
    read = prompt.cached_tokens or wire.prompt_cache_hit_tokens or wire.cached_tokens
    # Some providers do not include reasoning in the completion; only the total shows it.
    if reasoning and wire.total_tokens == sent + written + reasoning:
        written += reasoning
    return Usage(
        input=clamp_tokens(sent),
        output=clamp_tokens(written),
        cache_read=clamp_tokens(read),
        cache_write=clamp_tokens(
            prompt.cache_write_tokens
            or prompt.cache_creation_tokens
            or wire.cache_creation_input_tokens
        ),
        reasoning=clamp_tokens(reasoning),
    )


def _reasoning_text(delta: Delta) -> str:
    """The same reasoning may come in up to three fields; use only one."""
    if delta.reasoning_content:
        return delta.reasoning_content
    if isinstance(delta.reasoning, str) and delta.reasoning:
        return delta.reasoning
    details = delta.reasoning_details or ()
    return "".join(str(one.get("text") or one.get("summary") or "") for one in details)


def _joined_details(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge the pieces of each detail: texts are joined, other fields take the last value."""
    return [
        _one_detail(list(pieces))
        for _, pieces in groupby(details, lambda piece: (piece.get("type"), piece.get("index")))
    ]


def _one_detail(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    whole = dict(pieces[0])
    for piece in pieces[1:]:
        whole |= {key: value for key, value in piece.items() if value is not None}
    for key in _JOINED_FIELDS & whole.keys():
        if texts := [piece[key] for piece in pieces if isinstance(piece.get(key), str)]:
            whole[key] = "".join(texts)
    return whole
