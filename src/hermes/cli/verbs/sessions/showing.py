"""`sessions show`: what was said, with one line for each tool call."""

from collections.abc import Collection, Sequence

from hermes.cli.export.jsonl import Copy, encode
from hermes.cli.export.markdown import BROKEN_OFF, SPEAKERS, facts, name_of
from hermes.cli.export.plain import fit, flat, harmless
from hermes.cli.gist import describe_call
from hermes.cli.style import Style
from hermes.cli.verbs.sessions.desk import Desk
from hermes.cli.verbs.sessions.results import readable
from hermes.cli.verbs.sessions.when import clock_time, local
from hermes.kit.text import plural
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
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Stored
from hermes.session.endings import noted_ends
from hermes.session.recap import INTERRUPTED, cut_short
from hermes.store.sqlite import SqliteStore

_GIST = 100


def show(desk: Desk) -> int:
    desk.need_sessions()
    copy, cut = desk.with_store(lambda store: _look(store, desk.args.session))
    if desk.args.json:
        desk.paper.data(encode(copy))
    elif desk.args.raw:
        for stored in copy.messages:
            desk.paper.data(text_of(stored.message).encode() + b"\n")
    else:
        _Transcript(desk, full=desk.args.full).print(copy, cut)
    return 0


async def _look(store: SqliteStore, name: str) -> tuple[Copy, frozenset[int]]:
    copy = await fetch(store, name)
    going_on = await store.leases.held(copy.session.id)
    ends = await noted_ends(store, copy.session.id)
    return copy, cut_short(copy.messages, going_on=going_on, ends=ends)


async def fetch(store: SqliteStore, name: str) -> Copy:
    archive = store.seen_by(OWNER)
    session = await archive.find(name)
    messages = await archive.messages(session.id)
    return Copy(session, messages, await archive.usage(session.id))


class _Transcript:
    def __init__(self, desk: Desk, *, full: bool) -> None:
        self._paper = desk.paper
        self._style: Style = desk.paper.style
        self._full = full
        self._day = ""

    def print(self, copy: Copy, cut: Collection[int]) -> None:
        self._paper.line(self._style(name_of(copy.session), "bold"))
        for label, value in [*facts(copy.session), ("messages", f"{len(copy.messages):,}")]:
            self._paper.line(self._style(f"  {label:<9} {value}", "dim"))
        if not copy.messages:
            self._paper.line()
            self._paper.line("Nothing was said in this session.")
        for stored in copy.messages:
            self._message(stored)
            if stored.seq in cut:
                self._paper.line(self._style(f"  {INTERRUPTED}", "yellow"))

    def _message(self, stored: Stored) -> None:
        match stored.message:
            case User(parts=parts, trust=trust) as said:
                self._heading(SPEAKERS[trust], "green", stored)
                self._parts(parts if self._full else in_short(said))
            case Assistant(parts=parts, stop=stop):
                self._heading("Hermes", "cyan", stored)
                self._parts(parts)
                if stop in BROKEN_OFF:
                    self._paper.line(self._style(f"  ({BROKEN_OFF[stop]})", "yellow"))
            case Result() as result:
                self._result(result)

    def _heading(self, who: str, colour: str, stored: Stored) -> None:
        day, _, _ = local(stored.at).partition(" ")
        time = clock_time(stored.at) if day == self._day else local(stored.at)
        self._day = day
        self._paper.line()
        self._paper.line(f"{self._style(who, 'bold', colour)} {self._style(time, 'dim')}")

    def _parts(self, parts: Sequence[Text | Media | Reasoning | ToolCall]) -> None:
        for part in parts:
            match part:
                case Text(text=text):
                    self._block(text)
                case Reasoning(text=text):
                    if self._full:
                        self._block(text, "dim")
                case Media(media_type=kind, name=name):
                    self._paper.line(f"  [{flat(name or kind)}]")
                case ToolCall():
                    self._call(part)

    def _call(self, call: ToolCall) -> None:
        sign = self._style("●", "cyan")
        if self._full:
            self._paper.line(f"  {sign} {flat(call.name)}")
            self._block(call.broken or bytes(call.args).decode("utf-8", "replace"), "dim", "      ")
        else:
            self._paper.line(f"  {sign} {self._cut(flat(describe_call(call)))}")

    def _result(self, result: Result) -> None:
        sign = self._style("✗", "red") if result.failed else self._style("✓", "green")
        words = readable(text_of(result))
        if self._full:
            self._paper.line(f"    {sign}")
            self._block(words, "dim", "      ")
        else:
            lines = words.count("\n") + 1
            more = f" ({plural(lines, 'line')})" if lines > 1 else ""
            gist = self._cut(flat(words[: _GIST * 20]))
            self._paper.line(f"    {sign} {self._style(gist + more, 'dim')}")

    def _cut(self, text: str) -> str:
        return fit(text, min(_GIST, (self._paper.width or _GIST + 20) - 20))

    def _block(self, text: str, colour: str = "", indent: str = "  ") -> None:
        for line in harmless(text.strip("\n")).split("\n"):
            shown = self._style(line, colour) if colour else line
            self._paper.line(f"{indent}{shown}".rstrip())
