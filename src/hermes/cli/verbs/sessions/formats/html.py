"""Render sessions as a self-contained HTML page."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from hermes.cli.verbs.sessions.formats.jsonl import SessionExport
from hermes.cli.verbs.sessions.formats.markdown import (
    SPEAKERS,
    STOP_NOTES,
    format_time,
    session_facts,
    session_name,
)
from hermes.kit.terminal_text import escape_controls, single_line
from hermes.kit.text import one_line
from hermes.schema.attachments import display_parts
from hermes.schema.messages import (
    Assistant,
    Media,
    Reasoning,
    Result,
    Text,
    ToolCall,
    User,
    text_of,
)
from hermes.schema.sessions import Session, StoredMessage

_MAX_SUMMARY = 120
_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image types that are embedded; SVG is excluded because it can contain scripts."""


def page_start(sessions: Sequence[Session]) -> Iterator[str]:
    """The head of the page, and a table of contents when there is more than one session."""
    title = session_name(sessions[0]) if len(sessions) == 1 else f"{len(sessions):,} sessions"
    style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield (
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
    )
    yield f"<title>{_escape(title)}</title>"
    yield f"<style>\n{style}</style></head><body>"
    if len(sessions) > 1:
        yield f"<nav><h1>{_escape(title)}</h1><ol>"
        for session in sessions:
            anchor, name = escape(session.id), _escape(session_name(session))
            started = escape(format_time(session.started_at))
            yield f'<li><a href="#{anchor}" dir="auto">{name}</a> <time>{started}</time></li>'
        yield "</ol></nav>"


def render(copy: SessionExport) -> Iterator[str]:
    """Render one session of the page."""
    session = copy.session
    yield f'<main id="{escape(session.id)}"><header>'
    yield f'<h1 dir="auto">{_escape(session_name(session))}</h1><dl>'
    for label, value in session_facts(session):
        yield f'<div><dt>{label}</dt><dd dir="auto">{_escape(value)}</dd></div>'
    yield "</dl></header>"
    if not copy.messages:
        yield '<p class="none">This session has no messages.</p>'
    for stored in copy.messages:
        yield from _message(stored, copy.files)
    yield "</main>"


PAGE_END = "</body></html>"


def _message(stored: StoredMessage, files: Mapping[str, bytes]) -> Iterator[str]:
    match stored.message:
        case User(trust=trust) as message:
            shown = [_part(part, files) for part in display_parts(message)]
            yield from _article("user", SPEAKERS[trust], stored, shown)
        case Assistant(parts=parts, stop=stop):
            yield from _article("assistant", "Hermes", stored, [_part(p, files) for p in parts])
            if stop in STOP_NOTES:
                yield f'<p class="none">({STOP_NOTES[stop]})</p>'
        case Result(failed=failed) as result:
            text = text_of(result)
            summary = _escape(one_line(text, _MAX_SUMMARY)) or "nothing"
            kind = "result failed" if failed else "result"
            sign = "✗" if failed else "✓"
            yield f'<details class="{kind}"><summary>{sign} {summary}</summary>{_block(text)}'
            yield from (_media(part, files) for part in result.parts if isinstance(part, Media))
            yield "</details>"


def _article(kind: str, speaker: str, stored: StoredMessage, parts: Sequence[str]) -> Iterator[str]:
    time = f'<time datetime="{stored.at.isoformat()}">{escape(format_time(stored.at))}</time>'
    yield f'<article class="{kind}"><h2>{speaker} {time}</h2>'
    yield from parts
    yield "</article>"


def _part(part: Text | Media | Reasoning | ToolCall, files: Mapping[str, bytes]) -> str:
    match part:
        case Text(text=text):
            return f'<div class="text" dir="auto">{_escape(text)}</div>'
        case Media():
            return _media(part, files)
        case Reasoning(text=text):
            body = f'<div class="text" dir="auto">{_escape(text)}</div>'
            return f'<details class="thought"><summary>Reasoning</summary>{body}</details>'
        case ToolCall(name=name, args=args, broken=broken):
            shown = broken or bytes(args).decode("utf-8", "replace")
            summary = (
                f"<b>{_escape(single_line(name))}</b> {_escape(one_line(shown, _MAX_SUMMARY))}"
            )
            return f'<details class="call"><summary>{summary}</summary>{_block(shown)}</details>'


def _media(part: Media, files: Mapping[str, bytes]) -> str:
    name = _escape(single_line(part.name or part.media_type))
    data = files.get(part.digest)
    if data is None or part.media_type not in _IMAGE_TYPES:
        return f'<p class="media">{name}</p>'
    address = f"data:{part.media_type};base64,{b64encode(data).decode()}"
    return f'<p class="media"><img alt="{name}" src="{address}"></p>'


def _block(text: str) -> str:
    return f'<pre dir="auto">{_escape(text)}</pre>'


def _escape(text: str) -> str:
    return escape(escape_controls(text))
