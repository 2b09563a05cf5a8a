"""Export formats: lossless JSON lines, HTML and Markdown."""

import json
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec import Raw

from hermes.app import session_documents as documents
from hermes.app.session_export import SessionExport, decode, encode
from hermes.kit.errors import UsageError
from hermes.schema.messages import (
    Assistant,
    Media,
    Reasoning,
    Result,
    Stop,
    Text,
    ToolCall,
    Trust,
    Usage,
    User,
    text_of,
)
from hermes.schema.sessions import ModelUsage, Session, StoredMessage
from support.cases import cases
from support.stored_sessions import HOSTILE_TEXT, NOON

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
words = st.text(max_size=20)
names = st.text(min_size=1, max_size=8)
counts = st.integers(0, 2**40)
moments = st.integers(0, 4_000_000_000_000_000).map(lambda n: EPOCH + timedelta(microseconds=n))
texts = st.builds(Text, words)
media = st.builds(Media, words, words, words)
usages = st.builds(Usage, counts, counts, counts, counts, counts)
objects = st.dictionaries(words, st.none() | st.booleans() | st.integers() | words, max_size=3)
arguments = st.builds(
    lambda value, indent: Raw(json.dumps(value, indent=indent, ensure_ascii=False).encode()),
    objects,
    st.sampled_from([None, 2]),
)
calls = st.builds(ToolCall, names, names, arguments, st.just(""))
broken = st.builds(ToolCall, names, names, st.just(Raw(b"{}")), words)
thoughts = st.builds(Reasoning, words, st.none() | words)
messages = st.one_of(
    st.builds(User, names, st.lists(texts | media, max_size=3).map(tuple), st.sampled_from(Trust)),
    st.builds(
        Assistant,
        names,
        st.lists(texts | thoughts | calls | broken, max_size=4).map(tuple),
        st.sampled_from(Stop),
        usages,
        words,
        words,
    ),
    st.builds(
        Result, names, words, st.lists(texts | media, max_size=2).map(tuple), st.booleans(), words
    ),
)
stored = st.builds(StoredMessage, st.just(0), moments, words, messages)
sessions = st.builds(
    Session,
    id=st.text(min_size=1, max_size=30).filter(str.strip),
    started_at=moments,
    source=words,
    principal=words,
    key=words,
    title=words,
    model=words,
    provider=words,
    system=words,
    parent=st.none() | names,
    cwd=words,
    ended_at=st.none() | moments,
    end_reason=words,
    effort=words,
    personality=words,
)
uses = st.builds(
    ModelUsage,
    model=words,
    provider=words,
    calls=counts,
    usage=usages,
    cost=st.none() | st.floats(0, 9),
)
copies = st.builds(
    SessionExport,
    sessions,
    st.lists(stored, max_size=4),
    st.lists(uses, max_size=2),
    st.dictionaries(words, st.binary(max_size=9), max_size=2),
)


@given(copies)
def test_jsonl_round_trip_is_lossless(copy: SessionExport) -> None:
    line = encode(copy)
    assert line.count(b"\n") == 1
    assert decode(line, 1) == copy


@given(copies)
def test_jsonl_messages_are_chat_api_messages(copy: SessionExport) -> None:
    chat = json.loads(encode(copy))["messages"]
    roles = {User: "user", Assistant: "assistant", Result: "tool"}
    assert [each["role"] for each in chat] == [roles[type(s.message)] for s in copy.messages]
    for wire, row in zip(chat, copy.messages, strict=True):
        content = wire.get("content") or ""
        parts = [{"text": content}] if isinstance(content, str) else content
        assert "".join(part.get("text", "") for part in parts) == text_of(row.message)
        for call in wire.get("tool_calls", []):
            json.loads(call["function"]["arguments"])


NESTED = '{"a":' * 5_000 + "1" + "}" * 5_000


@cases(
    ("fields", "why"),
    [
        (f'"x": {NESTED}', "nested too deep"),
        (f'"messages": [{{"role": "user", "content": [{NESTED}]}}]', "nested too deep"),
        (f'"usage": [{{"calls": {"9" * 5_000}}}]', "out of range"),
        ('"ended_at": "0001-01-01T00:00:00+14:00"', "out of range"),
        ('"ended_at": 1e300', "is not a time"),
        (
            (
                '"messages": [{"role": "assistant", "hermes": {"parts": '
                '[{"type": "tool_call", "id": "c", "name": "t", "args": "{}},{"}]}}]'
            ),
            "trailing characters",
        ),
    ],
)
def test_invalid_field_is_reported(fields: str, why: str) -> None:
    line = f'{{"id": "s", "started_at": 0, {fields}}}'
    with pytest.raises(UsageError, match=f"Line 7 is not an exported session, .*{why}"):
        decode(line.encode(), 7)


def test_jsonl_format() -> None:
    answer = Assistant(
        "m2",
        (Text("Look."), ToolCall("c1", "terminal", Raw(b'{"command": "ls"}'))),
        Stop.TOOLS,
        Usage(7, 3),
        "big",
        "home",
    )
    copy = SessionExport(
        Session(id="s1", started_at=NOON, title="A title", system="Be kind."),
        [
            StoredMessage(1, NOON, "r1", User("m1", (Text("Hello"),))),
            StoredMessage(2, NOON, "r1", answer),
            StoredMessage(3, NOON, "r1", Result("m3", "c1", (Text("a b"),))),
        ],
        [ModelUsage(model="big", provider="home", calls=1, usage=Usage(7, 3), cost=None)],
    )
    assert json.loads(encode(copy)) == snapshot(
        {
            "id": "s1",
            "started_at": "2026-01-31T12:00:00Z",
            "format": "hermes-session/1",
            "source": "cli",
            "principal": "owner",
            "key": "",
            "title": "A title",
            "model": "",
            "provider": "",
            "system": "Be kind.",
            "parent": None,
            "cwd": "",
            "ended_at": None,
            "end_reason": "",
            "effort": "",
            "personality": "",
            "messages": [
                {
                    "role": "user",
                    "content": "Hello",
                    "hermes": {"id": "m1", "at": "2026-01-31T12:00:00Z", "run": "r1"},
                },
                {
                    "role": "assistant",
                    "content": "Look.",
                    "tool_calls": [
                        {
                            "id": "c1",
                            "function": {"name": "terminal", "arguments": '{"command": "ls"}'},
                            "type": "function",
                        }
                    ],
                    "hermes": {
                        "id": "m2",
                        "at": "2026-01-31T12:00:00Z",
                        "run": "r1",
                        "stop": "tools",
                        "usage": {
                            "input": 7,
                            "output": 3,
                            "cache_read": 0,
                            "cache_write": 0,
                            "reasoning": 0,
                        },
                        "model": "big",
                        "provider": "home",
                    },
                },
                {
                    "role": "tool",
                    "content": "a b",
                    "tool_call_id": "c1",
                    "hermes": {"id": "m3", "at": "2026-01-31T12:00:00Z", "run": "r1"},
                },
            ],
            "usage": [
                {
                    "model": "big",
                    "provider": "home",
                    "calls": 1,
                    "usage": {
                        "input": 7,
                        "output": 3,
                        "cache_read": 0,
                        "cache_write": 0,
                        "reasoning": 0,
                    },
                    "cost": None,
                }
            ],
            "files": {},
        }
    )


def test_export_of_another_program_is_imported() -> None:
    line = {
        "id": "20250101_000000_abcdef",
        "started_at": 1735689600.5,
        "source": "telegram",
        "title": None,
        "system_prompt": "Be kind.",
        "session_key": "agent:main:telegram:1",
        "message_count": 3,
        "messages": [
            {"role": "system", "content": "ignored: the prompt is known"},
            {"role": "user", "content": "Hi", "timestamp": 1735689601},
            {
                "role": "assistant",
                "content": None,
                "finish_reason": "tool_calls",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{x"}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "no"}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
        ],
    }
    copy = decode(json.dumps(line).encode(), 1)
    assert copy.session.system == "Be kind."
    assert copy.session.key == "agent:main:telegram:1"
    assert copy.session.started_at == datetime(2025, 1, 1, 0, 0, 0, 500_000, UTC)
    hello, call, result, picture = (row.message for row in copy.messages)
    assert (text_of(hello), text_of(result)) == ("Hi", "no")
    assert copy.messages[0].at == datetime(2025, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert isinstance(call, Assistant)
    assert call.stop is Stop.TOOLS
    assert call.calls[0].broken == "{x"
    assert "image_url" in text_of(picture)


@cases(
    "line",
    [
        b"nonsense",
        b"[]",
        b"{}",
        b'{"id": "", "started_at": 0}',
        b'{"id": "x", "started_at": 1e300}',
        b'{"id": "x", "started_at": "2026-01-01T00:00:00Z", "format": "hermes-session/99"}',
        b'{"id": "x", "started_at": 0, "messages": [{"content": "who said that?"}]}',
        b'{"id": "x", "started_at": 0, "title": "\\ud800"}',
        b'{"id": "x", "started_at": 0, "title": "\xff"}',
    ],
)
def test_invalid_line_is_reported_with_its_number(line: bytes) -> None:
    with pytest.raises(UsageError, match="Line 7 is not an exported session, so nothing was imp"):
        decode(line, 7)


def hostile_session() -> SessionExport:
    messages = [
        User("m1", (Text(HOSTILE_TEXT), Media("d", "image/png", "<cat>.png"))),
        Assistant(
            "m2",
            (
                Reasoning("# hm\n```"),
                Text("```python\nprint(1)"),
                ToolCall("c", "do`it", Raw(b'{"a": "```</pre>"}')),
            ),
            Stop.LENGTH,
        ),
        Result("m3", "c", (Text("````\n</details>"),), failed=True),
        User("m4", (Text("go on"),), Trust.PROGRAM),
    ]
    rows = [StoredMessage(n, NOON, "r", message) for n, message in enumerate(messages, 1)]
    return SessionExport(Session(id="s<1>", started_at=NOON, title=HOSTILE_TEXT), rows)


class Balance(HTMLParser):
    """Checks that all tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    "copies",
    [
        [hostile_session()],
        [hostile_session(), SessionExport(Session(id="s2", started_at=NOON), ())],
    ],
)
def test_html_page_is_balanced_and_escapes_content(copies: list[SessionExport]) -> None:
    lines = [*documents.page_start([copy.session for copy in copies])]
    lines += [line for copy in copies for line in documents.render_html(copy)]
    page = "\n".join([*lines, documents.PAGE_END])
    balance = Balance()
    balance.feed(page)
    balance.close()
    assert balance.open == []
    assert not balance.seen & {"script", "img", "link", "iframe"}
    assert "\x1b" not in page
    assert "&lt;script&gt;alert(&quot;x&quot;)" in page
    assert "日本語 🙂" in page
    assert "http://" not in page
    assert "https://" not in page


def test_markdown_structure_survives_hostile_text() -> None:
    text = "\n".join(documents.render_markdown(hostile_session()))
    assert "\x1b" not in text
    outside: list[str] = []
    fence = ""
    for line in text.split("\n"):
        bare = line.removeprefix("> ")
        if bare.startswith("```") and not fence:
            fence = bare.rstrip("abcdefghijklmnopqrstuvwxyz")
        elif fence and bare == fence:
            fence = ""
        elif not fence:
            outside.append(line)
    assert fence == ""
    headings = [line.split(" (")[0] for line in outside if line.startswith("## ")]
    assert headings == ["## You", "## Hermes", "## Note to Hermes"]
    assert "*(cut off at the length limit)*" in outside


def test_empty_session_can_be_exported() -> None:
    copy = SessionExport(Session(id="s", started_at=NOON), ())
    assert decode(encode(copy), 1) == msgspec.structs.replace(copy, messages=[], usage=[])
    assert "# s" in list(documents.render_markdown(copy))


def test_images_are_embedded_in_the_page() -> None:
    picture, drawing = Media("d1", "image/png", 'a "cat"'), Media("d2", "image/svg+xml", "plan")
    row = StoredMessage(1, NOON, "r", User("m", (picture, drawing)))
    copy = SessionExport(
        Session(id="s", started_at=NOON), [row], (), {"d1": b"PNG", "d2": b"<svg>"}
    )
    page = "\n".join(documents.render_html(copy))
    assert '<img alt="a &quot;cat&quot;" src="data:image/png;base64,UE5H">' in page
    assert "svg" not in page
