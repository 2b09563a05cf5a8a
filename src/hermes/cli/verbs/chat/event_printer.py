"""A run as a person sees it: words as they come, a line for each call and what came of it."""

from typing import TextIO

from hermes.cli.output import Style
from hermes.cli.tool_summary import ResultSummary, describe_call, describe_result
from hermes.cli.verbs.chat.listeners import Listener
from hermes.kit.clock import Clock
from hermes.kit.terminal_text import escape_controls, fit, headline, single_line
from hermes.schema.events import (
    Event,
    MessageAdded,
    Notice,
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
from hermes.schema.questions import Question
from hermes.tui.display_options import DEFAULT_OPTIONS, DisplayOptions

MAX_NEWS = 160
"""Characters of what came in by itself."""
MIN_SHOWN_SECONDS = 0.5
"""Seconds from which on it is told how long a call took."""


class EventPrinter(Listener):
    def __init__(
        self,
        out: TextIO,
        style: Style,
        clock: Clock,
        *,
        reasoning: bool,
        taste: DisplayOptions = DEFAULT_OPTIONS,
    ) -> None:
        """Thoughts are shown where they can be told from words, and `taste` wants them."""
        super().__init__()
        self._display_options = taste
        self._out = out
        self._style = style
        self._clock = clock
        self._reasoning = reasoning and taste.reasoning
        self._mode = ""
        self._running: dict[str, tuple[ToolCall, float]] = {}
        self._last_call = ""
        self._wanted: dict[str, ToolCall] = {}
        """Calls that were neither begun nor answered yet."""

    def show(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                self._stream("text", text)
            case ReasoningDelta(text=text):
                self._think(text)
            case StreamReset() | Notice() | QuestionAsked() | QuestionAnswered():
                self._note(event)
            case ToolStarted(call=call):
                self._begin(call)
            case ToolProgress(text=text):
                self._show_hint(text.rstrip().rpartition("\n")[2])
            case MessageAdded(message=message):
                self._said(message)
            case RunEnded(reason=reason):
                self._add_note(reason)
            case RunStarted():
                self._begin_thinking()
        self._out.flush()

    def _note(self, event: StreamReset | Notice | QuestionAsked | QuestionAnswered) -> None:
        match event:
            case StreamReset(reason=reason):
                self._add_note(f"({reason}; starting the answer again)")
            case Notice(text=text):
                self._add_note(f"({text})")
            case QuestionAsked(question=question):
                self._asked(question)
            case QuestionAnswered(answer=answer):
                self._add_note("" if answer else "(nobody answered in time)")

    def _asked(self, question: Question) -> None:
        """All that is needed to decide; what would be done is shown exactly as it is."""
        self._line(self._style(self._style.wrapped(single_line(question.text)), "yellow"))
        for line in question.subject.splitlines():
            self._line("    " + escape_controls(line))
        for name, words in (("why", question.reason), ("for", question.origin)):
            if words:
                told = self._style.wrapped(f"  {name}: {single_line(words)}", " " * 7)
                self._line(self._style(told, "dim"))

    def _said(self, message: Message) -> None:
        if isinstance(message, Result):
            self._result(message)
        elif isinstance(message, Assistant):
            self._wanted = {call.id: call for call in message.calls}
            self._break()
        elif message.trust is Trust.DATA:
            # Something came in that nobody typed: without a word about it, the answer would puzzle.
            self._break()
            self._line(self._style("● " + headline(text_of(message), MAX_NEWS), "dim"))

    def _add_note(self, text: str) -> None:
        self._break()
        if text:
            self._line(self._style(single_line(text), "yellow"))

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
            if not self._mode:
                self._hush()
            self._mode = mode
            words = escape_controls(text)
            self._out.write(self._style(words, "dim") if mode == "reasoning" else words)

    def _break(self) -> None:
        """Go to the beginning of an empty line."""
        if self._mode:
            self._out.write("\n")
            self._mode = ""
        else:
            self._hush()

    def _line(self, text: str) -> None:
        self._break()
        self._out.write(text + "\n")

    def _show_hint(self, text: str) -> None:
        """A hint that the next output takes the place of; only where that is possible."""
        if self._style.moves and not self._mode:
            words = fit(single_line(text), self._style.columns - 1)
            self._out.write(f"\r\x1b[K{self._style(words, 'dim')}")

    def _begin_thinking(self) -> None:
        """Somebody who looks on is told, also where it cannot be taken back."""
        if self._style.watched and not self._style.moves:
            self._out.write("thinking…\n")
        else:
            self._show_hint("thinking…")

    def _hush(self) -> None:
        """Take back a hint, and what the terminal itself wrote there: a typed `^C`, say."""
        if self._style.moves:
            self._out.write("\r\x1b[K")

    def _begin(self, call: ToolCall) -> None:
        self._wanted.pop(call.id, None)
        self._running[call.id] = (call, self._clock.monotonic())
        self._last_call = call.id
        self._line(f"{self._style('●', 'cyan')} {self._described(call, 2)}")

    def _described(self, call: ToolCall, taken: int) -> str:
        return fit(
            single_line(describe_call(call, self._display_options.preview)),
            self._style.columns - taken,
        )

    def _result(self, result: Result) -> None:
        if call := self._wanted.get(result.call):
            # It was not run; without its line nobody knew what was not.
            self._begin(call)
        gist = describe_result(result)
        self._line(self._verdict(result, gist))
        for line in gist.lines if self._display_options.diffs or not gist.diff else ():
            words = fit(escape_controls(line).expandtabs(), self._style.columns - 4)
            self._out.write("    " + self._coloured(words, diff=gist.diff) + "\n")
        self._show_hint("thinking…")

    def _verdict(self, result: Result, gist: ResultSummary) -> str:
        call, began = self._running.pop(result.call, (None, self._clock.monotonic()))
        took = self._clock.monotonic() - began
        said = [gist.head]
        if took >= MIN_SHOWN_SECONDS:
            said.insert(0, f"{took:.1f} s")
        if call is not None and result.call != self._last_call:
            said.insert(0, self._described(call, 40))
        words = fit(single_line(" · ".join(filter(None, said))), self._style.columns - 4)
        sign = self._style("✗", "red") if result.failed else self._style("✓", "green")
        return f"  {sign} {self._style(words, 'dim')}".rstrip()

    def _coloured(self, line: str, *, diff: bool) -> str:
        if diff and line.startswith("+"):
            return self._style(line, "green")
        if diff and line.startswith("-"):
            return self._style(line, "red")
        return self._style(line, "dim")
