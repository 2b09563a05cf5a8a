"""Write homes with sessions through the real store."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
from msgspec import Raw

from hermes.kit.clock import Clock, SystemClock
from hermes.ports.store import AppendMessage, OpenSession, RecordUsage, Write
from hermes.schema.messages import (
    Assistant,
    Media,
    Message,
    Reasoning,
    Result,
    Stop,
    Text,
    ToolCall,
    Trust,
    Usage,
    User,
)
from hermes.schema.sessions import Session
from hermes.store.sqlite import open_store

PICTURE = b"\x89PNG\r\n\x1a\n and so on"
PICTURE_DIGEST = hashlib.sha256(PICTURE).hexdigest()
NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
HOSTILE_TEXT = (
    'a\x1b[31mred\x1b]0;owned\x07 \u202egnp.exe\nnew line <script>alert("x")</script> 日本語 🙂'
)


def simple_session(
    name: str, *, at: datetime = NOON, words: Sequence[str] = ("Hello", "Hi."), **fields: object
) -> list[Write]:
    """A session of alternating questions and answers, a minute apart."""
    writes: list[Write] = [OpenSession(Session(id=name, started_at=at, **fields))]
    for number, text in enumerate(words):
        identity = f"msg_{name}_{number}"
        message: Message = (
            Assistant(identity, (Text(text),), Stop.END, Usage(10, 5), "m", "p")
            if number % 2
            else User(identity, (Text(text),))
        )
        writes.append(AppendMessage(name, f"run_{name}", message, at + timedelta(minutes=number)))
    return writes


def full_session(name: str, *, at: datetime = NOON, **fields: object) -> list[Write]:
    """A session with every kind of message and part."""
    messages: list[Message] = [
        User("m1", (Text("Look at "), Media(PICTURE_DIGEST, "image/png", "cat.png")), Trust.GUEST),
        Assistant(
            "m2",
            (
                Reasoning("I should look.", "sealed"),
                Text("First"),
                ToolCall("c1", "terminal", Raw(b'{ "command":\n"ls -la" }')),
                Text("and then"),
                ToolCall("c2", "read_file", Raw(b"{}"), broken='{"path": '),
            ),
            Stop.TOOLS,
            Usage(100, 20, 50, 10, 5),
            "big-model",
            "openai",
        ),
        Result("m3", "c1", (Text("total 0\nfile one\nfile two"),), shown="+ a\n- b"),
        Result("m4", "c2", (Text("the arguments are not JSON"),), failed=True),
        User("m5", (Text("Go on."),), Trust.PROGRAM),
        Assistant("m6", (Text("Done: ```\ncode"),), Stop.LENGTH, Usage(), "big-model", "openai"),
        User("m7", ()),
        Assistant("m8", (), Stop.CANCELLED),
    ]
    session = Session(
        id=name,
        started_at=at,
        model="big-model",
        provider="openai",
        system="You are\nHermes.",
        cwd="/srv/work",
        ended_at=at + timedelta(hours=1),
        end_reason="closed",
        **fields,
    )
    moments = [at + timedelta(microseconds=1 + number * 1_500_001) for number in range(8)]
    usages = [
        RecordUsage(name, "r1", "big-model", "openai", Usage(100, 20, 50, 10, 5), 0.25, at),
        RecordUsage(name, "r1", "big-model", "openai", Usage(7, 1), 0.5, at),
        RecordUsage(name, "r1", "cheap", "home", Usage(3, 2), None, at),
    ]
    appends = [
        AppendMessage(name, f"r{number // 4}", message, moment)
        for number, (message, moment) in enumerate(zip(messages, moments, strict=True))
    ]
    return [OpenSession(session), *appends, *usages]


def write_store(path: Path, *writes: Write, clock: Clock | None = None) -> None:
    """Write into the database of a home."""

    async def write() -> None:
        async with open_store(path, clock or SystemClock()) as store:
            await store.commit(*writes)

    anyio.run(write)
