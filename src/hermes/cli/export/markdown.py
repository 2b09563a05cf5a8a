"""A session as Markdown, to read, print or keep beside the work."""

import re
from collections.abc import Iterator
from datetime import datetime

from hermes.cli.export.jsonl import Copy
from hermes.cli.export.plain import flat, harmless
from hermes.schema.attachments import in_short
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
from hermes.schema.sessions import Session, Stored

SPEAKERS = {
    Trust.OWNER: "You",
    Trust.GUEST: "Guest",
    Trust.DATA: "Data",
    Trust.HOUSE: "Note to Hermes",
}
BROKEN_OFF = {
    Stop.LENGTH: "cut off at the longest answer",
    Stop.REFUSED: "refused by the provider",
    Stop.CANCELLED: "interrupted",
}

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|])")


def render(copy: Copy) -> Iterator[str]:
    """The lines of the document, without their ends."""
    yield f"# {_escaped(name_of(copy.session))}"
    yield ""
    for label, value in facts(copy.session):
        yield f"- {label}: {_escaped(value)}"
    for stored in copy.messages:
        yield from _message(stored)
    yield ""


def name_of(session: Session) -> str:
    return flat(session.title) or session.id


def facts(session: Session) -> list[tuple[str, str]]:
    """What is known about the session beside its words."""
    model = "/".join(part for part in (session.provider, session.model) if part)
    ended = "" if session.ended_at is None else moment(session.ended_at)
    reason = f" ({session.end_reason})" if session.end_reason and ended else ""
    pairs = [
        ("session", session.id if session.title else ""),
        ("begun", moment(session.started_at)),
        ("ended", ended + reason),
        ("source", session.source),
        ("model", model),
        ("folder", session.cwd),
        ("continues", session.parent or ""),
    ]
    return [(label, flat(value)) for label, value in pairs if value]


def moment(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M %Z}"


def fenced(text: str, language: str = "") -> list[str]:
    """A code block whose fence is longer than any run of backticks within."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, *harmless(text).split("\n"), fence]


def closed(text: str) -> list[str]:
    """The lines of a text; a code block left open is closed, so that it does not eat the rest."""
    lines = harmless(text).split("\n")
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


def _message(stored: Stored) -> Iterator[str]:
    match stored.message:
        case User(trust=trust) as said:
            yield from _heading(SPEAKERS[trust], stored)
            for part in in_short(said):
                yield from _part(part)
        case Assistant(parts=parts, stop=stop):
            yield from _heading("Hermes", stored)
            for part in parts:
                yield from _part(part)
            if stop in BROKEN_OFF:
                yield from ("", f"*({BROKEN_OFF[stop]})*")
        case Result(failed=failed) as result:
            yield ""
            yield "Failed:" if failed else "Result:"
            yield ""
            yield from fenced(text_of(result))
            for part in result.parts:
                if isinstance(part, Media):
                    yield from _part(part)


def _heading(who: str, stored: Stored) -> list[str]:
    return ["", f"## {who} ({stored.at.astimezone():%Y-%m-%d %H:%M})"]


def _part(part: Text | Media | Reasoning | ToolCall) -> list[str]:
    match part:
        case Text(text=text):
            return ["", *closed(text)]
        case Reasoning(text=text):
            return ["", *(f"> {line}".rstrip() for line in closed(text))]
        case Media(media_type=kind, name=name):
            return ["", f"[{_escaped(flat(name or kind))}]"]
        case ToolCall(name=name, args=args, broken=broken):
            shown = broken or bytes(args).decode("utf-8", "replace")
            return ["", f"Tool `{flat(name)}`:", "", *fenced(shown, "json")]


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
