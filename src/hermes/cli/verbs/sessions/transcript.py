"""`sessions show`: print a session as a readable transcript, as JSON, or as raw text."""

from collections.abc import Collection, Sequence

from hermes.app.session_documents import SPEAKERS, STOP_NOTES, session_facts, session_name
from hermes.app.session_export import SessionExport, encode, load_session
from hermes.cli.dates import local_time
from hermes.cli.output import Style
from hermes.cli.verbs.sessions import SessionsAction
from hermes.kit.readable_result import readable_result
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

_MAX_SUMMARY = 100
_MAX_REPORT = 300
_MARGIN = 20
"""Columns for the indent, the marker and the number of lines."""


def show(action: SessionsAction) -> int:
    action.require_sessions()
    export, interrupted = action.with_store(lambda store: _load(store, action.args.session))
    if action.args.json:
        action.printer.data(encode(export))
    elif action.args.raw:
        for stored in export.messages:
            action.printer.data(text_of(stored.message).encode() + b"\n")
    else:
        _Transcript(action, full=action.args.full).print(export, interrupted)
    return 0


async def _load(store: Store, name: str) -> tuple[SessionExport, frozenset[int]]:
    export = await load_session(store, name)
    is_running = await store.leases.held(export.session.id)
    failures = await failure_reasons(store, export.session.id)
    return export, interrupted_at(export.messages, running=is_running, failures=failures)


class _Transcript:
    def __init__(self, action: SessionsAction, *, full: bool) -> None:
        self._printer = action.printer
        self._style: Style = action.printer.style
        self._full = full
        self._day = ""

    def print(self, export: SessionExport, interrupted: Collection[int]) -> None:
        self._printer.line(self._style(session_name(export.session), "bold"))
        count = ("messages", f"{len(export.messages):,}")
        for label, value in [*session_facts(export.session), count]:
            self._printer.line(self._style(f"  {label:<9} {value}", "dim"))
        if not export.messages:
            self._printer.line()
            self._printer.line("This session has no messages.")
        for stored in export.messages:
            self._message(stored)
            if stored.seq in interrupted:
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
        same_day = day == self._day
        self._day = day
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
        marker = self._style("●", "cyan")
        if self._full:
            self._printer.line(f"  {marker} {single_line(call.name)}")
            self._block(call.broken or bytes(call.args).decode("utf-8", "replace"), "dim", "      ")
        else:
            self._printer.line(f"  {marker} {self._shorten(call_label(call))}")

    def _result(self, result: Result) -> None:
        marker = self._style("✗", "red") if result.failed else self._style("✓", "green")
        text = readable_result(text_of(result))
        if self._full:
            self._printer.line(f"    {marker}")
            self._block(text, "dim", "      ")
        else:
            lines = len(text.splitlines())
            more = f" ({plural(lines, 'line')})" if lines > 1 else ""
            # Enough text for a summary, without processing a huge result.
            summary = self._shorten(single_line(text[: _MAX_SUMMARY * 20]))
            self._printer.line(f"    {marker} {self._style(summary + more, 'dim')}")

    def _shorten(self, text: str) -> str:
        width = (self._printer.width or _MAX_SUMMARY + _MARGIN) - _MARGIN
        return fit(text, max(min(_MAX_SUMMARY, width), 1))

    def _block(self, text: str, color: str = "", indent: str = "  ") -> None:
        for line in escape_controls(text.strip("\n")).split("\n"):
            shown = self._style(line, color) if color else line
            self._printer.line(f"{indent}{shown}".rstrip())
