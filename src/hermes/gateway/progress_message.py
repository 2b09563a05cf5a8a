"""Show the progress of a run in one post that is edited in place at a limited rate."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct

from hermes.gateway.rate_limiter import RateLimiter
from hermes.gateway.rendering.length import LENGTH_IN, keep_end
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

MAX_WORD = 30
"""Characters after the last space that may be the beginning of a word."""

UNFINISHED = "…"
"""Shown when there is nothing else to show, or at the end if there is no cursor."""
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
    indicator. `cursor`: appended to growing text. `least`: characters of an answer that are worth
    a post; fewer are shown only if no more come.
    """

    tools: bool = True
    text: bool = True
    preview: int = 60
    narration: bool = False
    typing: bool = True
    cursor: str = ""
    least: int = 24


class ProgressText:
    """What the post shows: steps and notices, and the answer while it grows.

    `only_asks`: whether a tool only asks a question, which its own post shows.
    """

    def __init__(
        self, clock: Clock, display: ProgressDisplay, only_asks: Callable[[str], bool]
    ) -> None:
        self._clock = clock
        self._display = display
        self._only_asks = only_asks
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._answer = ""
        self._answer_since = 0.0
        self.still_working = ""
        self.stalled = False
        """Whether the answer has stopped growing: its first words are then posted, however few."""

    def add(self, event: Event) -> bool:
        """Take an event; return whether it may change what is shown."""
        match event:
            case ToolStarted(call=call) if self._display.tools and not self._only_asks(call.name):
                args = bytes(call.args).decode(errors="replace")
                self._lines.append(f"· {call.name} {one_line(args, self._display.preview)}")
            case Notice(text=text):
                self._lines.append(one_line(text, 100))
            case TextDelta(text=text) if self._display.text:
                if not self._answer.strip():
                    self._answer_since, self.stalled = self._clock.monotonic(), False
                self._answer += text
            case StreamReset():
                self._answer = ""
            case MessageAdded(message=Assistant(calls=calls) as message) if calls:
                self._answer = ""
                if self._display.narration and (narration := one_line(message.text, MAX_NARRATION)):
                    self._lines.append(narration)
            case _:
                return False
        return True

    @property
    def waits_since(self) -> float | None:
        """When the answer began, if its first words are held back in case more follow."""
        return self._answer_since if self._answer.strip() and not self.stalled else None

    def render(self, *, posted: bool) -> str:
        """Render the post; before it exists, growing text always looks unfinished.

        A post whose receipt is lost stays as it is and must not read as an answer.
        """
        growing, cursor = self._answer, self._display.cursor
        if not posted:
            growing, cursor = self._first_words(), cursor or UNFINISHED
        growing = growing + cursor if growing.strip() else ""
        page = "\n".join([*self._lines, *filter(None, [self.still_working, growing])])
        return UNFINISHED if posted and not page else page

    def _first_words(self) -> str:
        """The text of a first post: nothing yet, or whole words."""
        text = self._answer
        if len(text.strip()) < self._display.least and not self.stalled:
            return ""
        words = text.rstrip()
        # Not every script has spaces.
        if words == text and (parts := text.rsplit(None, 1))[1:] and len(parts[1]) < MAX_WORD:
            return parts[0]
        return words


class ProgressMessage:
    """The progress of one run. `handle_event` never blocks; `freeze` ends it immediately.

    `key` is the same for each attempt to make the post.
    `on_posted` and `on_final_edit` receive the new post and its final text. `has_pending`: whether
    older messages are not delivered to this chat yet; they will appear below the post, so the newer
    answer must not replace it. `only_asks` as for `ProgressText`. `held`: whether this worker still
    has the messages that the run answers.
    """

    def __init__(
        self,
        *,
        key: str,
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
        self._key = key
        self._held = held
        self._channel = channel
        self._address = address
        self._clock = clock
        self._timing = timing
        self._shows_typing = display.typing
        self._rate_limiter = rate_limiter
        self._on_posted = on_posted
        self._on_final_edit = on_final_edit
        self._has_pending = has_pending
        self._text = ProgressText(clock, display, only_asks)
        self._since = 0.0
        self._shown_at = float("-inf")
        self._shown = ""
        self._receipt: Receipt | None = None
        self._reused: Receipt | None = None
        self._sending = False
        self._maybe_posted = False
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
            case _:
                if self._text.add(event):
                    self._changed.set()

    def show_still_working(self, text: str) -> None:
        """Show a notice that the run is still working, replacing the previous one."""
        if not self._frozen.is_set():
            self._text.still_working = text
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
            if isinstance(self._channel, SupportsEdit):
                await self._edit_loop()
            await self._frozen.wait()
            group.cancel_scope.cancel()
        await self._show_typing(on=False)
        if self.final_edit is not None:
            self._on_final_edit(*self.final_edit)

    async def _edit_loop(self) -> None:
        """Make the first post at once; edits follow at the configured interval."""
        while not self._frozen.is_set() and self._failures < MAX_FAILURES:
            await self._wait_for_change()
            if self._frozen.is_set() or self._render() == self._shown:
                continue
            if not await self._acquire():
                return
            # While waiting, newer text may have arrived, or the text may be gone.
            text = self._render()
            if text == self._shown:
                continue
            self._sending = True
            wait = await self._try_call(lambda text=text: self._show(text))
            self._sending = False
            if wait is None:
                self._failures += 1
            if self._maybe_posted and not self._channel.caps.idempotent:
                # A second post would repeat the text below the first.
                return
            if self._shown != self._render():
                self._changed.set()
            if await self._pause(max(wait or 0.0, self._timing.edit)):
                return

    async def _acquire(self) -> bool:
        """Wait until the rate limit has a call to spare; return False if frozen before that."""
        async with anyio.create_task_group() as group:

            async def stop_when_frozen() -> None:
                await self._frozen.wait()
                group.cancel_scope.cancel()

            group.start_soon(stop_when_frozen)
            await self._rate_limiter.acquire_spare(self._address)
            group.cancel_scope.cancel()
        return not self._frozen.is_set()

    async def _wait_for_change(self) -> None:
        """Wait for an event, or until a short text has stopped growing."""
        since = self._text.waits_since if self._receipt is None else None
        if since is not None:
            due = since + self._timing.edit - self._clock.monotonic()
            self._text.stalled = due <= 0 or not await sleep_unless(self._clock, due, self._changed)
        else:
            await self._changed.wait()
        self._changed = anyio.Event()

    def _render(self) -> str:
        text = self._text.render(posted=self._receipt is not None)
        return keep_end(text, self._channel.caps.max_text, LENGTH_IN[self._channel.caps.unit])

    async def _pause(self, seconds: float) -> bool:
        return await sleep_unless(self._clock, seconds, self._frozen)

    async def _show(self, text: str) -> None:
        post = Outbound((Text(text),), key=self._key, progress=True)
        if not await self._held():
            # Another worker now shows the progress.
            self._failures = MAX_FAILURES
            return
        if self._receipt is None:
            if self._frozen.is_set():
                # It would appear below the answer.
                return
            self._not_reusable |= self._has_pending()
            failpoint("progress.before_send")
            before, self._maybe_posted = self._maybe_posted, True
            try:
                self._receipt = await self._channel.send(self._address, post)
            except NotSent:
                self._maybe_posted = before
                raise
            if before:
                # It may be the post of an earlier attempt, with an older text.
                text = ""
            self._maybe_posted = False
            self._since = self._clock.monotonic()
            # Now it may become the answer: the store keeps the order of writes.
            self._sending = False
            failpoint("progress.after_send")
            await self._on_posted(self._receipt.id)
        elif isinstance(self._channel, SupportsEdit):
            await self._channel.edit(self._receipt, post)
        self._shown = text
        self._shown_at = self._clock.monotonic()
        self._failures = 0

    async def _type(self) -> None:
        """Show the typing indicator, except while the post itself shows that the turn runs."""
        while True:
            if self._clock.monotonic() - self._shown_at >= self._timing.typing:
                await self._show_typing(on=True)
            await self._clock.sleep(self._timing.typing)

    async def _show_typing(self, *, on: bool) -> None:
        channel = self._channel
        if not isinstance(channel, SupportsTyping) or not self._shows_typing:
            return
        if self._rate_limiter.try_type(self._address, on=on):
            await self._try_call(lambda: channel.typing(self._address, on))

    async def _try_call(self, work: Callable[[], Awaitable[None]]) -> float | None:
        """Call the platform; failures do not affect the turn.

        Returns seconds to pause, or None if the call failed.
        """
        try:
            await run_with_timeout(self._clock, self._timing.timeout, work)
        except Throttled as error:
            self._rate_limiter.pause(error, self._address)
            return error.wait
        except (NotSent, DeadlineExceeded, OSError) as error:
            log.info("cannot show progress in %s: %s", self._address, error)
        except Exception:
            log.exception("cannot show progress in %s", self._address)
        else:
            return 0.0
        return None
