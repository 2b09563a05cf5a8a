"""Sessions as one page that needs nothing else: no script, no font, no picture from outside."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from hermes.cli.export.jsonl import Copy
from hermes.cli.export.markdown import BROKEN_OFF, SPEAKERS, facts, moment, name_of
from hermes.cli.export.plain import flat, harmless
from hermes.kit.text import one_line
from hermes.schema.attachments import in_short
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
from hermes.schema.sessions import Session, Stored

_GIST = 120
_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What is shown in place; a vector image could hold more than a picture."""


def opening(sessions: Sequence[Session]) -> Iterator[str]:
    """The head of the page, and a table of contents when there is more than one session."""
    title = name_of(sessions[0]) if len(sessions) == 1 else f"{len(sessions):,} sessions"
    style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield (
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
    )
    yield f"<title>{_safe(title)}</title>"
    yield f"<style>\n{style}</style></head><body>"
    if len(sessions) > 1:
        yield f"<nav><h1>{_safe(title)}</h1><ol>"
        for session in sessions:
            anchor, name = escape(session.id), _safe(name_of(session))
            begun = escape(moment(session.started_at))
            yield f'<li><a href="#{anchor}" dir="auto">{name}</a> <time>{begun}</time></li>'
        yield "</ol></nav>"


def render(copy: Copy) -> Iterator[str]:
    """One session of the page."""
    session = copy.session
    yield f'<main id="{escape(session.id)}"><header>'
    yield f'<h1 dir="auto">{_safe(name_of(session))}</h1><dl>'
    for label, value in facts(session):
        yield f'<div><dt>{label}</dt><dd dir="auto">{_safe(value)}</dd></div>'
    yield "</dl></header>"
    if not copy.messages:
        yield '<p class="none">Nothing was said in this session.</p>'
    for stored in copy.messages:
        yield from _message(stored, copy.files)
    yield "</main>"


CLOSING = "</body></html>"


def _message(stored: Stored, files: Mapping[str, bytes]) -> Iterator[str]:
    match stored.message:
        case User(trust=trust) as said:
            told = [_part(part, files) for part in in_short(said)]
            yield from _article("user", SPEAKERS[trust], stored, told)
        case Assistant(parts=parts, stop=stop):
            yield from _article("assistant", "Hermes", stored, [_part(p, files) for p in parts])
            if stop in BROKEN_OFF:
                yield f'<p class="none">({BROKEN_OFF[stop]})</p>'
        case Result(failed=failed) as result:
            words = text_of(result)
            gist = _safe(one_line(words, _GIST)) or "nothing"
            kind = "result failed" if failed else "result"
            sign = "✗" if failed else "✓"
            yield f'<details class="{kind}"><summary>{sign} {gist}</summary>{_block(words)}'
            yield from (_media(part, files) for part in result.parts if isinstance(part, Media))
            yield "</details>"


def _article(kind: str, who: str, stored: Stored, parts: Sequence[str]) -> Iterator[str]:
    time = f'<time datetime="{stored.at.isoformat()}">{escape(moment(stored.at))}</time>'
    yield f'<article class="{kind}"><h2>{who} {time}</h2>'
    yield from parts
    yield "</article>"


def _part(part: Text | Media | Reasoning | ToolCall, files: Mapping[str, bytes]) -> str:
    match part:
        case Text(text=text):
            return f'<div class="text" dir="auto">{_safe(text)}</div>'
        case Media():
            return _media(part, files)
        case Reasoning(text=text):
            words = f'<div class="text" dir="auto">{_safe(text)}</div>'
            return f'<details class="thought"><summary>Reasoning</summary>{words}</details>'
        case ToolCall(name=name, args=args, broken=broken):
            shown = broken or bytes(args).decode("utf-8", "replace")
            gist = f"<b>{_safe(flat(name))}</b> {_safe(one_line(shown, _GIST))}"
            return f'<details class="call"><summary>{gist}</summary>{_block(shown)}</details>'


def _media(part: Media, files: Mapping[str, bytes]) -> str:
    name = _safe(flat(part.name or part.media_type))
    data = files.get(part.digest)
    if data is None or part.media_type not in _PICTURES:
        return f'<p class="media">{name}</p>'
    address = f"data:{part.media_type};base64,{b64encode(data).decode()}"
    return f'<p class="media"><img alt="{name}" src="{address}"></p>'


def _block(text: str) -> str:
    return f'<pre dir="auto">{_safe(text)}</pre>'


def _safe(text: str) -> str:
    return escape(harmless(text))
