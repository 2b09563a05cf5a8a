"""What a chat completion came to, and its two shapes: one object, or a row of chunks."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from hermes.agent.turn import CLIENT_CALLS
from hermes.api.answer_text import assistant_reasoning, assistant_text
from hermes.api.chat_objects import (
    CallFunction,
    ChatChunk,
    ChatCompletion,
    ChatUsage,
    Choice,
    ChunkChoice,
    ClientCall,
    CompletionMessage,
    Delta,
    TurnStatus,
)
from hermes.api.errors import ApiError, retry_headers
from hermes.kit.sse import frame
from hermes.kit.text import one_line
from hermes.schema.events import Outcome, RunEnded, ToolStarted
from hermes.schema.messages import Assistant, Message, Result
from hermes.schema.tools import ToolSpec

DONE_FRAME = frame(b"[DONE]")
PROGRESS_EVENT = "hermes.tool.progress"
EMOJI = "🔧"
_PLACEHOLDER = "\x00here\x00"
_ESCAPED_PLACEHOLDER = msgspec.json.encode(_PLACEHOLDER)


class CompletionLabel(Struct, frozen=True):
    """What all pieces of one completion have in common; a side call has no session."""

    id: str
    created: int
    model: str
    session: str


class FinishedCompletion(Struct, frozen=True, kw_only=True):
    """A turn's end, as it is told and as it is kept for who asks again."""

    label: CompletionLabel
    text: str
    calls: list[ClientCall]
    finish: str
    usage: ChatUsage
    standing: TurnStatus
    thought: str = ""

    @property
    def is_replayable(self) -> bool:
        """Whether asking again shall give the same; what failed may be tried again."""
        return not self.standing.failed


def finish_completion(
    label: CompletionLabel, handed: Sequence[ToolSpec], ended: RunEnded, said: Sequence[Message]
) -> FinishedCompletion:
    text = assistant_text(said)
    calls = (
        _client_calls(said, {spec.name for spec in handed}) if ended.code == CLIENT_CALLS else []
    )
    return FinishedCompletion(
        label=label,
        text=text,
        calls=calls,
        finish=_finish_reason(ended),
        usage=ChatUsage.of(ended.usage),
        standing=_turn_status(label.session, ended, has_text=bool(text)),
        thought=assistant_reasoning(said),
    )


def completion_error(one: FinishedCompletion, *, acted: bool) -> ApiError | None:
    """What to say instead of an answer, when there is none."""
    if one.text or not one.standing.failed:
        return None
    told = one.standing.error or "The agent gave no answer."
    headers = completion_headers(one) | retry_headers(one.standing.error_code or "", acted=acted)
    return ApiError(502, "agent_incomplete", told, headers=headers)


def completion_headers(one: FinishedCompletion) -> dict[str, str]:
    standing = one.standing
    headers = {"X-Hermes-Session-Id": one.label.session} if one.label.session else {}
    if not standing.completed:
        headers["X-Hermes-Completed"] = "false"
        headers["X-Hermes-Partial"] = str(standing.partial).lower()
        error = one_line(standing.error or "", 200).encode("ascii", "replace").decode()
        headers["X-Hermes-Error"] = "".join(c if c.isprintable() else " " for c in error)
    return headers


def completion_object(one: FinishedCompletion) -> ChatCompletion:
    calls = one.calls or msgspec.UNSET
    spoken = CompletionMessage(
        content=one.text or (None if one.calls else ""),
        reasoning_content=one.thought or msgspec.UNSET,
        tool_calls=calls,
    )
    return ChatCompletion(
        id=one.label.id,
        created=one.label.created,
        model=one.label.model,
        choices=[Choice(message=spoken, finish_reason=one.finish)],
        usage=one.usage,
        hermes=one.standing,
    )


class ChunkEncoder:
    """The frames of one stream."""

    def __init__(self, label: CompletionLabel) -> None:
        self._label = label
        whole = self._frame(Delta(content=_PLACEHOLDER))
        self._head, _, self._tail = whole.rpartition(_ESCAPED_PLACEHOLDER)

    def role(self) -> bytes:
        return self._frame(Delta(role="assistant", content=""))

    def content(self, text: str) -> bytes:
        return self._head + msgspec.json.encode(text) + self._tail

    def thought(self, text: str) -> bytes:
        return self._frame(Delta(reasoning_content=text))

    def started(self, event: ToolStarted) -> bytes:
        call = event.call
        args = one_line(bytes(call.args).decode("utf-8", "replace"), 80)
        return self._progress(call.id, call.name, "running", label=f"{call.name} {args}")

    def ended(self, result: Result, name: str) -> bytes:
        return self._progress(result.call, name, "failed" if result.failed else "completed")

    def end(self, one: FinishedCompletion, *, usage_apart: bool) -> Iterator[bytes]:
        if one.calls:
            calls = [
                msgspec.structs.replace(call, index=number) for number, call in enumerate(one.calls)
            ]
            yield self._frame(Delta(tool_calls=calls))
        choice = ChunkChoice(delta=Delta(), finish_reason=one.finish)
        last = self._chunk([choice])
        usage = None if usage_apart else one.usage
        yield _chunk_frame(msgspec.structs.replace(last, usage=usage, hermes=one.standing))
        if usage_apart:
            yield _chunk_frame(msgspec.structs.replace(self._chunk([]), usage=one.usage))
        yield DONE_FRAME

    def whole(self, one: FinishedCompletion, *, usage_apart: bool) -> Iterator[bytes]:
        """All at once, for who asks again."""
        yield self.role()
        if one.thought:
            yield self.thought(one.thought)
        if one.text:
            yield self.content(one.text)
        yield from self.end(one, usage_apart=usage_apart)

    def _progress(self, call: str, tool: str, status: str, label: str = "") -> bytes:
        # It is a whole chunk without words, so that a client that knows no such event bears it.
        chunk = msgspec.structs.replace(
            self._chunk([ChunkChoice(delta=Delta())]),
            tool=tool,
            emoji=EMOJI,
            label=label or tool,
            toolCallId=call,
            status=status,
        )
        return frame(msgspec.json.encode(chunk), event=PROGRESS_EVENT)

    def _frame(self, delta: Delta) -> bytes:
        return _chunk_frame(self._chunk([ChunkChoice(delta=delta)]))

    def _chunk(self, choices: list[ChunkChoice]) -> ChatChunk:
        label = self._label
        return ChatChunk(id=label.id, created=label.created, model=label.model, choices=choices)


def _chunk_frame(chunk: ChatChunk) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _client_calls(said: Sequence[Message], handed: set[str]) -> list[ClientCall]:
    answers = [message for message in said if isinstance(message, Assistant)]
    return [
        ClientCall(id=call.id, function=CallFunction(call.name, bytes(call.args).decode()))
        for call in (answers[-1].calls if answers else ())
        if call.name in handed and not call.broken
    ]


def _finish_reason(ended: RunEnded) -> str:
    match ended.outcome:
        case Outcome.DONE:
            return "tool_calls" if ended.code == CLIENT_CALLS else "stop"
        case Outcome.EXHAUSTED:
            return "length"
        case Outcome.FAILED | Outcome.CANCELLED:
            return "length" if ended.code == "truncated" else "error"


def _turn_status(session: str, ended: RunEnded, *, has_text: bool) -> TurnStatus:
    done = ended.outcome is Outcome.DONE
    return TurnStatus(
        session_id=session,
        completed=done,
        partial=not done and has_text,
        failed=ended.outcome in {Outcome.FAILED, Outcome.CANCELLED},
        error=None if done else ended.reason or None,
        error_code=None if done else ended.code or None,
    )
