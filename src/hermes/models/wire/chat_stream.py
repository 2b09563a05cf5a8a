"""OpenAI's stream of chat completion chunks to deltas and one answer."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct

from hermes.kit.ids import new_id
from hermes.models.think_tags import PieceKind, TextPiece, ThinkTagParser
from hermes.models.wire.call_builder import CallBuilder, CallDelta
from hermes.models.wire.stream import (
    MAX_ANSWER,
    DeltaBuffer,
    InvalidChunk,
    StreamDelta,
    StreamError,
)
from hermes.models.wire.usage import WireUsage, usage_of
from hermes.schema.messages import Assistant, Reasoning, Stop, Text, ToolCall, Usage

_STOPS = {
    "stop": Stop.END,
    "tool_calls": Stop.TOOLS,
    "function_call": Stop.TOOLS,
    "length": Stop.LENGTH,
    "max_tokens": Stop.LENGTH,
    "model_length": Stop.LENGTH,
    "content_filter": Stop.REFUSED,
    "refusal": Stop.REFUSED,
    "sensitive": Stop.REFUSED,
}

_JOINED_FIELDS = frozenset({"text", "summary", "data"})


class ContentPart(Struct):
    """Some send content as parts; a `thinking` part holds parts again."""

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


class ChatStream:
    """Reads one answer. `feed` wants the data of events, `answer` gives the whole.

    Deltas of one kind that came together are given as one.
    """

    def __init__(self, decoder: msgspec.json.Decoder[StreamChunk]) -> None:
        self._decoder = decoder
        self._tags = ThinkTagParser()
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._calls = CallBuilder()
        self._usage = Usage()
        self._refused = False
        self._size = 0
        self._told = DeltaBuffer()
        self.finish_reason = ""
        self.ended = False

    @property
    def size(self) -> int:
        """Grows with every chunk that brings a part of the answer."""
        return self._size + self._calls.size

    @property
    def runaway(self) -> str:
        """Of what there is too much; empty while the answer is of a sane size."""
        if self._size > MAX_ANSWER:
            return f"more than {MAX_ANSWER:,} characters"
        return self._calls.overflow

    def feed(self, batch: Iterable[bytes]) -> list[StreamDelta]:
        """Raises `NotAChunk` or `ErrorInStream`; what came before in the batch is lost then."""
        for data in batch:
            try:
                chunk = self._decoder.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InvalidChunk(str(error)) from error
            if chunk.error:
                raise StreamError(data)
            usage = chunk.usage or (chunk.x_groq and chunk.x_groq.usage)
            if usage:
                self._usage = usage_of(usage)
            if chunk.choices:
                self._choice(chunk.choices[0])
        return self._told.take()

    def close(self) -> list[StreamDelta]:
        """The deltas that were held back; call it once, before `answer`."""
        self._pieces(self._tags.close())
        return self._told.take()

    def _choice(self, choice: Choice) -> None:
        delta = choice.delta or choice.message
        if delta is not None:
            if delta.reasoning_content or delta.reasoning or delta.reasoning_details:
                self._add_reasoning(_reasoning_text(delta), delta.reasoning_details or [])
            if delta.content:
                self._content(delta.content)
            if delta.refusal:
                self._refused = True
                self._size += len(delta.refusal)
                self._speak(delta.refusal)
            for call in delta.tool_calls or ():
                self._calls.add(call)
        if choice.usage:
            self._usage = usage_of(choice.usage)
        self.finish_reason = choice.finish_reason or self.finish_reason

    def _add_reasoning(self, thought: str, details: list[dict[str, Any]]) -> None:
        self._size += len(thought)
        self._think(thought)
        if details:
            self._size += len(msgspec.json.encode(details))
            self._details += details

    def _content(self, content: str | list[ContentPart]) -> None:
        if isinstance(content, str):
            self._tagged(content)
            return
        for part in content:
            if part.thinking:
                self._add_reasoning(_thinking_text(part.thinking), [])
            elif part.text:
                self._tagged(part.text)

    def _tagged(self, text: str) -> None:
        # Counted as it comes: what is held back takes room too. What is too much is not read.
        self._size += len(text)
        if self._size > MAX_ANSWER:
            text, self._size = self._fitting(text)
        if self._tags.is_plain_text(text):
            self._speak(text)
        else:
            self._pieces(self._tags.feed(text))

    def _fitting(self, text: str) -> tuple[str, int]:
        """As much of it as is read, and the size with that: one more than there may be."""
        before = self._size - len(text)
        text = text[: max(MAX_ANSWER + 1 - before, 0)]
        return text, before + len(text)

    def _pieces(self, pieces: list[TextPiece]) -> None:
        for piece in pieces:
            match piece.kind:
                case PieceKind.SPOKEN:
                    self._speak(piece.text)
                case PieceKind.THOUGHT:
                    self._think(piece.text)
                case PieceKind.TAKEN_BACK:
                    self._thoughts += self._texts
                    self._texts = []
                    self._told.reset("that was thinking")
                    self._told.add("".join(self._thoughts), thought=True)

    def _speak(self, text: str) -> None:
        self._texts.append(text)
        self._told.add(text, thought=False)

    def _think(self, text: str) -> None:
        self._thoughts.append(text)
        self._told.add(text, thought=True)

    def answer(self, model: str, provider: str) -> Assistant:
        cut = bool(self.runaway) or _STOPS.get(self.finish_reason) is Stop.LENGTH
        calls = self._calls.finish(cut=cut)
        parts: list[Text | Reasoning | ToolCall] = []
        thought = "".join(self._thoughts)
        if thought or self._details:
            seal = (
                msgspec.json.encode(_joined_details(self._details)).decode()
                if self._details
                else None
            )
            parts.append(Reasoning(thought, seal))
        if text := "".join(self._texts):
            parts.append(Text(text))
        parts += calls
        return Assistant(
            new_id("msg"),
            tuple(parts),
            self._stop(calls, cut=cut),
            self._usage,
            model,
            provider,
        )

    def _stop(self, calls: list[ToolCall], *, cut: bool) -> Stop:
        if cut:
            return Stop.LENGTH
        if self._refused:
            return Stop.REFUSED
        stop = _STOPS.get(self.finish_reason, Stop.END)
        if stop in {Stop.END, Stop.TOOLS}:
            return Stop.TOOLS if calls else Stop.END
        return stop


def _reasoning_text(delta: Delta) -> str:
    """The same thought may come in up to three fields at once; it counts once."""
    if delta.reasoning_content:
        return delta.reasoning_content
    if isinstance(delta.reasoning, str) and delta.reasoning:
        return delta.reasoning
    details = delta.reasoning_details or ()
    return "".join(str(one.get("text") or one.get("summary") or "") for one in details)


def _thinking_text(thinking: list[ContentPart] | str) -> str:
    if isinstance(thinking, str):
        return thinking
    return "".join(part.text or "" for part in thinking)


def _joined_details(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pieces of one detail become one: texts are joined, of all else the last word counts."""
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
