"""Render changes and proposals for people: author, reason, origin and diff."""

import difflib
from collections.abc import Iterator
from typing import cast

import msgspec

from hermes.ports.ledger import Change, ChangeOrigin, FileEdit, LedgerEntry, Proposal

SHORT_ID_LENGTH = 6
"""How many characters of an id are shown; ids differ at their end."""


def entry_line(entry: LedgerEntry) -> str:
    """One line of the list of changes."""
    change = entry.change
    state = "" if entry.state == "applied" else f"  ({entry.state})"
    when = change.at.astimezone().strftime("%Y-%m-%d %H:%M")
    sources = f"  [{', '.join(change.origin.sources)}]" if change.origin.sources else ""
    what = f"{change.kind}: {change.summary}{sources}{state}"
    return f"{short_id(change.id)}  {when}  {change.by:<8}  {what}"


def change_text(change: Change) -> str:
    """A change in full, with its diffs."""
    diffs = (line for edit in change.edits for line in edit_diff(edit))
    return "\n".join([*_header_lines(change, "by"), *diffs])


def _header_lines(item: Change | Proposal, verb: str) -> Iterator[str]:
    yield f"{short_id(item.id)}  {item.kind} {item.name}: {item.summary}"
    yield f"  {verb} {item.by}, {item.at.astimezone():%Y-%m-%d %H:%M}"
    if item.why:
        yield f"  because: {item.why}"
    if origin := origin_text(item.origin):
        yield f"  from: {origin}"


def origin_text(origin: ChangeOrigin) -> str:
    parts = [f"session {origin.session}"] if origin.session else []
    parts += [f"content from others: {', '.join(origin.sources)}"] if origin.sources else []
    return "; ".join(parts)


def edit_diff(edit: FileEdit) -> Iterator[str]:
    before, after = _text_lines(edit.before), _text_lines(edit.after)
    if before is None or after is None:
        yield f"  {edit.path}: not text"
        return
    old = edit.path if edit.before is not None else "(no file)"
    new = edit.path if edit.after is not None else "(no file)"
    yield from difflib.unified_diff(before, after, old, new, lineterm="")


def short_id(id: str) -> str:  # noqa: A002 the usual name
    return id[-SHORT_ID_LENGTH:].lower()


def _text_lines(data: bytes | None) -> list[str] | None:
    try:
        return [] if data is None else data.decode().splitlines()
    except UnicodeDecodeError:
        return None


def proposal_line(proposal: Proposal) -> str:
    """One line of the list of proposals."""
    origin = origin_text(proposal.origin)
    by = f"by {proposal.by}" + (f"; {origin}" if origin else "")
    return f"{short_id(proposal.id)}  {proposal.kind}: {proposal.summary}  [{by}]"


def proposal_text(proposal: Proposal) -> str:
    """A proposal in full, with the values of its request."""
    request = msgspec.json.decode(proposal.request, type=dict[str, object])
    # A change of memory has operations, a change of a skill has a request.
    values = [request.get(field) for field in ("operations", "request")]
    return "\n".join([*_header_lines(proposal, "proposed by"), *_value_lines(values)])


def _value_lines(value: object) -> Iterator[str]:
    """Yield names and values, in their original order."""
    if isinstance(value, list):
        for one in cast("list[object]", value):
            yield from _value_lines(one)
    elif isinstance(value, dict):
        for name, text in cast("dict[str, object]", value).items():
            if text:
                first, *more = str(text).splitlines() or [""]
                yield f"  {name}: {first}"
                yield from (f"    {line}" for line in more)
