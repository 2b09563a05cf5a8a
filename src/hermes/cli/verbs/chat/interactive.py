"""A plain chat: read a line, have it answered, show what happens.

While something is going on Ctrl+C ends it, and the next one the chat; at the prompt it is an
ordinary KeyboardInterrupt, so that the line editor works as in any shell. A line that is typed
while a turn runs interrupts it, waits for it or steers it, as `/busy` says.
"""

import os
import signal
from argparse import Namespace
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TypeVar

from msgspec import structs

from hermes.cli.boundary import INTERRUPTED, print_error
from hermes.cli.context import CliContext
from hermes.cli.editor import compose_text
from hermes.cli.output import Style
from hermes.cli.verbs.chat import decode_argument
from hermes.cli.verbs.chat.display_settings import load_display_options
from hermes.cli.verbs.chat.event_printer import EventPrinter
from hermes.cli.verbs.chat.options import conversation_options, has_gateway
from hermes.cli.verbs.chat.signals import (
    ReceivedSignal,
    Terminated,
    raise_on_terminate,
    stop_on_signals,
)
from hermes.cli.verbs.chat.terminal_input import (
    BackgroundReader,
    LineEditor,
    NewsArrived,
    ask_at_terminal,
)
from hermes.ipc.client import (
    AgentClient,
    CommandReply,
    Interrupted,
    NotACommand,
    QuitReply,
    ResumedReply,
    ScreenReply,
    SubmitReply,
    TextReply,
    UserInput,
)
from hermes.ipc.connect import connect
from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.kit.terminal_text import escape_controls, single_line
from hermes.kit.text import one_line
from hermes.schema.errors import HermesError
from hermes.schema.events import Event, MessageAdded, QuestionAsked, RunEnded
from hermes.schema.messages import Media, Text
from hermes.tui.busy_mode import BusyMode, mode_of_line, parse_busy_mode
from hermes.tui.display_options import toggle

T = TypeVar("T")
_CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"
_COPY_SEQUENCE = "\x1b]52;c;{}\x07"
"""How a terminal is asked to put something into its clipboard, also from far away."""


def run_chat(args: Namespace, context: CliContext) -> int:
    style = Style(context.stdout, context.env.get("NO_COLOR"), context.env.get("TERM"))
    start = structs.replace(conversation_options(args), person=True, screen=style.moves)
    home = context.home()
    with connect(home, context.env, start, partial(has_gateway, home)) as partner:
        return InteractiveChat(partner, context, style).run()


class InteractiveChat:
    def __init__(self, partner: AgentClient, context: CliContext, style: Style) -> None:
        self._partner = partner
        self._context = context
        self._style = style
        self._display_options = load_display_options(context)
        history = context.home().path / "cli_history"
        self._editor = LineEditor(
            history, partner.greeting.commands, self._style, partner.greeting.folder
        )
        self._heard: ReceivedSignal | None = None
        self._background_reader: BackgroundReader | None = None
        self._waiting: deque[str] = deque()
        """Lines that were typed meanwhile and are still to be said."""
        self._steering: dict[str, str] = {}
        """Words to the turn that it has not heard yet, by their ids."""
        self._unsaid: list[str] = []
        """Lines that waited when somebody gave the turn up, to be given back at its end."""
        self._given_up = False
        self._leaving = False
        """Ctrl+C was the last thing that was said: once more, and the chat is over."""

    def run(self) -> int:
        try:
            with raise_on_terminate():
                self._greet()
                with self._editor:
                    code = self._converse()
            self._print_resume_hint()
        except Terminated as told:
            return told.exit_code
        return code

    def _converse(self) -> int:
        while True:
            news = False
            try:
                line = self._next_queued() or decode_argument(self._editor.read(self._partner.news))
            except NewsArrived:
                line, news = "", True
                self._print("")
            except EOFError:
                self._print("")
                return 0
            except KeyboardInterrupt:
                if self._leaving:
                    return INTERRUPTED
                self._leaving = True
                self._print(self._style("Ctrl+C once more leaves; so do Ctrl+D and /quit.", "dim"))
                continue
            self._leaving = False
            if (news or line.strip()) and not self._obey(line):
                return 0

    def _obey(self, line: str) -> bool:
        """One line; False when it was the last one. What goes wrong in it does not end the chat.

        No words at all ask about what came in by itself.
        """
        try:
            # Only what begins with a slash can be a command; whether it is one, others know.
            if not line.lstrip().startswith("/"):
                self._ask([Text(line)] if line else [])
                return True
            return self._follow(self._wait(lambda: self._partner.command(line)), line)
        except Interrupted:
            self._print(self._style("Interrupted.", "yellow"))
        except HermesError as error:
            self._context.stdout.flush()
            print_error(error)
        return True

    def _follow(self, reply: CommandReply, line: str) -> bool:
        match reply:
            case NotACommand():
                self._ask([Text(line)])
            case TextReply():
                self._tell(reply)
            case ResumedReply(text=text):
                self._print(escape_controls(text))
            case SubmitReply(parts=parts, told=told):
                if told:
                    self._print(escape_controls(told))
                self._print(self._style("> " + self._shown(parts), "dim"))
                self._ask(parts)
            case ScreenReply():
                self._adjust(reply)
            case QuitReply():
                return False
        return True

    def _tell(self, told: TextReply) -> None:
        if told.clear:
            self._context.stdout.write(_CLEAR_SCREEN)
        if told.clip:
            words = b64encode(told.clip.encode()).decode()
            self._context.stdout.write(_COPY_SEQUENCE.format(words))
        self._print(escape_controls(told.text))

    def _adjust(self, wish: ScreenReply) -> None:
        match wish.what:
            case "redraw":
                self._context.stdout.write(_CLEAR_SCREEN)
            case "times":
                on = toggle(wish.words, was=self._display_options.times)
                self._display_options = structs.replace(self._display_options, times=on)
                self._print(f"Times are {'shown from now on' if on else 'not shown'}.")
            case "compose":
                if text := compose_text(wish.words, self._context.env).strip():
                    self._editor.keep(text)
                    self._print(self._style("> ", "bold") + escape_controls(text))
                    self._ask([Text(text)])
            case _:
                self._print("There is no status bar here.")

    def _ask(self, parts: Sequence[Text | Media]) -> None:
        """Run a turn. Ctrl+C ends it; a second Ctrl+C does not wait for it any more."""
        screen = EventPrinter(
            self._context.stdout,
            self._style,
            SystemClock(),
            reasoning=self._style.on,
            taste=self._display_options,
        )
        question = UserInput(tuple(parts))
        if self._display_options.times:
            self._print(self._style(f"{SystemClock().now().astimezone():%H:%M}", "dim"))

        def show(event: Event) -> None:
            screen(event)
            if isinstance(event, QuestionAsked):
                self._answer(event)
            elif isinstance(event, MessageAdded) and self._steering.pop(event.message.id, None):
                self._print(self._style("(heard)", "dim"))

        self._given_up = False
        self._background_reader = BackgroundReader(
            self._context.stdin.fileno(), self._handle_typed_line
        )
        try:
            with self._background_reader.open():
                self._wait(lambda: self._partner.say(question, show))
        finally:
            self._background_reader = None
            if self._leaving:
                self._give_up()
            unheard, self._steering = list(self._steering.values()), {}
            if self._given_up:
                self._give_back([*self._unsaid, *unheard])
            else:
                self._waiting.extendleft(reversed(unheard))
        self._after_turn(screen.ended)

    def _after_turn(self, ended: RunEnded | None) -> None:
        spent = (
            self._partner.report(ended).estimated_cost_usd if self._display_options.cost else None
        )
        if spent is not None:
            self._print(self._style(f"(cost: ${spent:.4f})", "dim"))
        if self._display_options.bell:
            self._context.stdout.write("\a")
        if not self._display_options.compact:
            self._print("")

    def _handle_typed_line(self, line: str) -> None:
        """Called by the thread that overhears."""
        manner, words = mode_of_line(
            decode_argument(line), parse_busy_mode(self._partner.state.busy)
        )
        match manner:
            case BusyMode.INTERRUPT if words:
                self._waiting.append(words)
                self._partner.interrupt()
            case BusyMode.INTERRUPT:
                self._give_up()
                self._partner.interrupt()
            case BusyMode.STEER:
                word = new_id("msg")
                self._steering[word] = words
                self._partner.steer(word, words)
                self._show_hint("(passed on)")
            case BusyMode.QUEUE | BusyMode.COLLECT:
                self._waiting.append(words)
                self._show_hint("(queued)")

    def _show_hint(self, text: str) -> None:
        """Not through the stream, which another thread writes to just now."""
        os.write(self._context.stdout.fileno(), (self._style(text, "dim") + "\n").encode())

    def _next_queued(self) -> str:
        """What was typed meanwhile and is said now, shown as if it were typed now."""
        if not self._waiting:
            return ""
        lines = [self._waiting.popleft()]
        if parse_busy_mode(self._partner.state.busy) is BusyMode.COLLECT:
            lines += self._waiting
            self._waiting.clear()
        for line in lines:
            self._editor.keep(line)
            self._print(self._style("> ", "bold") + single_line(line))
        return "\n".join(lines)

    def _give_up(self) -> None:
        """Whoever interrupts by hand does not want to go on with what waits until now."""
        self._given_up = True
        self._unsaid += self._waiting
        self._waiting.clear()

    def _give_back(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._editor.keep(line)
            self._print(self._style(f"(not said, Up brings it back: {single_line(line)})", "dim"))
        self._unsaid.clear()

    def _answer(self, asked: QuestionAsked) -> None:
        """Ask the person at the terminal; what they leave open is refused."""
        with self._background_reader.paused() if self._background_reader else nullcontext():
            words = ask_at_terminal(
                asked.question,
                self._context.stdin,
                self._context.stdout,
                SystemClock(),
                interrupted=lambda: self._heard is not None and self._heard.signal is not None,
            )
        if words is not None:
            self._partner.answer(asked.question.id, words)

    def _wait(self, work: Callable[[], T]) -> T:
        reminder = self._style("Stopping. Ctrl+C again leaves at once.", "dim") + "\n"
        with stop_on_signals(self._partner.interrupt, reminder.encode()) as heard:
            self._heard = heard
            try:
                return work()
            finally:
                self._heard = None
                self._leaving = heard.signal is signal.SIGINT

    def _greet(self) -> None:
        greeting = self._partner.greeting
        for note in greeting.notes:
            self._context.stderr.write(f"hermes: {note}\n")
        self._print(
            f"{self._style('hermes', 'bold')} · {greeting.model} · {single_line(greeting.folder)}\n"
            + self._style("Type a request, or /help. Ctrl+C interrupts, Ctrl+D leaves.", "dim")
        )
        for who, words in greeting.recap:
            lead = f"{who}: " if who else "  "
            self._print(self._style(lead + one_line(single_line(words), 200), "dim"))
        for warning in greeting.warnings:
            self._print(self._style(f"warning: {single_line(warning)}", "yellow"))
        if (trouble := greeting.trouble) is not None:
            self._print(self._style(f"{single_line(trouble.message)}\n{trouble.hint}", "yellow"))
        self._print("")

    def _shown(self, parts: Sequence[Text | Media]) -> str:
        words = " ".join(part.text for part in parts if isinstance(part, Text))
        return one_line(single_line(words), self._style.columns - 2)

    def _print_resume_hint(self) -> None:
        if self._partner.state.started:
            again = f"hermes -r {self._partner.state.session}"
            self._print(self._style(f"Go on later with: {again}", "dim"))

    def _print(self, text: str) -> None:
        self._context.stdout.write(text + "\n")
        self._context.stdout.flush()
