"""Read one model answer: its kind, its calls, and whether it claims changes that did not happen."""

import re
from collections.abc import Mapping
from enum import Enum, auto

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from hermes.agent.prompts import prompt_text
from hermes.kit.call_arguments import NO_ARGUMENTS, parse_arguments
from hermes.kit.ids import new_id
from hermes.ports.model import Model, ModelDelta, ModelRequest
from hermes.ports.tool import Tool
from hermes.schema.errors import ModelError
from hermes.schema.events import StreamReset, TextDelta
from hermes.schema.messages import (
    Assistant,
    Result,
    Stop,
    Text,
    ToolCall,
    Trust,
    Usage,
    User,
    text_of,
)
from hermes.schema.tools import PROXY_TOOL, Effect

MAX_BAD_ANSWERS = 3
"""Consecutive empty or truncated answers allowed in one turn."""

TRUNCATED_ARGUMENTS = "(cut off)"
"""Replaces the arguments of a call that the output limit truncated."""


class AnswerKind(Enum):
    FINAL = auto()
    CALLS = auto()
    EMPTY = auto()
    CUT_OFF = auto()
    REFUSED = auto()


def classify_answer(answer: Assistant) -> AnswerKind:
    if answer.stop is Stop.REFUSED:
        return AnswerKind.REFUSED
    if answer.calls:
        return AnswerKind.CALLS
    if answer.stop is Stop.LENGTH:
        return AnswerKind.CUT_OFF
    return AnswerKind.FINAL if text_of(answer).strip() else AnswerKind.EMPTY


def runnable_calls(answer: Assistant) -> list[ToolCall]:
    """The calls to run; in a truncated answer the last call is marked as broken."""
    calls = answer.calls
    if calls and answer.stop is Stop.LENGTH:
        calls[-1] = replace(calls[-1], broken=TRUNCATED_ARGUMENTS)
    return calls


def nudge(name: str) -> User:
    """A message from Hermes that makes the model continue."""
    return User(new_id("msg"), (Text(prompt_text(name)),), Trust.PROGRAM)


def no_answer(model: Model) -> ModelError:
    return ModelError(f"{model.name} ended its stream without an answer.", hint="Try again.")


def add_shown(texts: list[str], delta: ModelDelta) -> None:
    """Add what a delta shows of the answer; nothing is left of one that begins again."""
    if isinstance(delta, TextDelta):
        texts.append(delta.text)
    elif isinstance(delta, StreamReset):
        texts.clear()


def partial_answer(model: Model, text: str) -> Assistant | None:
    """Return the text that may already have been shown, as a cancelled answer."""
    if not text.strip():
        return None
    parts = (Text(text),)
    return Assistant(new_id("msg"), parts, Stop.CANCELLED, Usage(), model.name, model.provider)


async def ask_model(model: Model, request: ModelRequest) -> Assistant:
    """Return the answer to a request outside a turn."""
    async with model.stream(request) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Assistant):
                return chunk
    raise ModelError("There was no answer.")


class _ProxiedCall(Struct, frozen=True):
    name: str
    arguments: Raw = NO_ARGUMENTS


_PROXIED_CALL = msgspec.json.Decoder(_ProxiedCall)


NEWER_NAMES = {"cronjob_manage": "cronjob", "process_manage": "process", "todo_list": "todo"}


def unwrap_call(call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall:
    """Return the call that was made through the proxy tool, or the call itself.

    A tool that the public system has renamed is found by its newer name, too. The transcript keeps
    the call as the model wrote it. Effects, approvals, the loop guard and hooks see the unwrapped
    call.
    """
    if call.name in NEWER_NAMES and call.name not in tools:
        return replace(call, name=NEWER_NAMES[call.name])
    if call.name != PROXY_TOOL or call.broken or PROXY_TOOL not in tools:
        return call
    try:
        proxied = _PROXIED_CALL.decode(call.args)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return call
    if proxied.name == PROXY_TOOL or proxied.name not in tools:
        return call
    return ToolCall(call.id, proxied.name, *parse_arguments(proxied.arguments))


NOTHING_CHANGED = "No file was changed in this turn."

_VERBS = (
    "fixed|changed|updated|edited|created|deleted|removed|written|wrote|added|renamed|modified|"
    "implemented|replaced|saved|corrected|moved|refactored|patched"
)
_THINGS = (
    r"files?|tests?|code|bugs?|functions?|methods?|class(?:es)?|scripts?|lines?|folders?|"
    r"director(?:y|ies)|modules?|imports?|config(?:uration)?|\S+\.[a-z]{1,5}"
)
_CLAIM = re.compile(
    rf"\bI(?:['\u2019]ve| have)? (?:now |just |also |successfully )*(?:{_VERBS})\b"
    rf"[^.!?\n]*?\b(?:{_THINGS})\b"
    rf"|\b(?:{_THINGS})\b[^.!?\n]{{0,40}}\b(?:has|have|is|are) (?:now|been|successfully)"
    rf"(?: now| been| successfully)* (?:{_VERBS})\b"
    rf"|^\W*(?:done\W+)?(?:{_VERBS})\b(?:[^.!?\n]*?\b(?:{_THINGS})\b|\W*$)",
    re.IGNORECASE | re.MULTILINE,
)
_NEGATION = re.compile(
    r"\b(?:not|no|nothing|never|cannot|can't|didn't|couldn't|wasn't|unable)\b", re.IGNORECASE
)
_CODE = re.compile(r"^\s*(?:```|~~~)", re.MULTILINE)
MAX_LOOKED_AT = 4_000


def claims_change(text: str) -> bool:
    """Whether an answer says that it changed files.

    Code in the answer may itself be the requested change.
    """
    text = text[:MAX_LOOKED_AT]
    if _CODE.search(text):
        return False
    sentences = (text[_start(text, found.start()) : found.end()] for found in _CLAIM.finditer(text))
    return any(not _NEGATION.search(sentence) for sentence in sentences)


def _start(text: str, at: int) -> int:
    """Return where the sentence at this position begins."""
    return max(text.rfind(end, 0, at) for end in (".", "!", "?", "\n")) + 1


class TurnEffects(Struct):
    """What the calls of a turn that succeeded may have changed."""

    _tools: Mapping[str, Tool] = {}
    can_change_files: bool = False
    files: bool = False  # a tool that changes files was used
    others: bool = False  # something that is not a file was changed

    def add(self, call: ToolCall, result: Result) -> None:
        tool = self._tools.get(call.name)
        if result.failed:
            return
        if tool is None:
            self.others = True
        elif tool.spec.changes_files:
            self.files = True
        elif tool.spec.effect is not Effect.READ:
            self.others = True
