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

from hermes.cli.asking import asked_at_terminal
from hermes.cli.boundary import INTERRUPTED, complain
from hermes.cli.context import CliContext
from hermes.cli.editor import composed
from hermes.cli.export.plain import flat, harmless
from hermes.cli.line_editor import LineEditor, News
from hermes.cli.meanwhile import Overhearing
from hermes.cli.screen import Screen
from hermes.cli.signals import Heard, Terminated, raised_when_terminated, stopped_by_signals
from hermes.cli.start import gateway_lives, start_of
from hermes.cli.style import Style
from hermes.cli.taste_settings import taste_in
from hermes.cli.verbs.chat import as_text
from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.local.meet import meet
from hermes.local.partner import (
    Ask,
    Back,
    Interrupted,
    Leave,
    OnScreen,
    Partner,
    Plain,
    Question,
    Reply,
    Told,
)
from hermes.schema.errors import HermesError
from hermes.schema.events import Asked, Event, RunEnded, Said
from hermes.schema.messages import Media, Text
from hermes.tui.meanwhile import Manner, manner_of, meant
from hermes.tui.taste import switched

T = TypeVar("T")
_EMPTY = "\x1b[H\x1b[2J\x1b[3J"
_COPY = "\x1b]52;c;{}\x07"
"""How a terminal is asked to put something into its clipboard, also from far away."""


def talk(args: Namespace, context: CliContext) -> int:
    style = Style(context.stdout, context.env.get("NO_COLOR"), context.env.get("TERM"))
    start = structs.replace(start_of(args), person=True, screen=style.moves)
    home = context.home()
    with meet(home, context.env, start, partial(gateway_lives, home)) as partner:
        return Chat(partner, context, style).run()


class Chat:
    def __init__(self, partner: Partner, context: CliContext, style: Style) -> None:
        self._partner = partner
        self._context = context
        self._style = style
        self._taste = taste_in(context)
        history = context.home().path / "cli_history"
        self._editor = LineEditor(
            history, partner.greeting.commands, self._style, partner.greeting.folder
        )
        self._heard: Heard | None = None
        self._overhearing: Overhearing | None = None
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
            with raised_when_terminated():
                self._greet()
                with self._editor:
                    code = self._converse()
            self._say_goodbye()
        except Terminated as told:
            return told.exit_code
        return code

    def _converse(self) -> int:
        while True:
            news = False
            try:
                line = self._taken_up() or as_text(self._editor.read(self._partner.news))
            except News:
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
            complain(error)
        return True

    def _follow(self, reply: Reply, line: str) -> bool:
        match reply:
            case Plain():
                self._ask([Text(line)])
            case Told():
                self._tell(reply)
            case Back(text=text):
                self._print(harmless(text))
            case Ask(parts=parts, told=told):
                if told:
                    self._print(harmless(told))
                self._print(self._style("> " + self._shown(parts), "dim"))
                self._ask(parts)
            case OnScreen():
                self._adjust(reply)
            case Leave():
                return False
        return True

    def _tell(self, told: Told) -> None:
        if told.clear:
            self._context.stdout.write(_EMPTY)
        if told.clip:
            words = b64encode(told.clip.encode()).decode()
            self._context.stdout.write(_COPY.format(words))
        self._print(harmless(told.text))

    def _adjust(self, wish: OnScreen) -> None:
        match wish.what:
            case "redraw":
                self._context.stdout.write(_EMPTY)
            case "times":
                on = switched(wish.words, was=self._taste.times)
                self._taste = structs.replace(self._taste, times=on)
                self._print(f"Times are {'shown from now on' if on else 'not shown'}.")
            case "compose":
                if text := composed(wish.words, self._context.env).strip():
                    self._editor.keep(text)
                    self._print(self._style("> ", "bold") + harmless(text))
                    self._ask([Text(text)])
            case _:
                self._print("There is no status bar here.")

    def _ask(self, parts: Sequence[Text | Media]) -> None:
        """Run a turn. Ctrl+C ends it; a second Ctrl+C does not wait for it any more."""
        screen = Screen(
            self._context.stdout,
            self._style,
            SystemClock(),
            reasoning=self._style.on,
            taste=self._taste,
        )
        question = Question(tuple(parts))
        if self._taste.times:
            self._print(self._style(f"{SystemClock().now().astimezone():%H:%M}", "dim"))

        def show(event: Event) -> None:
            screen(event)
            if isinstance(event, Asked):
                self._answer(event)
            elif isinstance(event, Said) and self._steering.pop(event.message.id, None):
                self._print(self._style("(heard)", "dim"))

        self._given_up = False
        self._overhearing = Overhearing(self._context.stdin.fileno(), self._meanwhile)
        try:
            with self._overhearing.open():
                self._wait(lambda: self._partner.say(question, show))
        finally:
            self._overhearing = None
            if self._leaving:
                self._give_up()
            unheard, self._steering = list(self._steering.values()), {}
            if self._given_up:
                self._give_back([*self._unsaid, *unheard])
            else:
                self._waiting.extendleft(reversed(unheard))
        self._conclude(screen.ended)

    def _conclude(self, ended: RunEnded | None) -> None:
        spent = self._partner.report(ended).estimated_cost_usd if self._taste.cost else None
        if spent is not None:
            self._print(self._style(f"(cost: ${spent:.4f})", "dim"))
        if self._taste.bell:
            self._context.stdout.write("\a")
        if not self._taste.compact:
            self._print("")

    def _meanwhile(self, line: str) -> None:
        """Called by the thread that overhears."""
        manner, words = meant(as_text(line), manner_of(self._partner.state.busy))
        match manner:
            case Manner.INTERRUPT if words:
                self._waiting.append(words)
                self._partner.interrupt()
            case Manner.INTERRUPT:
                self._give_up()
                self._partner.interrupt()
            case Manner.STEER:
                word = new_id("msg")
                self._steering[word] = words
                self._partner.steer(word, words)
                self._whisper("(passed on)")
            case Manner.QUEUE | Manner.COLLECT:
                self._waiting.append(words)
                self._whisper("(queued)")

    def _whisper(self, text: str) -> None:
        """Not through the stream, which another thread writes to just now."""
        os.write(self._context.stdout.fileno(), (self._style(text, "dim") + "\n").encode())

    def _taken_up(self) -> str:
        """What was typed meanwhile and is said now, shown as if it were typed now."""
        if not self._waiting:
            return ""
        lines = [self._waiting.popleft()]
        if manner_of(self._partner.state.busy) is Manner.COLLECT:
            lines += self._waiting
            self._waiting.clear()
        for line in lines:
            self._editor.keep(line)
            self._print(self._style("> ", "bold") + flat(line))
        return "\n".join(lines)

    def _give_up(self) -> None:
        """Whoever interrupts by hand does not want to go on with what waits until now."""
        self._given_up = True
        self._unsaid += self._waiting
        self._waiting.clear()

    def _give_back(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._editor.keep(line)
            self._print(self._style(f"(not said, Up brings it back: {flat(line)})", "dim"))
        self._unsaid.clear()

    def _answer(self, asked: Asked) -> None:
        """Ask the person at the terminal; what they leave open is refused."""
        with self._overhearing.paused() if self._overhearing else nullcontext():
            words = asked_at_terminal(
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
        with stopped_by_signals(self._partner.interrupt, reminder.encode()) as heard:
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
            f"{self._style('hermes', 'bold')} · {greeting.model} · {flat(greeting.folder)}\n"
            + self._style("Type a request, or /help. Ctrl+C interrupts, Ctrl+D leaves.", "dim")
        )
        for who, words in greeting.recap:
            lead = f"{who}: " if who else "  "
            self._print(self._style(lead + one_line(flat(words), 200), "dim"))
        for warning in greeting.warnings:
            self._print(self._style(f"warning: {flat(warning)}", "yellow"))
        if (trouble := greeting.trouble) is not None:
            self._print(self._style(f"{flat(trouble.message)}\n{trouble.hint}", "yellow"))
        self._print("")

    def _shown(self, parts: Sequence[Text | Media]) -> str:
        words = " ".join(part.text for part in parts if isinstance(part, Text))
        return one_line(flat(words), self._style.columns - 2)

    def _say_goodbye(self) -> None:
        if self._partner.state.started:
            again = f"hermes -r {self._partner.state.session}"
            self._print(self._style(f"Go on later with: {again}", "dim"))

    def _print(self, text: str) -> None:
        self._context.stdout.write(text + "\n")
        self._context.stdout.flush()
