"""Render sessions as Markdown, or as a self-contained HTML page."""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from pathlib import Path

from hermes.app.session_export import SessionExport
from hermes.kit.terminal_text import escape_controls, single_line
from hermes.kit.text import one_line
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
    display_parts,
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
    Stop.REFUSED: "rejected by the provider",
    Stop.CANCELLED: "interrupted",
}

_MAX_SUMMARY = 120
_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image types that are embedded; SVG is excluded because it can contain scripts."""
PAGE_END = "</body></html>"
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|])")


def render_markdown(copy: SessionExport) -> Iterator[str]:
    """The lines of the document, without line breaks."""
    yield f"# {_escape_markdown(session_name(copy.session))}"
    yield ""
    for label, value in session_facts(copy.session):
        yield f"- {label}: {_escape_markdown(value)}"
    for stored in copy.messages:
        yield from _markdown_message(stored)
    yield ""


def session_name(session: Session) -> str:
    """The title, or the id. Titles of jobs end with the id, because they are unique."""
    return single_line(session.title.removesuffix(f" ({session.id})")) or session.id


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
        ("directory", session.cwd),
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


def _markdown_message(stored: StoredMessage) -> Iterator[str]:
    match stored.message:
        case User(trust=trust) as message:
            yield from _heading(SPEAKERS[trust], stored)
            for part in display_parts(message):
                yield from _markdown_part(part)
        case Assistant(parts=parts, stop=stop):
            yield from _heading("Hermes", stored)
            for part in parts:
                yield from _markdown_part(part)
            if stop in STOP_NOTES:
                yield from ("", f"*({STOP_NOTES[stop]})*")
        case Result(failed=failed) as result:
            yield from ("", "Failed:" if failed else "Result:", "", *code_block(text_of(result)))
            for part in result.parts:
                if isinstance(part, Media):
                    yield from _markdown_part(part)


def _heading(speaker: str, stored: StoredMessage) -> list[str]:
    return ["", f"## {speaker} ({stored.at.astimezone():%Y-%m-%d %H:%M})"]


def _markdown_part(part: Text | Media | Reasoning | ToolCall) -> list[str]:
    match part:
        case Text(text=text):
            return ["", *close_fences(text)]
        case Reasoning(text=text):
            return ["", *(f"> {line}".rstrip() for line in close_fences(text))]
        case Media(media_type=kind, name=name):
            return ["", f"[{_escape_markdown(single_line(name or kind))}]"]
        case ToolCall(name=name, args=args, broken=broken):
            shown = broken or bytes(args).decode("utf-8", "replace")
            return ["", f"Tool `{single_line(name)}`:", "", *code_block(shown, "json")]


def _escape_markdown(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def page_start(sessions: Sequence[Session]) -> Iterator[str]:
    """The head of the page, and a table of contents when there is more than one session."""
    title = session_name(sessions[0]) if len(sessions) == 1 else f"{len(sessions):,} sessions"
    style = (Path(__file__).parent / "session_page.css").read_text(encoding="utf-8")
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield (
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
    )
    yield f"<title>{_escape_html(title)}</title>"
    yield f"<style>\n{style}</style></head><body>"
    if len(sessions) > 1:
        yield f"<nav><h1>{_escape_html(title)}</h1><ol>"
        for session in sessions:
            anchor, name = escape(session.id), _escape_html(session_name(session))
            started = escape(format_time(session.started_at))
            yield f'<li><a href="#{anchor}" dir="auto">{name}</a> <time>{started}</time></li>'
        yield "</ol></nav>"


def render_html(copy: SessionExport) -> Iterator[str]:
    """Render one session of the page."""
    session = copy.session
    yield f'<main id="{escape(session.id)}"><header>'
    yield f'<h1 dir="auto">{_escape_html(session_name(session))}</h1><dl>'
    for label, value in session_facts(session):
        yield f'<div><dt>{label}</dt><dd dir="auto">{_escape_html(value)}</dd></div>'
    yield "</dl></header>"
    if not copy.messages:
        yield '<p class="none">This session has no messages.</p>'
    for stored in copy.messages:
        yield from _html_message(stored, copy.files)
    yield "</main>"


def _html_message(stored: StoredMessage, files: Mapping[str, bytes]) -> Iterator[str]:
    match stored.message:
        case User(trust=trust) as message:
            shown = [_html_part(part, files) for part in display_parts(message)]
            yield from _article("user", SPEAKERS[trust], stored, shown)
        case Assistant(parts=parts, stop=stop):
            yield from _article(
                "assistant", "Hermes", stored, [_html_part(p, files) for p in parts]
            )
            if stop in STOP_NOTES:
                yield f'<p class="none">({STOP_NOTES[stop]})</p>'
        case Result(failed=failed) as result:
            text = text_of(result)
            summary = _escape_html(one_line(text, _MAX_SUMMARY)) or "nothing"
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


def _html_part(part: Text | Media | Reasoning | ToolCall, files: Mapping[str, bytes]) -> str:
    match part:
        case Text(text=text):
            return f'<div class="text" dir="auto">{_escape_html(text)}</div>'
        case Media():
            return _media(part, files)
        case Reasoning(text=text):
            body = f'<div class="text" dir="auto">{_escape_html(text)}</div>'
            return f'<details class="thought"><summary>Reasoning</summary>{body}</details>'
        case ToolCall(name=name, args=args, broken=broken):
            shown = broken or bytes(args).decode("utf-8", "replace")
            arguments = _escape_html(one_line(shown, _MAX_SUMMARY))
            summary = f"<b>{_escape_html(single_line(name))}</b> {arguments}"
            return f'<details class="call"><summary>{summary}</summary>{_block(shown)}</details>'


def _media(part: Media, files: Mapping[str, bytes]) -> str:
    name = _escape_html(single_line(part.name or part.media_type))
    data = files.get(part.digest)
    if data is None or part.media_type not in _IMAGE_TYPES:
        return f'<p class="media">{name}</p>'
    address = f"data:{part.media_type};base64,{b64encode(data).decode()}"
    return f'<p class="media"><img alt="{name}" src="{address}"></p>'


def _block(text: str) -> str:
    return f'<pre dir="auto">{_escape_html(text)}</pre>'


def _escape_html(text: str) -> str:
    return escape(escape_controls(text))
