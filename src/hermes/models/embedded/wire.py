"""Encode requests for a small model and decode its answers: a reply or one tool call.

A grammar (`response_format`) restricts the output, so it can always be parsed. The prompt starts
alike in all sessions and only grows at its end, so the engine can reuse its cache.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, assert_never

import msgspec
from msgspec import Raw, Struct, field, structs

from hermes.models.embedded.answer_parser import ARGS, REPLY, TOOL, AnswerParser
from hermes.models.embedded.result_text import recent_messages, shorten_text
from hermes.models.embedded.small_profile import (
    ShortTool,
    reminder,
    short_tool,
    small_profile,
    system_message,
)
from hermes.models.embedded.turn_state import TurnState, turn_state_of
from hermes.models.images import ImageUrlMap, part_text
from hermes.models.wire.answer_builder import CallDelta, FunctionDelta
from hermes.models.wire.chat_stream import ChatStream, ContentPart
from hermes.models.wire.codec import MAX_ANSWER, RequestCodec, StreamDelta
from hermes.ports.model import ModelRequest, OutputConstraints
from hermes.schema.messages import Assistant, Message, Result, ToolCall, User, text_of

MAX_OUTPUT = 700
"""Tokens of one answer if no limit is set: a minute or two on one core."""


class EngineMessage(Struct):
    role: str
    content: str


class EmbeddedWire(RequestCodec, kw_only=True):
    """Implements `wire.codec.Wire` for one request: its tools decide how it is answered."""

    request: ModelRequest
    repeated: Sequence[ToolCall] = ()
    """Calls that the model tried to repeat; it must answer differently."""
    _short_tools: Sequence[ShortTool] = ()
    _has_file_tools: bool = False
    _replaces_paths: bool = False

    def __post_init__(self) -> None:
        self._short_tools = [short_tool(spec) for spec in self.request.tools]
        self._has_file_tools = any(one.name in small_profile().tools for one in self._short_tools)
        self._replaces_paths = has_no_such_path(self.request.messages)

    def path(self, base_url: str) -> str:
        return "/chat/completions"

    def body(self, request: ModelRequest, images: ImageUrlMap | None = None) -> bytes:
        system = EngineMessage("system", system_message(request.system, self._short_tools))
        messages = self._messages(recent_messages(request.messages))
        return self._encoder.encode({**self._head(request), "messages": [system, *messages]})

    def stream(self) -> ChatStream:
        if not self._short_tools:
            return ChatStream()
        return ChoiceStream(replace_paths=self._replaces_paths)

    def _head(self, request: ModelRequest) -> dict[str, Any]:
        head: dict[str, Any] = {
            "model": self._served.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": request.max_output or self._served.max_output or MAX_OUTPUT,
            "temperature": 0.0,
            "cache_prompt": True,
        }
        if self._short_tools:
            schema = {"name": "choice", "schema": answer_schema(*self._offered(request))}
            head["response_format"] = {"type": "json_schema", "json_schema": schema}
        return head

    def _offered(self, request: ModelRequest) -> tuple[Sequence[ShortTool], OutputConstraints]:
        """Require a call while something is left to do, a reply when all is read or it loops."""
        constraints = request.constraints
        turn = turn_state_of(request.messages, has_file_tools=self._has_file_tools)
        if constraints.required or constraints.name:
            return self._short_tools, constraints
        used = {one.name for one in self.repeated}
        others = [one for one in self._short_tools if one.name not in used]
        stuck = bool(self.repeated) and turn.has_failed
        if (turn.untouched_names or stuck) and others and not turn.is_looping:
            return others, structs.replace(constraints, required=True)
        done = self.repeated or turn.is_known or turn.is_looping
        return [] if done else self._short_tools, constraints

    def _messages(self, messages: Sequence[Message]) -> Iterator[EngineMessage]:
        """Results repeat the question, which a small model has lost by then."""
        turn = TurnState()
        for message in messages:
            match message:
                case User():
                    turn = TurnState(text_of(message), has_file_tools=self._has_file_tools)
                    yield EngineMessage(
                        "user", shorten_text("\n".join(map(part_text, message.parts)))
                    )
                case Assistant():
                    turn.calls += message.calls
                    if text := self._answer_text(message):
                        yield EngineMessage("assistant", text)
                case Result():
                    yield EngineMessage("user", self._result_message(message, turn))
                case _:
                    assert_never(message)

    def _result_message(self, result: Result, turn: TurnState) -> str:
        step = turn.add_result(result)
        text = f"{step.label}\n{step.output}"
        if not self._short_tools:
            return text
        before = f"Found before:\n{turn.earlier_results}" if turn.earlier_results else ""
        return "\n\n".join(one for one in (text, before, reminder(turn)) if one)

    def _answer_text(self, message: Assistant) -> str:
        """Encode an answer as the model is asked to write it, usually byte for byte."""
        text = text_of(message)
        calls = "\n".join(
            f'{{"{TOOL}": "{call.name}", "{ARGS}": {bytes(call.args).decode()}}}'
            for call in message.calls
        )
        if not self._short_tools:
            return text or calls
        reply = f'{{"{REPLY}": {msgspec.json.encode(text).decode()}}}' if text else ""
        return calls or reply


def repeats_calls(request: ModelRequest, answer: Assistant) -> bool:
    """Return whether the answer repeats calls whose results it already has."""
    if request.constraints.required or request.constraints.name:
        return False
    turn = turn_state_of(request.messages)
    used = {one.name for one in answer.calls}
    # A failed call may be repeated if there is no other tool.
    if turn.has_failed and all(one.name in used for one in request.tools):
        return False
    return turn.repeated(answer.calls)


def answer_schema(shorts: Sequence[ShortTool], constraints: OutputConstraints) -> dict[str, Any]:
    """Return the schema of an answer: a call of one of the tools, or a reply if allowed."""
    offered = [one for one in shorts if constraints.name in ("", one.name)]
    branches = [_object({TOOL: {"const": one.name}, ARGS: one.schema}) for one in offered]
    if not constraints.required and not constraints.name:
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
    """A chat stream whose content is a JSON choice.

    With `replace_paths`, example paths are replaced by names in the current directory.
    """

    replace_paths: bool = False
    _parser: AnswerParser = field(default_factory=AnswerParser)
    _call_count: int = 0

    def _add_content(self, content: str | list[ContentPart]) -> None:
        text = content if isinstance(content, str) else "".join(one.text or "" for one in content)
        text = text[: max(MAX_ANSWER + 1 - self._length, 0)]
        self._length += len(text)
        if reply := self._parser.feed(text):
            self._add_text(reply)
        for call in self._parser.calls[self._call_count :]:
            args = replace_example_paths(call.args) if self.replace_paths else call.args
            self._add(call.tool, bytes(args).decode(), call.id)

    def finish(self, model: str, provider: str) -> tuple[list[StreamDelta], Assistant]:
        if rest := self._parser.close():
            self._add("", rest, "")
        return super().finish(model, provider)

    def _add(self, tool: str, args: str, identity: str) -> None:
        function = FunctionDelta(name=tool, arguments=args)
        self._calls.add(CallDelta(index=self._call_count, id=identity or None, function=function))
        self._call_count += 1


EXAMPLE_PATH = "path/to"
_THIS_FOLDER = re.compile(r"((this|the|your|my|current|working)[_-]?)?(folder|directory|dir)?/?")
_PATH = re.compile(r"(?<![\w./~-])/?path/to(?:/(?P<rest>[^\s\"'|&;<>]*))?(?![\w-])")


def has_no_such_path(messages: Sequence[Message]) -> bool:
    """Return whether an example path must be made up, since no user message contains one."""
    return not any(isinstance(one, User) and EXAMPLE_PATH in text_of(one) for one in messages)


def replace_example_paths(args: Raw) -> Raw:
    """Replace example paths in the arguments; return the same bytes if there are none."""
    if EXAMPLE_PATH.encode() not in bytes(args):
        return args
    try:
        values = msgspec.json.decode(args, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return args
    for name in ("path", "command"):
        if isinstance(value := values.get(name), str):
            values[name] = _PATH.sub(_local_path, value)
    return Raw(json.dumps(values, ensure_ascii=False).encode())


def _local_path(found: re.Match[str]) -> str:
    rest = (found["rest"] or "").lstrip("/")
    return "." if _THIS_FOLDER.fullmatch(rest) else rest
