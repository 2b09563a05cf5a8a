"""Show the progress of a run in one post that is edited in place at a limited rate."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct

from hermes.gateway.rate_limiter import RateLimiter
from hermes.gateway.rendering.length import keep_end, length_in
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.tasks import DeadlineExceeded, run_with_timeout, sleep_unless
from hermes.kit.text import one_line
from hermes.ports.channel import (
    Channel,
    NotSent,
    Outbound,
    Receipt,
    SupportsEdit,
    SupportsTyping,
    Throttled,
)
from hermes.schema.events import (
    Event,
    MessageAdded,
    Notice,
    QuestionAsked,
    StreamReset,
    TextDelta,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Text, User
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

MAX_LINES = 8
MAX_FAILURES = 3
"""After this many failed edits in a row, stop updating; the answer is still sent."""

MAX_NARRATION = 200
"""Characters of the text the model writes between two steps."""

RETRY_SHARE = 0.25
"""How soon an edit for which there was no capacity is tried again, as a share of the interval."""

PLACEHOLDER = "…"
ANSWER_BELOW = "The answer is below."
NO_ANSWER = "Nothing to reply."


class ProgressTiming(Struct, frozen=True):
    """Seconds between edits, between typing signals, and as timeout of a platform call.

    A post older than `max_age` does not become the answer: a new post is sent, which notifies
    people. 0 disables that.
    """

    edit: float = 1.0
    typing: float = 4.0
    timeout: float = 20.0
    max_age: float = 0.0


class ProgressDisplay(Struct, frozen=True, kw_only=True):
    """What is shown of a running turn: its tools, and its text while it grows.

    `preview`: characters of tool arguments. `narration`: text between steps. `typing`: the typing
    indicator. `cursor`: appended to growing text.
    """

    tools: bool = True
    text: bool = True
    preview: int = 60
    narration: bool = False
    typing: bool = True
    cursor: str = ""


class ProgressMessage:
    """The progress of one run. `handle_event` never blocks; `freeze` ends it immediately.

    `on_posted` and `on_final_edit` receive the new post and its final text. `has_pending`: whether
    older messages are not delivered to this chat yet; they will appear below the post, so the newer
    answer must not replace it. `only_asks`: whether a tool only asks a question, which its own post
    shows. `held`: whether this worker still has the messages that the run answers.
    """

    def __init__(
        self,
        *,
        channel: Channel,
        address: Address,
        clock: Clock,
        timing: ProgressTiming,
        display: ProgressDisplay,
        rate_limiter: RateLimiter,
        on_posted: Callable[[str], Awaitable[None]],
        on_final_edit: Callable[[str, str], None],
        has_pending: Callable[[], bool],
        only_asks: Callable[[str], bool],
        held: Callable[[], Awaitable[bool]],
    ) -> None:
        self._held = held
        self._channel = channel
        self._edits: SupportsEdit | None = channel if isinstance(channel, SupportsEdit) else None
        self._address = address
        self._clock = clock
        self._timing = timing
        self._display = display
        self._rate_limiter = rate_limiter
        self._on_posted = on_posted
        self._on_final_edit = on_final_edit
        self._has_pending = has_pending
        self._only_asks = only_asks
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._text = ""
        self._still = ""
        self._since = 0.0
        self._shown = ""
        self._receipt: Receipt | None = None
        self._reused: Receipt | None = None
        self._sending = False
        self._not_reusable = False
        self._failures = 0
        self._changed = anyio.Event()
        self._frozen = anyio.Event()
        self._final_text = ANSWER_BELOW

    def handle_event(self, event: Event) -> None:
        """Show an event; ignored once the message is frozen."""
        if self._frozen.is_set():
            return
        match event:
            case QuestionAsked() | MessageAdded(message=User()):
                # A question or message was posted below, so the answer must be, too.
                self._not_reusable |= self._sending or self._receipt is not None
                return
            case ToolStarted(call=call) if self._display.tools and not self._only_asks(call.name):
                args = bytes(call.args).decode(errors="replace")
                self._lines.append(f"· {call.name} {one_line(args, self._display.preview)}")
            case Notice(text=text):
                self._lines.append(one_line(text, 100))
            case TextDelta(text=text) if self._display.text:
                self._text += text
            case StreamReset():
                self._text = ""
            case MessageAdded(message=Assistant(calls=calls) as message) if calls:
                self._text = ""
                if self._display.narration and (narration := one_line(message.text, MAX_NARRATION)):
                    self._lines.append(narration)
            case _:
                return
        self._changed.set()

    def show_still_working(self, text: str) -> None:
        """Show a notice that the run is still working, replacing the previous one."""
        if not self._frozen.is_set():
            self._still = text
            self._changed.set()

    def freeze(self) -> str | None:
        """Stop updating and return the post that may become the answer, if any.

        The caller that takes the post is responsible for it. A post that is not taken gets its
        final text once no edit is in progress.
        """
        # An edit in progress could arrive after the answer and overwrite it.
        if not (self._frozen.is_set() or self._sending or self._not_reusable or self._is_old):
            self._reused = self._receipt
        self._frozen.set()
        self._changed.set()
        return self._reused.id if self._reused else None

    @property
    def _is_old(self) -> bool:
        return 0 < self._timing.max_age <= self._clock.monotonic() - self._since

    def end_with(self, text: str) -> None:
        """Set the final text of a frozen post that does not become the answer."""
        self._reused = None
        self._final_text = text

    @property
    def final_edit(self) -> tuple[str, str] | None:
        """The post that does not become the answer, and its final text."""
        if self._receipt is None or self._reused is not None:
            return None
        return self._receipt.id, self._final_text

    def end_without_answer(self, text: str) -> None:
        """Give the post a final text after all, because there is no answer yet."""
        post = self._reused
        self.end_with(text)
        if post is not None:
            self._on_final_edit(post.id, text)

    async def run(self) -> None:
        """Keep the post up to date until it is frozen."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._type)
            if self._edits is not None:
                await self._edit_loop()
            await self._frozen.wait()
            group.cancel_scope.cancel()
        if isinstance(self._channel, SupportsTyping) and self._display.typing:
            channel = self._channel
            await self._try_call(lambda: channel.typing(self._address, False))
        if self.final_edit is not None:
            self._on_final_edit(*self.final_edit)

    async def _edit_loop(self) -> None:
        while not self._frozen.is_set() and self._failures < MAX_FAILURES:
            await self._changed.wait()
            self._changed = anyio.Event()
            shown = self._lines or self._receipt is not None
            if not shown and await self._pause(self._timing.edit):
                # An immediate answer needs no progress.
                return
            text = self._render()
            if self._frozen.is_set() or text == self._shown:
                continue
            if not self._rate_limiter.try_acquire(self._address):
                # The next edit will include it.
                self._changed.set()
                if await self._pause(self._timing.edit * RETRY_SHARE):
                    return
                continue
            self._sending = True
            wait = await self._try_call(lambda text=text: self._show(text))
            self._sending = False
            if self._shown == text != self._render():
                self._changed.set()
            if await self._pause(max(wait, self._timing.edit)):
                return

    def _render(self) -> str:
        """Render the post; answer text is shown only once the post can be edited.

        A post whose receipt is lost stays forever and would read as a second answer.
        """
        most = self._channel.caps.max_text
        text = self._text if self._receipt is not None else ""
        growing = text + self._display.cursor if text.strip() else ""
        page = "\n".join([*self._lines, *filter(None, [self._still, growing])])
        if not page and (self._receipt is not None or self._text.strip()):
            return PLACEHOLDER
        return keep_end(page, most, length_in(self._channel.caps.unit))

    async def _pause(self, seconds: float) -> bool:
        return await sleep_unless(self._clock, seconds, self._frozen)

    async def _show(self, text: str) -> None:
        post = Outbound((Text(text),))
        if not await self._held():
            # Another worker shows the progress now.
            self._failures = MAX_FAILURES
            return
        if self._receipt is None:
            self._not_reusable |= self._has_pending()
            failpoint("progress.before_send")
            self._receipt = await self._channel.send(self._address, post)
            self._since = self._clock.monotonic()
            # Now it may become the answer: the store keeps the order of writes.
            self._sending = False
            failpoint("progress.after_send")
            await self._on_posted(self._receipt.id)
        elif self._edits is not None:
            await self._edits.edit(self._receipt, post)
        self._shown = text
        self._failures = 0

    async def _type(self) -> None:
        channel = self._channel
        if not isinstance(channel, SupportsTyping) or not self._display.typing:
            return
        while True:
            await self._try_call(lambda: channel.typing(self._address, True))
            await self._clock.sleep(self._timing.typing)

    async def _try_call(self, work: Callable[[], Awaitable[None]]) -> float:
        """Call the platform; failures do not affect the turn. Returns seconds to pause."""
        try:
            await run_with_timeout(self._clock, self._timing.timeout, work)
        except Throttled as error:
            self._failures += 1
            self._rate_limiter.pause(error, self._address)
            return error.wait
        except (NotSent, DeadlineExceeded, OSError) as error:
            self._failures += 1
            log.info("cannot show progress in %s: %s", self._address, error)
        except Exception:
            self._failures += 1
            log.exception("cannot show progress in %s", self._address)
        return 0.0
