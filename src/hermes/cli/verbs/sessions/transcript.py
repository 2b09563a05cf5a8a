"""`sessions show`: print a transcript, with one line per tool call."""

from collections.abc import Collection, Sequence

from hermes.app.session_documents import SPEAKERS, STOP_NOTES, session_facts, session_name
from hermes.app.session_export import SessionExport, encode, load_session
from hermes.cli.dates import local_time
from hermes.cli.output import Style
from hermes.cli.verbs.sessions import SessionsAction
from hermes.kit.report_text import report_text
from hermes.kit.terminal_text import escape_controls, fit, single_line
from hermes.kit.text import plural
from hermes.ports.store import Store
from hermes.schema.call_label import call_label
from hermes.schema.messages import (
    Assistant,
    Media,
    Reasoning,
    Result,
    Text,
    ToolCall,
    Trust,
    User,
    display_parts,
    text_of,
)
from hermes.schema.sessions import StoredMessage
from hermes.session.recap import INTERRUPTED, interrupted_at
from hermes.session.recorder import failure_reasons
from hermes.tui.readable_result import readable_result

_MAX_SUMMARY = 100
_MAX_REPORT = 300


def show(action: SessionsAction) -> int:
    action.require_sessions()
    copy, cut = action.with_store(lambda store: _load(store, action.args.session))
    if action.args.json:
        action.printer.data(encode(copy))
    elif action.args.raw:
        for stored in copy.messages:
            action.printer.data(text_of(stored.message).encode() + b"\n")
    else:
        _Transcript(action, full=action.args.full).print(copy, cut)
    return 0


async def _load(store: Store, name: str) -> tuple[SessionExport, frozenset[int]]:
    copy = await load_session(store, name)
    going_on = await store.leases.held(copy.session.id)
    ends = await failure_reasons(store, copy.session.id)
    return copy, interrupted_at(copy.messages, running=going_on, failures=ends)


class _Transcript:
    def __init__(self, action: SessionsAction, *, full: bool) -> None:
        self._printer = action.printer
        self._style: Style = action.printer.style
        self._full = full
        self._day = ""

    def print(self, copy: SessionExport, cut: Collection[int]) -> None:
        self._printer.line(self._style(session_name(copy.session), "bold"))
        for label, value in [*session_facts(copy.session), ("messages", f"{len(copy.messages):,}")]:
            self._printer.line(self._style(f"  {label:<9} {value}", "dim"))
        if not copy.messages:
            self._printer.line()
            self._printer.line("This session has no messages.")
        for stored in copy.messages:
            self._message(stored)
            if stored.seq in cut:
                self._printer.line(self._style(f"  {INTERRUPTED}", "yellow"))

    def _message(self, stored: StoredMessage) -> None:
        match stored.message:
            case User(trust=Trust.PROGRAM) if not self._full:
                return
            case User(parts=parts, trust=trust) as message:
                self._heading(SPEAKERS[trust], "green", stored)
                if trust is Trust.DATA and not self._full:
                    self._block(report_text(text_of(message), _MAX_REPORT))
                else:
                    self._parts(parts if self._full else display_parts(message))
            case Assistant(parts=parts, stop=stop):
                self._heading("Hermes", "cyan", stored)
                self._parts(parts)
                if stop in STOP_NOTES:
                    self._printer.line(self._style(f"  ({STOP_NOTES[stop]})", "yellow"))
            case Result() as result:
                self._result(result)

    def _heading(self, speaker: str, color: str, stored: StoredMessage) -> None:
        day, _, _ = local_time(stored.at).partition(" ")
        same_day, self._day = day == self._day, day
        time = f"{stored.at.astimezone():%H:%M}" if same_day else local_time(stored.at)
        self._printer.line()
        self._printer.line(f"{self._style(speaker, 'bold', color)} {self._style(time, 'dim')}")

    def _parts(self, parts: Sequence[Text | Media | Reasoning | ToolCall]) -> None:
        for part in parts:
            match part:
                case Text(text=text):
                    self._block(text)
                case Reasoning(text=text):
                    if self._full:
                        self._block(text, "dim")
                case Media(media_type=kind, name=name):
                    self._printer.line(f"  [{single_line(name or kind)}]")
                case ToolCall():
                    self._call(part)

    def _call(self, call: ToolCall) -> None:
        sign = self._style("●", "cyan")
        if self._full:
            self._printer.line(f"  {sign} {single_line(call.name)}")
            self._block(call.broken or bytes(call.args).decode("utf-8", "replace"), "dim", "      ")
        else:
            self._printer.line(f"  {sign} {self._cut(call_label(call))}")

    def _result(self, result: Result) -> None:
        sign = self._style("✗", "red") if result.failed else self._style("✓", "green")
        text = readable_result(text_of(result))
        if self._full:
            self._printer.line(f"    {sign}")
            self._block(text, "dim", "      ")
        else:
            lines = text.count("\n") + 1
            more = f" ({plural(lines, 'line')})" if lines > 1 else ""
            summary = self._cut(single_line(text[: _MAX_SUMMARY * 20]))
            self._printer.line(f"    {sign} {self._style(summary + more, 'dim')}")

    def _cut(self, text: str) -> str:
        return fit(text, min(_MAX_SUMMARY, (self._printer.width or _MAX_SUMMARY + 20) - 20))

    def _block(self, text: str, color: str = "", indent: str = "  ") -> None:
        for line in escape_controls(text.strip("\n")).split("\n"):
            shown = self._style(line, color) if color else line
            self._printer.line(f"{indent}{shown}".rstrip())
