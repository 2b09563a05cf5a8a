"""Render a session as Markdown."""

import re
from collections.abc import Iterator
from datetime import datetime

from hermes.cli.verbs.sessions.formats.jsonl import SessionExport
from hermes.kit.terminal_text import escape_controls, single_line
from hermes.schema.attachments import display_parts
from hermes.schema.messages import (
    Assistant,
    Media,
    Reasoning,
    Result,
    Stop,
    Text,
    ToolCall,
    Trust,
    User,
    text_of,
)
from hermes.schema.sessions import Session, StoredMessage

SPEAKERS = {
    Trust.OWNER: "You",
    Trust.GUEST: "Guest",
    Trust.DATA: "Data",
    Trust.PROGRAM: "Note to Hermes",
}
STOP_NOTES = {
    Stop.LENGTH: "cut off at the length limit",
    Stop.REFUSED: "refused by the provider",
    Stop.CANCELLED: "interrupted",
}

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|])")


def render(copy: SessionExport) -> Iterator[str]:
    """The lines of the document, without line breaks."""
    yield f"# {_escaped(session_name(copy.session))}"
    yield ""
    for label, value in session_facts(copy.session):
        yield f"- {label}: {_escaped(value)}"
    for stored in copy.messages:
        yield from _message(stored)
    yield ""


def session_name(session: Session) -> str:
    return single_line(session.title) or session.id


def session_facts(session: Session) -> list[tuple[str, str]]:
    """Labelled metadata of a session."""
    model = "/".join(part for part in (session.provider, session.model) if part)
    ended = "" if session.ended_at is None else format_time(session.ended_at)
    reason = f" ({session.end_reason})" if session.end_reason and ended else ""
    pairs = [
        ("session", session.id if session.title else ""),
        ("started", format_time(session.started_at)),
        ("ended", ended + reason),
        ("source", session.source),
        ("model", model),
        ("folder", session.cwd),
        ("continues", session.parent or ""),
    ]
    return [(label, single_line(value)) for label, value in pairs if value]


def format_time(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M %Z}"


def code_block(text: str, language: str = "") -> list[str]:
    """A code block with a fence longer than any run of backticks in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, *escape_controls(text).split("\n"), fence]


def close_fences(text: str) -> list[str]:
    """The lines of a text, with an unclosed code block closed."""
    lines = escape_controls(text).split("\n")
    fence = ""
    for line in lines:
        found = _FENCE.fullmatch(line)
        if found is None:
            continue
        mark, rest = found[1], found[2].strip()
        if not fence:
            fence = mark
        elif mark.startswith(fence) and not rest:
            fence = ""
    return [*lines, fence] if fence else lines


def _message(stored: StoredMessage) -> Iterator[str]:
    match stored.message:
        case User(trust=trust) as message:
            yield from _heading(SPEAKERS[trust], stored)
            for part in display_parts(message):
                yield from _part(part)
        case Assistant(parts=parts, stop=stop):
            yield from _heading("Hermes", stored)
            for part in parts:
                yield from _part(part)
            if stop in STOP_NOTES:
                yield from ("", f"*({STOP_NOTES[stop]})*")
        case Result(failed=failed) as result:
            yield ""
            yield "Failed:" if failed else "Result:"
            yield ""
            yield from code_block(text_of(result))
            for part in result.parts:
                if isinstance(part, Media):
                    yield from _part(part)


def _heading(speaker: str, stored: StoredMessage) -> list[str]:
    return ["", f"## {speaker} ({stored.at.astimezone():%Y-%m-%d %H:%M})"]


def _part(part: Text | Media | Reasoning | ToolCall) -> list[str]:
    match part:
        case Text(text=text):
            return ["", *close_fences(text)]
        case Reasoning(text=text):
            return ["", *(f"> {line}".rstrip() for line in close_fences(text))]
        case Media(media_type=kind, name=name):
            return ["", f"[{_escaped(single_line(name or kind))}]"]
        case ToolCall(name=name, args=args, broken=broken):
            shown = broken or bytes(args).decode("utf-8", "replace")
            return ["", f"Tool `{single_line(name)}`:", "", *code_block(shown, "json")]


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
