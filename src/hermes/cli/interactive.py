"""A plain chat: the main thread reads lines, a loop in another thread runs the turns.

That way the line editor works as in any shell, and Ctrl+C is an ordinary
KeyboardInterrupt here: the first one ends the turn, the next one the chat.
"""

import logging
import os
from argparse import Namespace
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError, Future, wait
from typing import TYPE_CHECKING, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from hermes.app.build import App, open_app
from hermes.cli.boundary import INTERRUPTED, complain, grumble
from hermes.cli.context import CliContext
from hermes.cli.export.plain import flat, harmless
from hermes.cli.line_editor import LineEditor
from hermes.cli.screen import Screen
from hermes.cli.signals import Terminated, raised_when_terminated
from hermes.cli.start import choices, restore
from hermes.cli.style import Style
from hermes.cli.verbs.chat import as_text
from hermes.commands.command import Ask, Context, Leave, Reply, Told
from hermes.commands.registry import is_command, standard_commands
from hermes.kit.text import one_line
from hermes.schema.errors import HermesError
from hermes.schema.messages import Media, Text
from hermes.session.conversation import recap

if TYPE_CHECKING:
    from hermes.schema.events import Outcome

log = logging.getLogger(__name__)
T = TypeVar("T")
NOTICEABLE = 0.5
"""Seconds after which a person wonders whether Ctrl+C was heard."""
PATIENCE = 5.0
"""Seconds that a turn is given to end when the process is told to."""


def talk(args: Namespace, context: CliContext) -> int:
    with start_blocking_portal() as portal:
        opening = open_app(context.home(), context.env, choices(args))
        with portal.wrap_async_context_manager(opening) as app:
            portal.call(restore, args, app, context)
            return Chat(app, portal, context).run()


class Chat:
    def __init__(self, app: App, portal: BlockingPortal, context: CliContext) -> None:
        self._app = app
        self._portal = portal
        self._context = context
        self._commands = standard_commands()
        self._desk = Context(app.conversation, app.models, app)
        self._style = Style(context.stdout, context.env.get("NO_COLOR"), context.env.get("TERM"))
        names = [*self._commands.names, "help"]
        self._editor = LineEditor(app.home.path / "cli_history", names, self._style)
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
            try:
                line = as_text(self._editor.read())
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
            if line.strip() and not self._obey(line):
                return 0

    def _obey(self, line: str) -> bool:
        """One line; False when it was the last one. No mishap in it ends the chat."""
        try:
            if not is_command(line):
                self._ask([Text(line)])
                return True
            return self._follow(self._wait(self._start(self._commands.run, self._desk, line)))
        except CancelledError:
            self._print(self._style("Interrupted.", "yellow"))
        except HermesError as error:
            self._context.stdout.flush()
            complain(error)
        except Exception as error:
            log.exception("a line of the chat failed")
            self._context.stdout.flush()
            where = self._app.home.logs / "errors.log"
            grumble(f"hermes: internal error: {type(error).__name__}: {error}\n  See {where}\n")
        return True

    def _follow(self, reply: Reply) -> bool:
        match reply:
            case Told(text=text):
                self._print(harmless(text))
            case Ask(parts=parts):
                self._print(self._style("> " + self._shown(parts), "dim"))
                self._ask(parts)
            case Leave():
                return False
        return True

    def _ask(self, parts: Sequence[Text | Media]) -> None:
        """Run a turn. Ctrl+C ends it; a second Ctrl+C does not wait for it any more."""
        screen = Screen(
            self._context.stdout, self._style, self._app.clock, reasoning=self._style.on
        )

        async def say() -> "Outcome":
            return await self._app.conversation.say(parts, screen)

        self._wait(self._start(say))
        self._print("")

    def _start(self, work: Callable[..., Awaitable[T]], *given: object) -> "Future[T]":
        return self._portal.start_task_soon(work, *given)

    def _wait(self, work: "Future[T]") -> T:
        try:
            return work.result()
        except KeyboardInterrupt:
            self._leaving = True
            self._end(work)
            return self._unless_leaving(work)
        except Terminated:
            self._end(work)
            wait([work], PATIENCE)
            raise

    def _end(self, work: "Future[T]") -> None:
        """A turn is interrupted, so that it ends in order; any other work is cancelled."""
        if not self._portal.call(self._app.conversation.interrupt):
            work.cancel()

    def _unless_leaving(self, work: "Future[T]") -> T:
        """Wait for the end of what was interrupted; what hangs is left behind with the process.

        Everything that matters is on disk, and child processes end with their owner.
        """
        try:
            if not wait([work], NOTICEABLE).done:
                self._print(self._style("Stopping. Ctrl+C again leaves at once.", "dim"))
            return work.result()
        except KeyboardInterrupt:
            self._print("")
            os._exit(INTERRUPTED)

    def _greet(self) -> None:
        trouble = self._find_model()
        session = self._app.conversation.session
        folder, model = flat(session.cwd), self._app.models.current(session)
        self._print(
            f"{self._style('hermes', 'bold')} · {model} · {folder}\n"
            + self._style("Type a request, or /help. Ctrl+C interrupts, Ctrl+D leaves.", "dim")
        )
        if self._app.conversation.started:
            rows = self._portal.call(self._app.conversation.messages)
            for who, words in recap(rows, 3):
                self._print(self._style(f"{who}: {one_line(flat(words), 200)}", "dim"))
        for warning in self._app.warnings:
            self._print(self._style(f"warning: {flat(warning)}", "yellow"))
        if trouble is not None:
            self._print(self._style(f"{flat(str(trouble))}\n{trouble.hint}", "yellow"))
        self._print("")

    def _find_model(self) -> HermesError | None:
        """Look for the model before the first question, so that what is shown is true."""
        try:
            self._portal.call(self._app.models.model_for, self._app.conversation.session)
        except HermesError as error:
            return error
        return None

    def _shown(self, parts: Sequence[Text | Media]) -> str:
        words = " ".join(part.text for part in parts if isinstance(part, Text))
        return one_line(flat(words), self._style.columns - 2)

    def _say_goodbye(self) -> None:
        if self._app.conversation.started:
            again = f"hermes -r {self._app.conversation.session.id}"
            self._print(self._style(f"Go on later with: {again}", "dim"))

    def _print(self, text: str) -> None:
        self._context.stdout.write(text + "\n")
        self._context.stdout.flush()
