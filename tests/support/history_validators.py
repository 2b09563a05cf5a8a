"""Strict validators of a message history, one for each provider API.

They apply the rules of the providers' documentation and 400 responses to our own messages, and
share no code with the history repair they test.
"""

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from hermes.schema.messages import Assistant, Message, Reasoning, Result, Text, ToolCall, User

_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


class InvalidHistory(AssertionError):
    """A provider with this API would respond with 400."""


def check_chat_completions(history: Sequence[Message]) -> None:
    """Check chat completions: tool messages directly follow the assistant message that called."""
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
                _require(isinstance(before, User | Result), "an unexpected assistant message")
                _require(
                    _has_content(message), "an assistant message with neither content nor calls"
                )
                waiting = [call.id for call in message.calls]
            case Result():
                _require(message.call in waiting, f"unexpected tool message for {message.call!r}")
                _require(_has_content(message), "an empty tool message")
                waiting.remove(message.call)
        before = message
    _require(not waiting, f"calls {waiting} have no tool message")
    _check_calls(history)


def check_responses(history: Sequence[Message]) -> None:
    """Check Responses: each function_call is followed by one output with the same call_id."""
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
    """Check Anthropic: roles alternate, and a user turn starts with the results of all calls."""
    turns = _turns(history)
    _require(not turns or turns[0][0] == "user", "the first turn is not the user's")
    call_ids: list[str] = []
    for role, messages in turns:
        if role == "assistant":
            _require(len(messages) == 1, "two assistant turns in a row")
            call_ids = [call.id for call in _calls(messages)]
        else:
            results = [message for message in messages if isinstance(message, Result)]
            _require(list(messages[: len(results)]) == results, "tool_result after text")
            _require(
                sorted(result.call for result in results) == sorted(call_ids),
                f"tool_use {call_ids} without its tool_result in the next turn",
            )
            call_ids = []
    _require(not call_ids, f"tool_use {call_ids} without its tool_result in the next turn")
    texts = [part.text for one in history for part in one.parts if isinstance(part, Text)]
    _require(all(text.strip() for text in texts), "an empty text block")
    _check_calls(history)


def check_gemini(history: Sequence[Message]) -> None:
    """Check Gemini: functionResponse parts match the functionCall parts in order."""
    turns = _turns(history)
    _require(not turns or turns[0][0] == "user", "contents do not begin with the user")
    call_ids: list[str] = []
    for role, messages in turns:
        _require(all(_has_content(message) for message in messages), "a content without parts")
        if role == "assistant":
            _require(len(messages) == 1, "two model contents in a row")
            call_ids = [call.id for call in _calls(messages)]
        else:
            answered_ids = [message.call for message in messages if isinstance(message, Result)]
            _require(
                answered_ids == call_ids,
                f"functionCall parts {call_ids} got functionResponse parts {answered_ids}",
            )
            call_ids = []
    _require(not call_ids, f"functionCall parts {call_ids} got no functionResponse")
    _check_calls(history)


VALIDATORS: Mapping[str, Callable[[Sequence[Message]], None]] = {
    "chat_completions": check_chat_completions,
    "responses": check_responses,
    "anthropic": check_anthropic,
    "gemini": check_gemini,
}


def check_history(history: Sequence[Message]) -> None:
    """Check a history for every API; raise `InvalidHistory` with the API and the reason."""
    for shape, check in VALIDATORS.items():
        try:
            check(history)
        except InvalidHistory as error:
            raise InvalidHistory(f"{shape}: {error}") from None


def check_request(history: Sequence[Message]) -> None:
    """Check a history that is about to be sent: it must end with a user message or a result."""
    check_history(history)
    _require(bool(history), "no messages at all")
    _require(isinstance(history[-1], User | Result), "the last message is from the assistant")


def _turns(history: Sequence[Message]) -> list[tuple[str, list[Message]]]:
    """Group consecutive messages of one role; results count as user messages."""
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
        _require(_NAME.match(call.name) is not None, f"invalid tool name {call.name!r}")
        try:
            msgspec.json.decode(call.args, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, msgspec.ValidationError):
            _require(False, f"arguments are not a JSON object: {bytes(call.args)!r}")


def _has_content(message: Message) -> bool:
    return any(
        bool(part.text.strip()) if isinstance(part, Text) else not isinstance(part, Reasoning)
        for part in message.parts
    )


def _require(held: bool, otherwise: str) -> None:
    if not held:
        raise InvalidHistory(otherwise)
