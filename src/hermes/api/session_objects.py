"""Request and response objects of the sessions API."""

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from hermes.api.chat_objects import ContentParts, FinishedCompletion
from hermes.api.errors import Problem
from hermes.schema.chat_api import WireCall, to_wire
from hermes.schema.sessions import Session, SessionSummary, StoredMessage

MessageContent: TypeAlias = str | ContentParts


class NewSession(Struct, frozen=True, kw_only=True):
    """A new session; by default with a random id and the default model."""

    id: str | None = None
    session_id: str | None = None
    model: Annotated[str, Meta(max_length=256)] | None = None
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
    title: str | None = None


class ChatTurn(Struct, frozen=True, kw_only=True):
    """One turn; `input` is an alias of `message`, `instructions` of `system_message`."""

    message: MessageContent | None = None
    input: MessageContent | None = None
    system_message: str | None = None
    instructions: str | None = None


class SessionObject(Struct, frozen=True, kw_only=True):
    id: str
    source: str
    title: str | None
    model: str | None
    started_at: float
    ended_at: float | None
    end_reason: str | None
    parent_session_id: str | None
    message_count: int | UnsetType = UNSET
    tool_call_count: int | UnsetType = UNSET
    input_tokens: int | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET
    cost_usd: float | UnsetType | None = UNSET
    last_active: float | UnsetType = UNSET
    preview: str | UnsetType = UNSET
    callback_url: str | UnsetType | None = UNSET
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
    id: str
    seq: int
    role: str
    content: str | list[dict[str, Any]] | None
    timestamp: float
    run_id: str | None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[WireCall] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET


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
        )


class ChatEvent(Struct, frozen=True, kw_only=True):
    """A stream event; which fields are present depends on its name."""

    session_id: str
    run_id: str
    seq: int
    ts: float
    delta: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool: str | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    preview: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    duration: float | UnsetType = UNSET
    usage: TurnUsage | UnsetType = UNSET
    completed: bool | UnsetType = UNSET
    partial: bool | UnsetType = UNSET
    message: str | UnsetType = UNSET
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
    )


def summary_object(summary: SessionSummary) -> SessionObject:
    return msgspec.structs.replace(
        session_object(summary.session),
        message_count=summary.messages,
        tool_call_count=summary.tool_calls,
        input_tokens=summary.usage.input,
        output_tokens=summary.usage.output,
        cost_usd=summary.cost,
        last_active=summary.last_at.timestamp(),
        preview=summary.preview,
    )


def message_object(stored: StoredMessage) -> SessionMessage:
    wire = to_wire(stored)
    return SessionMessage(
        id=stored.message.id,
        seq=stored.seq,
        role=wire.role,
        content=wire.content,
        timestamp=stored.at.timestamp(),
        run_id=stored.run or None,
        reasoning_content=wire.reasoning_content or UNSET,
        tool_calls=wire.tool_calls or UNSET,
        tool_call_id=wire.tool_call_id or UNSET,
    )
