"""Request and response objects of the sessions API."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from hermes.api.chat_objects import ContentParts, FinishedCompletion, ProviderName
from hermes.api.errors import Problem
from hermes.schema.chat_api import WireCall, to_wire
from hermes.schema.messages import Assistant, Result
from hermes.schema.sessions import Session, SessionSummary, StoredMessage

_FINISH_REASONS = {"end": "stop", "tools": "tool_calls", "refused": "content_filter"}
"""Our names to the names that clients know."""
MessageContent: TypeAlias = str | ContentParts


class NewSession(Struct, frozen=True, kw_only=True):
    """A new session; by default with a random id and the default model."""

    id: str | None = None
    session_id: str | None = None
    model: Annotated[str, Meta(max_length=256)] | None = None
    provider: ProviderName = None
    system_prompt: str | None = None
    title: str | None = None
    callback_url: str | None = None
    callback_secret: str | None = None


class SessionPatch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a session; an `end_reason` ends it.

    A `callback_url` needs its secret; null removes the callback.
    """

    title: str | UnsetType | None = UNSET
    callback_url: str | UnsetType | None = UNSET
    callback_secret: str | None = None
    end_reason: Annotated[str, Meta(min_length=1, max_length=100)] | UnsetType = UNSET


class ForkRequest(Struct, frozen=True, kw_only=True):
    id: str | None = None
    session_id: str | None = None
    title: str | None = None


class ChatTurn(Struct, frozen=True, kw_only=True):
    """One turn; `input` is an alias of `message`, `instructions` of `system_message`.

    `model` is a route or a model of `provider`, and stays the session's model.
    """

    message: MessageContent | None = None
    input: MessageContent | None = None
    system_message: str | None = None
    instructions: str | None = None
    model: Annotated[str, Meta(max_length=256)] | None = None
    provider: ProviderName = None


class SessionObject(Struct, frozen=True, kw_only=True):
    id: str
    source: str
    title: str | None
    model: str | None
    started_at: float
    ended_at: float | None
    end_reason: str | None
    parent_session_id: str | None
    has_system_prompt: bool
    message_count: int | UnsetType = UNSET
    tool_call_count: int | UnsetType = UNSET
    input_tokens: int | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET
    cache_read_tokens: int | UnsetType = UNSET
    cache_write_tokens: int | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET
    cost_usd: float | UnsetType | None = UNSET
    estimated_cost_usd: float | UnsetType | None = UNSET
    last_active: float | UnsetType = UNSET
    preview: str | UnsetType = UNSET
    callback_url: str | UnsetType | None = UNSET
    object: str = "hermes.session"


class SessionEnvelope(Struct, frozen=True):
    """One session, as in the answers to requests about a single one."""

    session: SessionObject
    object: str = "hermes.session"


class SessionList(Struct, frozen=True, kw_only=True):
    data: list[SessionObject]
    limit: int
    offset: int
    has_more: bool
    object: str = "list"


class SessionDeleted(Struct, frozen=True, kw_only=True):
    id: str
    object: str = "hermes.session.deleted"
    deleted: bool = True


class SessionMessage(Struct, frozen=True, kw_only=True):
    """A message; `tool_name` is the tool that a result belongs to."""

    id: str
    session_id: str
    seq: int
    role: str
    content: str | list[dict[str, Any]] | None
    timestamp: float
    run_id: str | None = None
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[WireCall] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    tool_name: str | UnsetType = UNSET
    finish_reason: str | UnsetType = UNSET


class MessageList(Struct, frozen=True, kw_only=True):
    session_id: str
    data: list[SessionMessage]
    has_more: bool
    object: str = "list"


class TurnUsage(Struct, frozen=True, kw_only=True):
    input_tokens: int
    output_tokens: int
    total_tokens: int


class AssistantMessage(Struct, frozen=True, kw_only=True):
    content: str
    role: str = "assistant"


class SessionCompletion(Struct, frozen=True, kw_only=True):
    """The answer of a turn; `partial` means it ended early, and `error` says why."""

    session_id: str
    run_id: str
    message: AssistantMessage
    usage: TurnUsage
    completed: bool = True
    partial: bool = False
    error: str | None = None
    error_code: str | None = None
    model: str | None = None
    provider: str | None = None
    object: str = "hermes.session.chat.completion"

    @classmethod
    def from_finished(cls, finished: FinishedCompletion) -> "SessionCompletion":
        status, usage = finished.standing, finished.usage
        return cls(
            session_id=finished.label.session,
            run_id=finished.label.id,
            message=AssistantMessage(content=finished.text),
            usage=TurnUsage(
                input_tokens=usage.prompt_tokens,
                output_tokens=usage.completion_tokens,
                total_tokens=usage.total_tokens,
            ),
            completed=status.completed,
            partial=status.partial,
            error=status.error,
            error_code=status.error_code,
            model=status.model,
            provider=status.provider,
        )


class MessageHead(Struct, frozen=True, kw_only=True):
    """The message whose text follows in the stream, or the one that is answered."""

    id: str | UnsetType = UNSET
    role: str
    content: str | UnsetType = UNSET


class ChatEvent(Struct, frozen=True, kw_only=True):
    """A stream event; which fields are present depends on its name.

    `tool_name` and `tool` are the same, for clients that know only one of them.
    """

    session_id: str
    run_id: str
    seq: int
    ts: float
    message_id: str | UnsetType = UNSET
    user_message: MessageHead | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool: str | UnsetType = UNSET
    tool_name: str | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    preview: str | UnsetType = UNSET
    args: Raw | UnsetType = UNSET
    text: str | UnsetType = UNSET
    duration: float | UnsetType = UNSET
    usage: TurnUsage | UnsetType = UNSET
    completed: bool | UnsetType = UNSET
    partial: bool | UnsetType = UNSET
    interrupted: bool | UnsetType = UNSET
    model: str | UnsetType | None = UNSET
    provider: str | UnsetType | None = UNSET
    message: str | MessageHead | UnsetType = UNSET
    code: str | UnsetType = UNSET
    error: Problem | UnsetType = UNSET


def session_object(session: Session) -> SessionObject:
    return SessionObject(
        id=session.id,
        source=session.source,
        title=session.title or None,
        model=session.model or None,
        started_at=session.started_at.timestamp(),
        ended_at=session.ended_at and session.ended_at.timestamp(),
        end_reason=session.end_reason or None,
        parent_session_id=session.parent,
        has_system_prompt=bool(session.system),
    )


def summary_object(summary: SessionSummary) -> SessionObject:
    return msgspec.structs.replace(
        session_object(summary.session),
        message_count=summary.messages,
        tool_call_count=summary.tool_calls,
        input_tokens=summary.usage.input,
        output_tokens=summary.usage.output,
        cache_read_tokens=summary.usage.cache_read,
        cache_write_tokens=summary.usage.cache_write,
        reasoning_tokens=summary.usage.reasoning,
        cost_usd=summary.cost,
        estimated_cost_usd=summary.cost,
        last_active=summary.last_at.timestamp(),
        preview=summary.preview,
    )


def called_tools(rows: Sequence[StoredMessage]) -> dict[str, str]:
    """Return the tool of each call in these messages, by the id of the call."""
    answers = (row.message for row in rows if isinstance(row.message, Assistant))
    return {call.id: call.name for answer in answers for call in answer.calls}


def message_object(session: str, stored: StoredMessage, tools: Mapping[str, str]) -> SessionMessage:
    """Return a message of the session; `tools` are those that its messages called."""
    wire, message = to_wire(stored), stored.message
    stop = message.stop.value if isinstance(message, Assistant) else ""
    called = tools.get(message.call, "") if isinstance(message, Result) else ""
    return SessionMessage(
        id=message.id,
        session_id=session,
        seq=stored.seq,
        role=wire.role,
        content=wire.content,
        timestamp=stored.at.timestamp(),
        run_id=stored.run or None,
        reasoning_content=wire.reasoning_content or UNSET,
        reasoning=wire.reasoning_content or UNSET,
        tool_name=called or UNSET,
        finish_reason=_FINISH_REASONS.get(stop, stop) or UNSET,
        tool_calls=wire.tool_calls or UNSET,
        tool_call_id=wire.tool_call_id or UNSET,
    )
