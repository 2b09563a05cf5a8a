"""Sample messages and sessions for the contract suites."""

from datetime import datetime
from typing import TypedDict, Unpack

from msgspec import Raw

from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.store import AppendMessage
from hermes.schema.messages import Assistant, Result, Stop, Text, ToolCall, User
from hermes.schema.sessions import Session


class SessionFields(TypedDict, total=False):
    source: str
    principal: str
    key: str
    title: str
    model: str
    provider: str
    system: str
    parent: str | None
    cwd: str
    ended_at: datetime | None
    end_reason: str
    effort: str
    personality: str


def session(clock: Clock, name: str, **traits: Unpack[SessionFields]) -> Session:
    return Session(id=name, started_at=clock.now(), **traits)


def user_message(text: str, name: str = "") -> User:
    return User(name or new_id("msg"), (Text(text),))


def append(clock: Clock, text: str, name: str = "") -> AppendMessage:
    """Return the write that appends a user message to the session s1."""
    return AppendMessage("s1", "r", user_message(text, name), clock.now())


def assistant_message(text: str) -> Assistant:
    return Assistant(new_id("msg"), (Text(text),), Stop.END)


def calling_message(*tools: str) -> Assistant:
    """Return an answer that calls each of these tools; the call id is the tool's name."""
    calls = tuple(ToolCall(tool, tool, Raw(b"{}")) for tool in tools)
    return Assistant(new_id("msg"), calls, Stop.TOOLS)


def result_message(call: str, text: str, name: str = "") -> Result:
    return Result(name or new_id("msg"), call, (Text(text),))
