"""Collect the lines of IRCv3 batches: history, and messages of several lines."""

from datetime import UTC, datetime

from msgspec import Struct, structs

from hermes.channels.irc.irc_line import IrcLine

MAX_OPEN = 100
MAX_LINES = 5_000
_HISTORY = frozenset({"chathistory", "znc.in/playback"})
_MULTILINE = frozenset({"multiline", "draft/multiline"})
_TARGETS = frozenset({"draft/chathistory-targets", "chathistory-targets"})
_CONCAT = ("multiline-concat", "draft/multiline-concat")


class History(Struct, frozen=True):
    """Earlier messages, oldest first."""

    target: str
    lines: tuple[IrcLine, ...]


class HistoryTargets(Struct, frozen=True):
    """Chats in which something was written."""

    names: tuple[str, ...]


class _Batch(Struct):
    kind: str
    opened: IrcLine
    lines: list[IrcLine]


class Batches:
    """Turns the lines of one connection into single messages and whole histories."""

    def __init__(self) -> None:
        self._open: dict[str, _Batch] = {}

    def add(self, line: IrcLine) -> IrcLine | History | HistoryTargets | None:
        """Return what is complete with this line; None if more is needed."""
        if line.command == "BATCH" and line.params:
            return self._begin_or_end(line)
        batch = self._open.get(line.tags.get("batch", ""))
        if batch is None:
            return line
        if len(batch.lines) < MAX_LINES:
            batch.lines.append(line)
        return None

    def _begin_or_end(self, line: IrcLine) -> IrcLine | History | HistoryTargets | None:
        sign, name = line.params[0][:1], line.params[0][1:]
        if sign == "+":
            kind = line.param(1)
            # Other kinds of lines mean the same inside a batch as outside.
            if kind in _HISTORY | _MULTILINE | _TARGETS and len(self._open) < MAX_OPEN:
                self._open[name] = _Batch(kind, line, [])
            return None
        batch = self._open.pop(name, None)
        if batch is None:
            return None
        if batch.kind in _HISTORY:
            return History(batch.opened.param(2), tuple(batch.lines))
        if batch.kind in _TARGETS:
            return HistoryTargets(tuple(target.param(1) for target in batch.lines))
        joined = _joined(batch)
        return self.add(joined) if joined is not None else None


def _joined(batch: _Batch) -> IrcLine | None:
    """One message of all the lines; its id is that of the batch."""
    if not batch.lines:
        return None
    text = ""
    for number, line in enumerate(batch.lines):
        concat = any(name in line.tags for name in _CONCAT)
        text += line.last if concat or not number else f"\n{line.last}"
    first = batch.lines[0]
    tags = {name: value for name, value in first.tags.items() if name != "batch"}
    tags |= batch.opened.tags
    return structs.replace(
        first,
        params=(first.param(0), text),
        source=batch.opened.source or first.source,
        tags=tags,
    )


def time_of(line: IrcLine) -> datetime | None:
    """Return when the server received the message, if it says so."""
    try:
        at = datetime.fromisoformat(line.tags.get("time", ""))
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def timestamp(at: datetime) -> str:
    text = at.astimezone(UTC).isoformat(timespec="milliseconds")
    return f"timestamp={text.removesuffix('+00:00')}Z"
