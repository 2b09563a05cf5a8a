"""Queue, steer and interrupt: the order in which typed lines are processed."""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from hermes.kit.ids import new_id
from hermes.schema.errors import HermesError
from hermes.schema.messages import Text, User, shell_attachment, typed_text
from hermes.schema.shell import ShellResult
from hermes.schema.terminal import (
    NotACommand,
    QuitReply,
    ResumedReply,
    ScreenReply,
    SubmitReply,
    TextReply,
)
from hermes.tui.chat_deps import WorkerThread
from hermes.tui.client import CANCELLED, MessageParts, TuiClient
from hermes.tui.display_text import chat_hint
from hermes.tui.images import ImageChips, MessageImages
from hermes.tui.options import BusyMode, mode_of_line, parse_busy_mode


class ConversationView(Protocol):
    """The screen that shows a conversation."""

    async def show_user_message(self, text: str) -> None: ...

    async def show_note(self, text: str, kind: str, typed: str = "") -> None:
        """`typed` is the command it replies to."""
        ...

    async def show_reply(self, reply: TextReply, typed: str) -> None: ...

    async def show_resumed(self, resumed: str, typed: str) -> None:
        """The conversation continues in another session."""
        ...

    async def adjust(self, action: ScreenReply, typed: str) -> None:
        """Perform an action on the screen."""
        ...

    def mark_undone(self, turns: int) -> None:
        """Mark the last turns of this session as undone."""
        ...

    async def run_turn(self, parts: MessageParts, images: Sequence[str]) -> None:
        """Run a turn to its end. Raises `HermesError`."""
        ...

    async def run_shell(self, command: str) -> ShellResult:
        """Run a command in the user's shell and show its output. Raises `HermesError`."""
        ...

    def return_text(self, text: str) -> None:
        """Return the text to the prompt."""
        ...

    def refresh_status(self) -> None: ...

    def quit(self) -> None: ...


class ConversationController:
    def __init__(
        self,
        client: TuiClient,
        turn_worker: WorkerThread,
        side_worker: WorkerThread,
        view: ConversationView,
        images: ImageChips,
    ) -> None:
        """`turn_worker` waits for turns and commands; `side_worker` stays free during a turn."""
        self._images = images
        self._shell_results: list[ShellResult] = []
        """Output of shell commands that the agent has not seen yet."""
        self._client = client
        self._turn_worker = turn_worker
        self._side_worker = side_worker
        self._view = view
        self._queue: deque[str] = deque()
        self._urgent = 0
        """Number of queued lines that go before the others."""
        self._steering: dict[str, str] = {}
        """Steering messages not yet received by the turn, by id."""
        self._sent_steering: set[str] = set()
        self._in_turn = False
        self._aborted = False
        self.open = False
        """Whether the client is open; lines wait until then."""
        self.busy = False

    @property
    def queued(self) -> tuple[str, ...]:
        return tuple(self._queue)

    @property
    def steering(self) -> tuple[str, ...]:
        return tuple(self._steering.values())

    @property
    def default_mode(self) -> BusyMode:
        """The default mode for lines entered during a turn."""
        return parse_busy_mode(self._client.state.busy_mode)

    def add(self, line: str, mode: BusyMode | None = None) -> None:
        """Submit a line; during a turn according to `mode` or the default mode."""
        if not self.busy:
            self._queue.append(line)
            self._view.refresh_status()
            return
        mode, text = mode_of_line(line, mode or self.default_mode)
        match mode:
            case BusyMode.INTERRUPT if text:
                self._queue.insert(self._urgent, text)
                self._urgent += 1
                self._client.interrupt()
            case BusyMode.INTERRUPT:
                self.interrupt()
            case BusyMode.STEER if self._in_turn and not self._find_images(text).paths:
                self._steering[new_id("msg")] = text
            case BusyMode.STEER | BusyMode.QUEUE | BusyMode.COLLECT:
                self._queue.append(text)
        self._view.refresh_status()

    def steering_received(self, message_id: str) -> str | None:
        """The turn received a message: return its text if it was sent from here."""
        return self._steering.pop(message_id, None)

    def pop_last(self) -> str | None:
        """Remove and return the last queued line."""
        line = self._queue.pop() if self._queue else None
        self._urgent = min(self._urgent, len(self._queue))
        self._view.refresh_status()
        return line

    def interrupt(self) -> None:
        """Stop the turn and return the queued lines to the prompt."""
        self._aborted = True
        if self._queue:
            self._view.return_text("\n".join(self._queue))
            self._queue.clear()
            self._urgent = 0
            self._view.refresh_status()
        if self.open:
            self._client.interrupt()

    async def start(self) -> None:
        """The client is open: process the lines entered so far."""
        self.open = True
        await self.run_queued()

    async def run_queued(self) -> None:
        """Process queued lines until none is left."""
        if not self.open:
            return
        if self.busy:
            await self._send_steering()
            return
        self.busy = True
        try:
            while self._queue:
                await self._process(self._next())
        finally:
            self.busy = False
            self._view.refresh_status()

    async def check_news(self) -> None:
        """Run a turn if a report is pending."""
        if self.busy or not self.open:
            return
        self.busy = True
        try:
            if await self._turn_worker.run(self._client.has_news):
                await self._run_turn(())
        except HermesError as error:
            await self._show_error(error)
        finally:
            self.busy = False
            self._view.refresh_status()
        await self.run_queued()

    def _next(self) -> str:
        """The next line, or in collect mode all lines up to a command."""
        lines = [self._queue.popleft()]
        if self.default_mode is BusyMode.COLLECT and not _is_command(lines[0]):
            while self._queue and not _is_command(self._queue[0]):
                lines.append(self._queue.popleft())
        self._urgent = max(self._urgent - len(lines), 0)
        return "\n".join(lines)

    async def _send_steering(self) -> None:
        """Send steering messages that were not sent yet."""
        for message_id, text in list(self._steering.items()):
            if message_id not in self._sent_steering:
                self._sent_steering.add(message_id)
                try:
                    await self._side_worker.run(partial(self._client.steer, message_id, text))
                except HermesError as error:
                    await self._show_error(error)

    async def _process(self, line: str) -> None:
        self._view.refresh_status()
        try:
            # A line with a slash may be a command; the client decides.
            if _is_slash(line):
                await self._run_command(line)
            elif _is_command(line):
                self._shell_results.append(await self._view.run_shell(line.strip()[1:].strip()))
            else:
                await self._submit_line(line)
        except HermesError as error:
            await self._show_error(error, line if _is_command(line) else "")

    async def _show_error(self, error: HermesError, typed: str = "") -> None:
        if error.code == CANCELLED:
            await self._view.show_note("Interrupted.", "warning")
        else:
            hint = f"\n{chat_hint(error.hint)}" if error.hint else ""
            await self._view.show_note(f"{error}{hint}", "error", typed)

    async def _run_command(self, line: str) -> None:
        reply = await self._turn_worker.run(lambda: self._client.command(line))
        match reply:
            case NotACommand():
                await self._submit_line(line)
            case TextReply():
                self._view.mark_undone(reply.undone)
                await self._view.show_reply(reply, line)
            case ResumedReply(message=resumed):
                await self._view.show_resumed(resumed, line)
            case SubmitReply(parts=parts, notice=resumed, undone=undone):
                self._view.mark_undone(undone)
                shown = typed_text(User("", parts))
                typed = shown in {"", line}
                if resumed or not typed:
                    await self._view.show_note(resumed, "reply", "" if typed else line)
                await self._submit(parts, line if typed else shown)
            case ScreenReply():
                await self._view.adjust(reply, line)
            case QuitReply():
                self._view.quit()

    async def _submit_line(self, line: str) -> None:
        """Submit a message with its images and what was printed in the shell before it."""
        message = self._find_images(line)
        parts = (Text(message.text), *shell_attachment(self._shell_results))
        self._shell_results.clear()
        await self._submit(parts, message.text, message.paths)

    def _find_images(self, line: str) -> MessageImages:
        return self._images.resolve(line, self._client.greeting.folder)

    async def _submit(self, parts: MessageParts, shown: str, images: Sequence[str] = ()) -> None:
        await self._view.show_user_message(shown)
        await self._run_turn(parts, images)

    async def _run_turn(self, parts: MessageParts, images: Sequence[str] = ()) -> None:
        """Unreceived steering is queued, or returned to the prompt after an interrupt."""
        self._in_turn, self._aborted = True, False
        try:
            await self._view.run_turn(parts, images)
        finally:
            self._in_turn = False
            unreceived = list(self._steering.values())
            self._steering.clear()
            self._sent_steering.clear()
            if unreceived and self._aborted:
                self._view.return_text("\n".join(unreceived))
            else:
                self._queue.extendleft(reversed(unreceived))
                self._urgent += len(unreceived)
            self._view.refresh_status()


def _is_slash(line: str) -> bool:
    return line.lstrip().startswith("/")


def _is_command(line: str) -> bool:
    """A slash command or, after `!`, one for the shell."""
    text = line.strip()
    return _is_slash(line) or (text.startswith("!") and len(text) > 1)
