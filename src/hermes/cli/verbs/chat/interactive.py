"""The line-mode chat: read a line, run the turn, print its events.

During a turn the first Ctrl+C stops the turn and the second one ends the chat; at the prompt
Ctrl+C is an ordinary KeyboardInterrupt, so that line editing works as in a shell. A line typed
during a turn interrupts it, is queued or steers it, depending on `/busy`.
"""

import os
import signal
from argparse import Namespace
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from hermes.cli.boundary import INTERRUPTED
from hermes.cli.context import CliContext
from hermes.cli.output import Style, styled_diff_line
from hermes.cli.verbs.chat import (
    conversation_options,
    decode_argument,
    has_gateway,
    load_display_options,
)
from hermes.cli.verbs.chat.event_printer import EventPrinter
from hermes.cli.verbs.chat.kept_output import KeptOutput
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
    terminal_attention,
)
from hermes.ipc.client import AgentClient, Interrupted, UserInput
from hermes.ipc.connect import connect
from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.kit.numbered_diff import numbered_diff
from hermes.kit.terminal_text import escape_controls, fit, single_line
from hermes.kit.text import one_line
from hermes.schema.errors import HermesError
from hermes.schema.events import Event, MessageAdded, QuestionAsked, RunEnded
from hermes.schema.messages import Media, Text, User, shell_attachment, typed_text
from hermes.schema.shell import ShellResult
from hermes.schema.terminal import (
    LineReply,
    NotACommand,
    QuitReply,
    RecentHistory,
    ResumedReply,
    ScreenAction,
    ScreenReply,
    SubmitReply,
    TextReply,
)
from hermes.tui.display_text import chat_hint, continued_jobs_text, lost_jobs_text
from hermes.tui.images import ImageChips
from hermes.tui.options import BusyMode, mode_of_line, parse_busy_mode, parse_toggle
from hermes.tui.todo_list import TodoList, last_todo_list

T = TypeVar("T")
_CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"
_COPY_SEQUENCE = "\x1b]52;c;{}\x07"
"""OSC 52: puts text into the terminal's clipboard, even over ssh."""


def run_chat(args: Namespace, context: CliContext) -> int:
    style = Style(context.stdout, context.env)
    start = structs.replace(conversation_options(args), person=True, screen=style.can_rewrite)
    home = context.home()
    with connect(home, context.env, start, partial(has_gateway, home)) as agent:
        return InteractiveChat(agent, context, style).run()


class InteractiveChat:
    def __init__(self, agent: AgentClient, context: CliContext, style: Style) -> None:
        self._agent = agent
        self._context = context
        self._style = style
        self._display_options = load_display_options(context)
        history = context.home().path / "cli_history"
        greeting = agent.greeting
        self._editor = LineEditor(history, tuple(greeting.commands), style, greeting.folder)
        self._received: ReceivedSignal | None = None
        self._background_reader: BackgroundReader | None = None
        self._queued: deque[str] = deque()
        """Lines typed during a turn that are still to be sent."""
        self._steering: dict[str, str] = {}
        """Steering messages that the turn has not received yet, by id."""
        self._dropped: list[str] = []
        """Lines that were queued when the turn was stopped; returned to the history afterwards."""
        self._images = ImageChips()
        self._chips: list[str] = []
        """Pasted images that go with the next message."""
        self._shell_results: list[ShellResult] = []
        self._kept = KeptOutput("/output shows them")
        self._stopped = False
        self._leaving = False
        """Ctrl+C was the last input; another one ends the chat."""
        self._warned = False
        """The last input was an attempt to quit that would end background tasks."""

    def run(self) -> int:
        try:
            with raise_on_terminate():
                self._greet()
                self._load_todo_list()
                self._show_todo_list()
                with self._editor:
                    code = self._converse()
            now = self._agent.state
            if now.background_jobs and not self._agent.unfinished_jobs:
                self._print(continued_jobs_text(now.background_jobs), "dim")
            if now.started:
                self._print(f"Resume: hermes -r {now.session}", "dim")
        except Terminated as terminated:
            return terminated.exit_code
        return code

    def _converse(self) -> int:
        while True:
            news = False
            try:
                line = self._next_queued()
                line = line or decode_argument(self._editor.read(self._agent.has_news))
            except NewsArrived:
                line, news = "", True
                self._print()
            except EOFError:
                self._print()
                if self._confirms_quit("Press Ctrl+D again to quit."):
                    return 0
                continue
            except KeyboardInterrupt:
                if self._ctrl_c_quits():
                    return INTERRUPTED
                continue
            self._leaving = False
            if not news and not line.strip():
                continue
            if self._handle_line(line):
                self._warned = False
            elif self._confirms_quit("Type /quit again, or press Ctrl+D, to quit."):
                return 0

    def _ctrl_c_quits(self) -> bool:
        """Whether Ctrl+C at the prompt ends the chat; the first one only says how to quit."""
        leaving, self._leaving = self._leaving, True
        how = "Press Ctrl+C again, Ctrl+D or type /quit to exit."
        if not self._confirms_quit(how):
            return False
        if not leaving:
            self._print(how, "dim")
        return leaving

    def _confirms_quit(self, how: str) -> bool:
        """Whether to quit now: the first attempt that would end background tasks only warns."""
        jobs = self._agent.unfinished_jobs
        if self._warned or not jobs:
            return True
        self._warned = True
        self._print(f"{lost_jobs_text(jobs)} {how}", "yellow")
        return False

    def _handle_line(self, line: str) -> bool:
        """Handle one line; False if it ends the chat. Errors are printed.

        An empty line runs a turn for messages that arrived from elsewhere.
        """
        try:
            # A line with a slash may be a command; the agent decides.
            if line.startswith("!") and line[1:].strip():
                self._run_shell(line[1:].strip())
                return True
            if not line.lstrip().startswith("/"):
                self._submit_line(line)
                return True
            session = self._agent.state.session
            reply = self._wait(lambda: self._agent.command(line))
            if self._agent.state.session != session:
                self._load_todo_list()
            return self._handle_reply(reply, line)
        except Interrupted:
            self._print("Interrupted.", "yellow")
        except HermesError as error:
            self._print_failure(error)
        return True

    def _load_todo_list(self) -> None:
        """Continue the todo list of the session that was resumed or begun."""
        try:
            history = self._agent.recent_history() if self._agent.state.started else RecentHistory()
        except HermesError as error:
            self._print_failure(error)
            return
        self._kept.todo = TodoList.parse(last_todo_list(history))

    def _show_todo_list(self) -> None:
        """Keep what is still to be done above the prompt."""
        if self._kept.todo.is_open:
            self._print(fit(self._kept.todo.summary, self._style.columns - 1), "dim")

    def _print_failure(self, error: HermesError) -> None:
        self._context.stdout.flush()
        style = Style(self._context.stderr, self._context.env)
        hint = f"\n  {escape_controls(chat_hint(error.hint))}" if error.hint else ""
        self._context.note(style(f"hermes: {escape_controls(str(error))}", "red") + hint)

    def _handle_reply(self, reply: LineReply, line: str) -> bool:
        match reply:
            case NotACommand():
                self._submit_line(line)
            case TextReply():
                self._print_reply(reply)
            case ResumedReply(text=text):
                self._print(escape_controls(text))
                self._show_todo_list()
            case SubmitReply(parts=parts, notice=text):
                if text:
                    self._print(escape_controls(text))
                if (typed := typed_text(User("", parts))) != line:
                    shown = one_line(single_line(typed), self._style.columns - 2)
                    self._print(f"> {shown}", "dim")
                self._run_turn(parts)
            case ScreenReply():
                self._handle_screen_reply(reply)
            case QuitReply():
                return False
        return True

    def _print_reply(self, reply: TextReply) -> None:
        if reply.clear:
            self._context.stdout.write(_CLEAR_SCREEN)
        if reply.clipboard:
            encoded = b64encode(reply.clipboard.encode()).decode()
            self._context.stdout.write(_COPY_SEQUENCE.format(encoded))
        if reply.is_diff:
            for line in numbered_diff(reply.text):
                self._print(styled_diff_line(line, self._style))
        else:
            self._print(escape_controls(reply.text))

    def _handle_screen_reply(self, reply: ScreenReply) -> None:
        match reply.action:
            case ScreenAction.REDRAW:
                self._context.stdout.write(_CLEAR_SCREEN)
            case ScreenAction.TIMESTAMPS:
                on = parse_toggle(reply.argument, current=self._display_options.times)
                self._display_options = structs.replace(self._display_options, times=on)
                self._print(f"Timestamps {'on' if on else 'off'}.")
            case ScreenAction.COMPOSE:
                from hermes.cli.editor import compose_text

                if text := compose_text(reply.argument, self._context.env).strip():
                    self._editor.add_to_history(text)
                    self._print(self._style("> ", "bold") + escape_controls(text))
                    self._run_turn([Text(text)])
            case ScreenAction.OUTPUT:
                from hermes.cli.pager import show_in_pager

                text = escape_controls(self._kept.output(int(reply.argument or "1")))
                if not self._style.can_rewrite or not show_in_pager(text, self._context.env):
                    self._print(text.rstrip("\n"))
            case ScreenAction.THEME:
                self._print("The line-mode chat uses the colors of the terminal.")
            case ScreenAction.PASTE:
                self._paste_image()
            case ScreenAction.STATUSBAR:
                self._print("The line-mode chat has no status bar.")

    def _paste_image(self) -> None:
        from hermes.cli.shell_escape import clipboard_image

        path = clipboard_image(self._context.env, self._context.home().cache / "pasted")
        self._chips.append(self._images.add(Path(path)))
        self._print(f"{self._chips[-1]} is sent with the next message.", "dim")

    def _submit_line(self, line: str) -> None:
        """Send a message with its images and the output of shell commands before it."""
        text = " ".join([*self._chips, line]) if line else ""
        message = self._images.resolve(text, self._agent.greeting.folder)
        parts = [Text(message.text), *shell_attachment(self._shell_results)] if text else []
        if text:
            self._chips.clear()
            self._shell_results.clear()
        self._run_turn(parts, message.paths)

    def _run_shell(self, command: str) -> None:
        """Run a command in the user's shell; Ctrl+C ends it."""
        from hermes.cli.shell_escape import UserShell

        shell = UserShell(self._context.env)

        def show(text: str) -> None:
            self._context.stdout.write(escape_controls(text))
            self._context.stdout.flush()

        with stop_on_signals(shell.interrupt, b""):
            done = shell.run(command, self._agent.greeting.folder, show)
        if not done.output.endswith("\n"):
            self._print()
        if done.exit_code:
            self._print(f"(exit code {done.exit_code})", "yellow")
        self._shell_results.append(done)

    def _run_turn(self, parts: Sequence[Text | Media], images: Sequence[str] = ()) -> None:
        """Run a turn. Ctrl+C stops it; a second Ctrl+C exits without waiting."""
        clock, options = SystemClock(), self._display_options
        printer = EventPrinter(self._context.stdout, self._style, clock, options, kept=self._kept)
        question = UserInput(tuple(parts), tuple(os.fsencode(path) for path in images))
        if options.times:
            self._print(f"{clock.now().astimezone():%H:%M}", "dim")

        def show(event: Event) -> None:
            printer(event)
            if isinstance(event, QuestionAsked):
                self._answer(event)
            elif isinstance(event, MessageAdded) and self._steering.pop(event.message.id, None):
                self._print("(received)", "dim")

        self._stopped = False
        fd = self._context.stdin.fileno()
        self._background_reader = reader = BackgroundReader(fd, self._handle_typed_line)
        try:
            with reader.open():
                self._wait(lambda: self._agent.submit(question, show))
        finally:
            self._background_reader = None
            if self._leaving:
                self._drop_queue()
            unreceived, self._steering = list(self._steering.values()), {}
            if self._stopped:
                self._return_lines([*self._dropped, *unreceived])
            else:
                self._queued.extendleft(reversed(unreceived))
        self._after_turn(printer.ended)

    def _after_turn(self, ended: RunEnded | None) -> None:
        if self._display_options.cost:
            cost = self._agent.usage_report(ended).estimated_cost_usd
            if cost is not None:
                self._print(f"(cost: ${cost:.4f})", "dim")
        self._show_todo_list()
        if self._display_options.bell:
            self._context.stdout.write("\a")
        if not self._display_options.compact:
            self._print()

    def _handle_typed_line(self, line: str) -> None:
        """Handle a line typed during a turn; called from the reader thread."""
        mode, text = mode_of_line(
            decode_argument(line), parse_busy_mode(self._agent.state.busy_mode)
        )
        match mode:
            case BusyMode.INTERRUPT if text:
                self._queued.append(text)
                self._agent.interrupt()
            case BusyMode.INTERRUPT:
                self._drop_queue()
                self._agent.interrupt()
            case BusyMode.STEER:
                message_id = new_id("msg")
                self._steering[message_id] = text
                self._agent.steer(message_id, text)
                self._show_hint("(sent)")
            case BusyMode.QUEUE | BusyMode.COLLECT:
                self._queued.append(text)
                self._show_hint("(queued)")

    def _show_hint(self, text: str) -> None:
        """Write to the descriptor, because another thread is using the stream."""
        os.write(self._context.stdout.fileno(), (self._style(text, "dim") + "\n").encode())

    def _next_queued(self) -> str:
        """The next line typed during the turn, printed as if typed now."""
        if not self._queued:
            return ""
        lines = [self._queued.popleft()]
        if parse_busy_mode(self._agent.state.busy_mode) is BusyMode.COLLECT:
            lines += self._queued
            self._queued.clear()
        for line in lines:
            self._editor.add_to_history(line)
            self._print(self._style("> ", "bold") + single_line(line))
        return "\n".join(lines)

    def _drop_queue(self) -> None:
        """Stopping a turn by hand also drops the queued lines."""
        self._stopped = True
        self._dropped += self._queued
        self._queued.clear()

    def _return_lines(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._editor.add_to_history(line)
            self._print(f"(not sent; press Up to edit: {single_line(line)})", "dim")
        self._dropped.clear()

    def _answer(self, event: QuestionAsked) -> None:
        """Ask at the terminal; no answer means denial."""

        def interrupted() -> bool:
            return self._received is not None and self._received.number is not None

        stdin, stdout = self._context.stdin, self._context.stdout
        with self._background_reader.paused() if self._background_reader else nullcontext():
            answer = ask_at_terminal(
                event.question,
                stdin,
                stdout,
                SystemClock(),
                attention=terminal_attention(self._context, self._style),
                interrupted=interrupted,
            )
        if answer is not None:
            self._agent.answer(event.question.id, answer)

    def _wait(self, work: Callable[[], T]) -> T:
        reminder = self._style("Stopping. Press Ctrl+C again to exit immediately.", "dim") + "\n"
        with stop_on_signals(self._agent.interrupt, reminder.encode()) as received:
            self._received = received
            try:
                return work()
            finally:
                self._received = None
                self._leaving = received.number is signal.SIGINT

    def _greet(self) -> None:
        greeting = self._agent.greeting
        for note in greeting.notes:
            self._context.note(f"hermes: {note}")
        self._print(
            f"{self._style('hermes', 'bold')} · {greeting.model} · {single_line(greeting.folder)}\n"
            + self._style("Type a message, or /help. Ctrl+C interrupts, Ctrl+D exits.", "dim")
        )
        for speaker, text in greeting.recap:
            prefix = f"{speaker}: " if speaker else "  "
            self._print(prefix + one_line(single_line(text), 200), "dim")
        for warning in greeting.warnings:
            self._print(f"warning: {single_line(warning)}", "yellow")
        if (trouble := greeting.trouble) is not None:
            self._print(f"{single_line(trouble.message)}\n{trouble.hint}", "yellow")
        self._print()

    def _print(self, text: str = "", color: str = "") -> None:
        self._context.print(self._style(text, color) if color else text)
        self._context.stdout.flush()
