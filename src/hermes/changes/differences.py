"""A change as people read it: who, why, from whose words, and what became different."""

import difflib
from collections.abc import Iterator
from typing import cast

import msgspec

from hermes.changes.change import Change, Edit, Entry, Origin, Proposal

SHORT = 6
"""Letters of an id that are shown; its end is the part that differs."""


def one_line(entry: Entry) -> str:
    change = entry.change
    state = "" if entry.state == "applied" else f"  ({entry.state})"
    when = change.at.astimezone().strftime("%Y-%m-%d %H:%M")
    words = f"  [{', '.join(change.origin.words)}]" if change.origin.words else ""
    what = f"{change.kind}: {change.summary}{words}{state}"
    return f"{short(change.id)}  {when}  {change.by:<8}  {what}"


def in_full(change: Change) -> str:
    lines = [*_told_of(change, "by")]
    for edit in change.edits:
        lines.extend(diff(edit))
    return "\n".join(lines)


def _told_of(one: Change | Proposal, made: str) -> Iterator[str]:
    yield f"{short(one.id)}  {one.kind} {one.name}: {one.summary}"
    yield f"  {made} {one.by}, {one.at.astimezone():%Y-%m-%d %H:%M}"
    if one.why:
        yield f"  because: {one.why}"
    if origin := described(one.origin):
        yield f"  from: {origin}"


def described(origin: Origin) -> str:
    parts = [f"session {origin.session}"] if origin.session else []
    parts += [f"words of others: {', '.join(origin.words)}"] if origin.words else []
    return "; ".join(parts)


def diff(edit: Edit) -> Iterator[str]:
    before, after = _lines(edit.before), _lines(edit.after)
    if before is None or after is None:
        yield f"  {edit.path}: not text"
        return
    old = edit.path if edit.before is not None else "(no file)"
    new = edit.path if edit.after is not None else "(no file)"
    yield from difflib.unified_diff(before, after, old, new, lineterm="")


def short(id: str) -> str:  # noqa: A002 it is one
    return id[-SHORT:].lower()


def _lines(data: bytes | None) -> list[str] | None:
    try:
        return [] if data is None else data.decode().splitlines()
    except UnicodeDecodeError:
        return None


def waiting_line(proposal: Proposal) -> str:
    origin = described(proposal.origin)
    by = f"by {proposal.by}" + (f"; {origin}" if origin else "")
    return f"{short(proposal.id)}  {proposal.kind}: {proposal.summary}  [{by}]"


def proposed_in_full(proposal: Proposal) -> str:
    """All that would be done."""
    lines = [*_told_of(proposal, "proposed by")]
    wanted = msgspec.json.decode(proposal.request, type=dict[str, object])
    for field in ("operations", "request"):
        lines.extend(_listed(wanted.get(field)))
    return "\n".join(lines)


def _listed(value: object) -> Iterator[str]:
    """Names with values, in the order in which they were written down."""
    if isinstance(value, list):
        for one in cast("list[object]", value):
            yield from _listed(one)
    elif isinstance(value, dict):
        for name, text in cast("dict[str, object]", value).items():
            if text:
                first, *more = str(text).splitlines() or [""]
                yield f"  {name}: {first}"
                yield from (f"    {line}" for line in more)
