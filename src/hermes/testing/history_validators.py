"""Strict judges of a history, one for each shape in which providers take it.

They say what the providers' documentation and their 400 answers say, on the level of our
own messages, and share no code with the repair that must satisfy them.
"""

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from hermes.schema.messages import Assistant, Message, Reasoning, Result, Text, ToolCall, User

_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


class InvalidHistory(AssertionError):
    """A provider of this shape would answer 400."""


def check_chat_completions(history: Sequence[Message]) -> None:
    """Roles user, assistant, tool: tool messages stand right behind the assistant that called."""
    waiting: list[str] = []
    before: Message | None = None
    for message in history:
        match message:
            case User():
                _require(not waiting, f"calls {waiting} have no tool message")
                _require(not isinstance(before, User), "two user messages in a row")
                _require(_has_content(message), "an empty user message")
            case Assistant():
                _require(not waiting, f"calls {waiting} have no tool message")
                _require(isinstance(before, User | Result), "an assistant where none may be")
                _require(_has_content(message), "an assistant with neither content nor calls")
                waiting = [call.id for call in message.calls]
            case Result():
                _require(
                    message.call in waiting, f"tool message for {message.call!r}, not waited for"
                )
                _require(_has_content(message), "an empty tool message")
                waiting.remove(message.call)
        before = message
    _require(not waiting, f"calls {waiting} have no tool message")
    _check_calls(history)


def check_responses(history: Sequence[Message]) -> None:
    """Items: each function_call has one function_call_output after it, under the same call_id."""
    called: set[str] = set()
    answered: set[str] = set()
    for message in history:
        _require(_has_content(message), "an item without content")
        if isinstance(message, Assistant):
            called |= {call.id for call in message.calls}
        elif isinstance(message, Result):
            _require(message.call in called, f"output for unknown call {message.call!r}")
            _require(message.call not in answered, f"two outputs for {message.call!r}")
            answered.add(message.call)
    _require(called == answered, f"no output for {sorted(called - answered)}")
    _check_calls(history)


def check_anthropic(history: Sequence[Message]) -> None:
    """User and assistant alternate; a user turn begins with the results of all calls before it."""
    turns = _turns(history)
    _require(not turns or turns[0][0] == "user", "the first turn is not the user's")
    asked: list[str] = []
    for role, messages in turns:
        if role == "assistant":
            _require(len(messages) == 1, "two assistant turns in a row")
            asked = [call.id for call in _calls(messages)]
        else:
            results = [message for message in messages if isinstance(message, Result)]
            _require(list(messages[: len(results)]) == results, "tool_result after text")
            _require(
                sorted(result.call for result in results) == sorted(asked),
                f"tool_use {asked} without its tool_result in the next turn",
            )
            asked = []
    _require(not asked, f"tool_use {asked} without its tool_result in the next turn")
    _require(all(_no_blank(message) for message in history), "a text block without words")
    _check_calls(history)


def check_gemini(history: Sequence[Message]) -> None:
    """Roles user and model: functionResponse parts match functionCall parts, in order."""
    turns = _turns(history)
    _require(not turns or turns[0][0] == "user", "contents do not begin with the user")
    asked: list[str] = []
    for role, messages in turns:
        _require(all(_has_content(message) for message in messages), "a content without parts")
        if role == "assistant":
            _require(len(messages) == 1, "two model contents in a row")
            asked = [call.id for call in _calls(messages)]
        else:
            given = [message.call for message in messages if isinstance(message, Result)]
            _require(
                given == asked, f"functionCall parts {asked} got functionResponse parts {given}"
            )
            asked = []
    _require(not asked, f"functionCall parts {asked} got no functionResponse")
    _check_calls(history)


SHAPES: Mapping[str, Callable[[Sequence[Message]], None]] = {
    "chat_completions": check_chat_completions,
    "responses": check_responses,
    "anthropic": check_anthropic,
    "gemini": check_gemini,
}


def check_history(history: Sequence[Message]) -> None:
    """Every shape takes it. Raises `InvalidHistory` with the shape and the reason."""
    for shape, check in SHAPES.items():
        try:
            check(history)
        except InvalidHistory as error:
            raise InvalidHistory(f"{shape}: {error}") from None


def check_request(history: Sequence[Message]) -> None:
    """A history that can be sent now: something is asked, by a person or by a result."""
    check_history(history)
    _require(bool(history), "no messages at all")
    _require(isinstance(history[-1], User | Result), "the last word is the assistant's own")


def _turns(history: Sequence[Message]) -> list[tuple[str, list[Message]]]:
    """Neighbours of one side folded, where results are on the user's side."""
    turns: list[tuple[str, list[Message]]] = []
    for message in history:
        role = "assistant" if isinstance(message, Assistant) else "user"
        if turns and turns[-1][0] == role:
            turns[-1][1].append(message)
        else:
            turns.append((role, [message]))
    return turns


def _calls(messages: Sequence[Message]) -> list[ToolCall]:
    return [
        call for message in messages if isinstance(message, Assistant) for call in message.calls
    ]


def _check_calls(history: Sequence[Message]) -> None:
    ids = [call.id for call in _calls(history)]
    _require(all(ids), "a call without an id")
    _require(len(set(ids)) == len(ids), "a call id used twice")
    for call in _calls(history):
        _require(_NAME.match(call.name) is not None, f"the name {call.name!r}")
        try:
            msgspec.json.decode(call.args, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, msgspec.ValidationError):
            _require(False, f"arguments that are no JSON object: {bytes(call.args)!r}")


def _has_content(message: Message) -> bool:
    return any(
        bool(part.text.strip()) if isinstance(part, Text) else not isinstance(part, Reasoning)
        for part in message.parts
    )


def _no_blank(message: Message) -> bool:
    return all(part.text.strip() for part in message.parts if isinstance(part, Text))


def _require(held: bool, otherwise: str) -> None:
    if not held:
        raise InvalidHistory(otherwise)
