"""What is asked of a small model, and how it answers: few tools, few words, one choice at a time.

The choice is made under a grammar (`response_format`), so whatever it writes can be read. The
prompt begins alike in all sessions and grows only at its end: the engine keeps what it has read.
"""

from collections.abc import Iterator, Sequence
from typing import Any, assert_never

import msgspec
from msgspec import Struct, structs

from hermes.models.driver import Served
from hermes.models.embedded.choosing import ARGS, REPLY, TOOL, Choosing
from hermes.models.embedded.grounding import grounded, is_example
from hermes.models.embedded.small import Short, reminder, rules, short_for, small_profile
from hermes.models.embedded.trimming import cut, recent
from hermes.models.embedded.turns import Turn, turn_of
from hermes.models.wire.chat_calls import CallDelta, FunctionDelta
from hermes.models.wire.chat_stream import ChatStream, ContentPart, StreamChunk
from hermes.models.wire.pictures import as_text
from hermes.models.wire.stream import LONGEST, AnswerStream, Urls
from hermes.models.wire.told import StreamDelta
from hermes.ports.model import Calling, Request
from hermes.schema.messages import Assistant, Media, Message, Result, ToolCall, User, text_of

MOST_OUTPUT = 700
"""Tokens of one answer, where nobody set a limit: a minute or two of one core."""


class Line(Struct):
    """A message as the engine takes it."""

    role: str
    content: str


class SmallWire:
    """Implements `wire.stream.Wire` for one request: its tools decide how it is answered."""

    def __init__(self, served: Served, request: Request, again: Sequence[ToolCall] = ()) -> None:
        """`again` are calls that it wanted to repeat: it has to say or to do something else."""
        self._served = served
        self._again = again
        self._shorts = [short_for(spec) for spec in request.tools]
        self._holds = any(one.name in small_profile().tools for one in self._shorts)
        self._grounds = is_example(request.messages)
        self._decoder = msgspec.json.Decoder(StreamChunk, strict=False)

    def path(self, base_url: str) -> str:
        return "/chat/completions"

    def headers(self, key: str, base_url: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    def images_in(self, messages: Sequence[Message]) -> list[Media]:
        return []

    def body(self, request: Request, images: Urls | None = None) -> bytes:
        system = Line("system", rules(request.system, self._shorts))
        talk = self._talk(recent(request.messages))
        return msgspec.json.encode({**self._head(request), "messages": [system, *talk]})

    def pieces(self, request: Request, images: Urls | None = None) -> Sequence[bytes]:
        return [self.body(request, images)]

    def learn(self, refusal: str) -> bool:
        return False

    def heard(self, request: Request, stream: AnswerStream, answer: Assistant) -> None:
        """The engine remembers by itself what it has read and said."""

    def stream(self) -> ChatStream:
        if not self._shorts:
            return ChatStream(self._decoder)
        return ChoiceStream(self._decoder, grounds=self._grounds)

    def _head(self, request: Request) -> dict[str, Any]:
        head: dict[str, Any] = {
            "model": self._served.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": request.max_output or self._served.max_output or MOST_OUTPUT,
            "temperature": 0.0,
            "cache_prompt": True,
        }
        if self._shorts:
            wanted = choice(*self._offered(request))
            schema = {"name": "choice", "schema": wanted}
            head["response_format"] = {"type": "json_schema", "json_schema": schema}
        return head

    def _offered(self, request: Request) -> tuple[Sequence[Short], Calling]:
        """It acts while something is left to do, and talks when all was read, or in circles."""
        calling, turn = request.calling, turn_of(request.messages, holds=self._holds)
        if calling.must or calling.name:
            return self._shorts, calling
        used = {one.name for one in self._again}
        others = [one for one in self._shorts if one.name not in used]
        stuck = bool(self._again) and turn.has_failed
        if (turn.left or stuck) and others and not turn.is_going_round:
            return others, structs.replace(calling, must=True)
        over = self._again or turn.is_known or turn.is_going_round
        return [] if over else self._shorts, calling

    def _talk(self, messages: Sequence[Message]) -> Iterator[Line]:
        """Results say again what was asked: a small model has lost that by then."""
        turn = Turn()
        for message in messages:
            match message:
                case User():
                    turn = Turn(text_of(message), holds=self._holds)
                    yield Line("user", cut("\n".join(map(as_text, message.parts))))
                case Assistant():
                    turn.calls += message.calls
                    if said := self._said(message):
                        yield Line("assistant", said)
                case Result():
                    yield Line("user", self._told(message, turn))
                case _:
                    assert_never(message)

    def _told(self, result: Result, turn: Turn) -> str:
        step = turn.end(result)
        words = f"{step.label}\n{step.told}"
        if not self._shorts:
            return words
        before = f"Found before:\n{turn.before}" if turn.before else ""
        return "\n\n".join(one for one in (words, before, reminder(turn)) if one)

    def _said(self, message: Assistant) -> str:
        """In the form in which it is asked to answer, byte for byte as it mostly writes."""
        text = text_of(message)
        calls = "\n".join(map(_written, message.calls))
        if not self._shorts:
            return text or calls
        return calls or (_reply(text) if text else "")


def repeats(request: Request, answer: Assistant) -> bool:
    """Whether it wants again what it has got: the result is there, and nothing is said yet."""
    if request.calling.must or request.calling.name:
        return False
    turn = turn_of(request.messages)
    used = {one.name for one in answer.calls}
    # What failed may be tried again, where there is nothing else to try.
    if turn.has_failed and all(one.name in used for one in request.tools):
        return False
    return turn.repeated(answer.calls)


def _written(call: ToolCall) -> str:
    return f'{{"{TOOL}": "{call.name}", "{ARGS}": {bytes(call.args).decode()}}}'


def _reply(text: str) -> str:
    return f'{{"{REPLY}": {msgspec.json.encode(text).decode()}}}'


def choice(shorts: Sequence[Short], calling: Calling) -> dict[str, Any]:
    """The schema of an answer: the call of one of the tools, or a reply where one is wanted."""
    offered = [one for one in shorts if calling.name in ("", one.name)]
    branches = [_object({TOOL: {"const": one.name}, ARGS: one.schema}) for one in offered]
    if not calling.must and not calling.name:
        branches.append(_object({REPLY: {"type": "string"}}))
    return {"oneOf": branches}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


class ChoiceStream(ChatStream):
    """As the stream of any chat, but what it says is a choice."""

    def __init__(
        self, decoder: msgspec.json.Decoder[StreamChunk], *, grounds: bool = False
    ) -> None:
        """With `grounds` paths that can only be examples are taken as names in the folder."""
        super().__init__(decoder)
        self._grounds = grounds
        self._choosing = Choosing()
        self._made = 0

    def _content(self, content: str | list[ContentPart]) -> None:
        text = content if isinstance(content, str) else "".join(one.text or "" for one in content)
        text = text[: max(LONGEST + 1 - self._size, 0)]
        self._size += len(text)
        if words := self._choosing.feed(text):
            self._speak(words)
        for call in self._choosing.calls[self._made :]:
            args = grounded(call.args) if self._grounds else call.args
            self._add(call.tool, bytes(args).decode(), call.id)

    def close(self) -> list[StreamDelta]:
        if rest := self._choosing.close():
            self._add("", rest, "")
        return super().close()

    def _add(self, tool: str, args: str, identity: str) -> None:
        function = FunctionDelta(name=tool, arguments=args)
        self._calls.add(CallDelta(index=self._made, id=identity or None, function=function))
        self._made += 1
