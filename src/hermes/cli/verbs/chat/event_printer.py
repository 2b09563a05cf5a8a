"""Show the events of a run at a terminal."""

from typing import TYPE_CHECKING, TextIO

from hermes.cli.output import Style, styled_diff_line
from hermes.cli.tool_summary import ResultSummary, describe_result
from hermes.cli.verbs.chat.kept_output import KeptOutput
from hermes.cli.verbs.chat.listeners import Listener
from hermes.kit.clock import Clock
from hermes.kit.report_text import report_text
from hermes.kit.terminal_text import escape_controls, fit, single_line
from hermes.schema.call_label import call_label
from hermes.schema.events import (
    Event,
    MessageAdded,
    Notice,
    Outcome,
    QuestionAnswered,
    QuestionAsked,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    StreamReset,
    TextDelta,
    ToolProgress,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Message, Result, ToolCall, Trust, text_of
from hermes.schema.questions import TERMINAL_ORIGIN, Question
from hermes.tui.display_text import chat_hint
from hermes.tui.options import DEFAULT_OPTIONS, DisplayOptions
from hermes.tui.todo_list import TodoList

if TYPE_CHECKING:
    from hermes.cli.markdown import MarkdownPrinter

MAX_NEWS = 160
"""Characters shown of a message that the user did not type."""
MIN_SHOWN_SECONDS = 0.5
"""Minimum duration of a call in seconds for it to be shown."""


class EventPrinter(Listener):
    """Prints streamed text, and a line per tool call and result."""

    def __init__(
        self,
        out: TextIO,
        style: Style,
        clock: Clock,
        options: DisplayOptions = DEFAULT_OPTIONS,
        *,
        kept: KeptOutput,
    ) -> None:
        """`kept` receives outputs that are only partly shown, and the todo list."""
        super().__init__(out)
        self._kept = kept
        self._display_options = options
        self._style = style
        self._clock = clock
        # Without colors, reasoning would look like the answer.
        self._reasoning = style.has_color and options.reasoning
        self._markdown: MarkdownPrinter | None = None
        self._mode = ""
        self._running: dict[str, tuple[ToolCall, float]] = {}
        self._last_call = ""
        self._asked_at = 0.0
        self._shown_notice = ""
        """The last notice about a retry, until something else is shown."""
        self._requested: dict[str, ToolCall] = {}
        """Requested calls that have neither started nor finished."""

    def show(self, event: Event) -> None:
        if not isinstance(event, Notice | StreamReset):
            self._shown_notice = ""
        match event:
            case TextDelta(text=text):
                self._stream("text", text)
            case ReasoningDelta(text=text):
                self._think(text)
            case StreamReset() | Notice() | QuestionAsked() | QuestionAnswered():
                self._note(event)
            case ToolStarted(call=call):
                self._show_call(call)
            case ToolProgress(text=text):
                self._show_hint(text.rstrip().rpartition("\n")[2])
            case MessageAdded(message=message):
                self._show_message(message)
            case RunEnded(reason=reason, outcome=outcome):
                failed = outcome is Outcome.FAILED
                self._add_note(f"✗ {chat_hint(reason)}" if failed and reason else reason, failed)
            case RunStarted():
                self._show_thinking()
        self._out.flush()

    def _note(self, event: StreamReset | Notice | QuestionAsked | QuestionAnswered) -> None:
        match event:
            case StreamReset(reason=reason):
                self._add_note(f"({reason}; starting the answer again)")
                self._shown_notice = reason
            case Notice(text=text, passing=True):
                self._show_passing(text)
            case Notice(text=text, refused=refused):
                self._add_note(f"✗ {text}" if refused else f"({text})", refused)
            case QuestionAsked(question=question):
                self._asked_at = self._clock.monotonic()
                self._show_question(question)
            case QuestionAnswered(answer=answer):
                self._forget_wait()
                self._add_note("" if answer else "(no answer in time)")

    def _forget_wait(self) -> None:
        """Exclude the time a person took from the duration of a call."""
        waited = self._clock.monotonic() - self._asked_at
        self._running = {id_: (call, at + waited) for id_, (call, at) in self._running.items()}

    def _show_question(self, question: Question) -> None:
        """Show the question, the exact command or text it is about, and the reasons."""
        self._print_line(self._style(self._style.wrap_text(single_line(question.text)), "yellow"))
        for line in question.subject.splitlines():
            self._print_line("    " + escape_controls(line))
        # The origin is obvious in the same terminal.
        origin = "" if question.origin == TERMINAL_ORIGIN else question.origin
        for name, text in (("why", question.reason), ("for", origin)):
            if text:
                line = self._style.wrap_text(f"  {name}: {single_line(text)}", " " * 7)
                self._print_line(self._style(line, "dim"))

    def _show_message(self, message: Message) -> None:
        if isinstance(message, Result):
            self._result(message)
        elif isinstance(message, Assistant):
            self._requested = {call.id: call for call in message.calls}
            self._break()
        elif message.trust is Trust.DATA:
            # The turn was started by a message the user did not type: show it.
            self._break()
            self._print_line(self._style("● " + report_text(text_of(message), MAX_NEWS), "dim"))

    def _add_note(self, text: str, error: bool = False) -> None:
        self._break()
        if text:
            self._print_line(self._style(single_line(text), "red" if error else "yellow"))

    def _show_passing(self, text: str) -> None:
        """Show a transient notice; where lines cannot be redrawn, only the first of several."""
        if self._style.can_rewrite:
            self._break()
            self._show_hint(f"({text})")
        elif not self._shown_notice:
            self._add_note(f"({text})")
        self._shown_notice = text

    def _think(self, text: str) -> None:
        if self._reasoning:
            self._stream("reasoning", text)
        else:
            self._show_hint("thinking…")

    def _stream(self, mode: str, text: str) -> None:
        if self._mode not in {"", mode}:
            self._break()
        if not self._mode:
            text = text.lstrip("\n")
        if text:
            begins, self._mode = not self._mode, mode
            shown = escape_controls(text)
            if mode == "text" and (markdown := self._markdown_printer()) is not None:
                self._write_markdown(markdown, shown)
                return
            if begins:
                self._clear_hint()
            self._out.write(self._style(shown, "dim") if mode == "reasoning" else shown)

    def _markdown_printer(self) -> "MarkdownPrinter | None":
        """Return the Markdown renderer; None if answers are shown as they are."""
        if self._markdown is None and self._style.has_color and not self._display_options.raw:
            from hermes.cli.markdown import MarkdownPrinter

            self._markdown = MarkdownPrinter(self._style)
        return self._markdown

    def _write_markdown(self, markdown: "MarkdownPrinter", text: str) -> None:
        """Write complete blocks, and show the current line as a preview."""
        done = markdown.feed(text)
        self._clear_hint()
        self._out.write(done)
        self._out.write(self._hint_text(markdown.pending))

    def _break(self) -> None:
        """Start a new line unless already at the beginning of one."""
        if self._mode == "text" and self._markdown is not None:
            self._clear_hint()
            self._out.write(self._markdown.flush())
            self._mode = ""
        elif self._mode:
            self._out.write("\n")
            self._mode = ""
        else:
            self._clear_hint()

    def _print_line(self, text: str) -> None:
        self._break()
        self._out.write(text + "\n")

    def _show_hint(self, text: str) -> None:
        """Show a hint that the next output replaces, if the terminal can do that."""
        if self._style.can_rewrite and not self._mode:
            self._out.write(f"\r\x1b[K{self._hint_text(text)}")

    def _hint_text(self, text: str) -> str:
        return self._style(fit(single_line(text), self._style.columns - 1), "dim")

    def _show_thinking(self) -> None:
        """Show that the turn started, even on terminals where the hint cannot be replaced."""
        if self._style.is_terminal and not self._style.can_rewrite:
            self._out.write("thinking…\n")
        else:
            self._show_hint("thinking…")

    def _clear_hint(self) -> None:
        """Erase the hint and anything the terminal echoed there, such as `^C`."""
        if self._style.can_rewrite:
            self._out.write("\r\x1b[K")

    def _show_call(self, call: ToolCall) -> None:
        self._requested.pop(call.id, None)
        self._running[call.id] = (call, self._clock.monotonic())
        self._last_call = call.id
        self._print_line(f"{self._style('●', 'cyan')} {self._call_text(call, 2)}")

    def _call_text(self, call: ToolCall, taken: int) -> str:
        text = call_label(call, self._display_options.preview_length)
        return fit(text, self._style.columns - taken)

    def _result(self, result: Result) -> None:
        if call := self._requested.get(result.call):
            # The call was never started: show what was not run.
            self._show_call(call)
        call, _ = self._running.get(result.call, (None, 0.0))
        summary = self._summary(result, call)
        self._print_line(self._result_line(result, summary))
        room = self._style.columns - 4
        for line in summary.lines:
            shown = fit(escape_controls(line).expandtabs(), room)
            self._out.write("    " + self._style(shown, "dim") + "\n")
        for line in summary.diff if self._display_options.diffs else ():
            self._out.write("    " + styled_diff_line(line, self._style, room) + "\n")
        self._show_hint("thinking…")

    def _summary(self, result: Result, call: ToolCall | None) -> ResultSummary:
        name = call.name if call else ""
        if name == "todo" and result.shown and not result.failed:
            return self._todo_summary(TodoList.parse(result.shown))
        summary = describe_result(result, name, self._kept.hint)
        if summary.folded:
            self._kept.add(result.shown)
        return summary

    def _todo_summary(self, todo: TodoList) -> ResultSummary:
        """The list, if it has changed."""
        before, self._kept.todo = self._kept.todo, todo
        if todo == before:
            return ResultSummary(todo.progress)
        items, hidden = todo.around_current()
        rest = (f"… {hidden} more",) if hidden else ()
        return ResultSummary(todo.progress, (*(item.line for item in items), *rest))

    def _result_line(self, result: Result, summary: ResultSummary) -> str:
        call, began = self._running.pop(result.call, (None, self._clock.monotonic()))
        seconds = self._clock.monotonic() - began
        parts = [summary.head]
        if seconds >= MIN_SHOWN_SECONDS:
            parts.insert(0, f"{seconds:.1f} s")
        if call is not None and result.call != self._last_call:
            parts.insert(0, self._call_text(call, 40))
        text = fit(single_line(" · ".join(filter(None, parts))), self._style.columns - 4)
        sign = self._style("✗", "red") if result.failed else self._style("✓", "green")
        return f"  {sign} {self._style(text, 'dim')}".rstrip()
