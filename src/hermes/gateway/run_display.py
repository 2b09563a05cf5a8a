"""Show in a chat what happens to its messages: reactions, and a progress message per run."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import anyio

from hermes.gateway.delivery import Delivery
from hermes.gateway.messages import platform_address, topic_of
from hermes.gateway.progress_message import ProgressDisplay, ProgressMessage, ProgressTiming
from hermes.gateway.rate_limiter import RateLimiter
from hermes.gateway.stale_progress import StaleProgress
from hermes.kit.clock import Clock
from hermes.kit.tasks import BackgroundTasks, sleep_unless, time_limit
from hermes.ports.channel import Channel, SupportsEdit, SupportsReactions, SupportsTyping
from hermes.ports.store import Store
from hermes.ports.tool import Tool
from hermes.schema.events import Outcome
from hermes.schema.scope import Address, platform_of

log = logging.getLogger(__name__)

SEEN_REACTION = "👀"
OUTCOME_REACTIONS = {Outcome.DONE: "✅", Outcome.FAILED: "❌", Outcome.EXHAUSTED: "❌"}
MAX_REACTIONS = 8
"""Maximum number of reactions in progress; further ones are skipped."""


class RunDisplay:
    """Shows something on the `channels` that support it.

    `display_on` is the progress display of a chat; `tools` are those offered on a platform.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        channels: Mapping[str, Channel],
        rate_limiters: Mapping[str, RateLimiter],
        deliveries: Mapping[str, Delivery],
        stale_progress: StaleProgress,
        background: BackgroundTasks,
        tools: Callable[[str], Mapping[str, Tool]],
        progress: bool,
        timing: ProgressTiming,
        display_on: Callable[[Address], ProgressDisplay],
        without_reactions: frozenset[str],
    ) -> None:
        self._store = store
        self._clock = clock
        self.channels = {
            name: channel
            for name, channel in channels.items()
            if isinstance(channel, SupportsEdit | SupportsTyping | SupportsReactions)
        }
        self._rate_limiters = rate_limiters
        self._deliveries = deliveries
        self._stale_progress = stale_progress
        self._background = background
        self._tools = tools
        self._progress = progress
        self._timing = timing
        self._display_on = display_on
        self._without_reactions = without_reactions
        self._reactions: dict[tuple[Address, str], str] = {}
        """Messages with a reaction in progress, each with the reaction that follows."""
        self._shown = 0
        self._idle = anyio.Event()

    def start(self, address: Address, run: str, item: str) -> ProgressMessage | None:
        """Start the progress message of a run that answers an inbox item, where possible."""
        channel = self.channels.get(address.channel)
        if not self._progress or not isinstance(channel, SupportsEdit | SupportsTyping):
            return None
        platform = platform_of(address.channel)
        tools = self._tools(platform)
        progress = ProgressMessage(
            key=f"{run}:progress",
            channel=channel,
            address=platform_address(address),
            clock=self._clock,
            timing=self._timing,
            display=self._display_on(address),
            rate_limiter=self._rate_limiters[address.channel],
            on_posted=partial(self._stale_progress.add_live, run, address),
            on_final_edit=partial(self._stale_progress.add_final_edit, run, address),
            has_pending=partial(self._deliveries[address.channel].has_pending, topic_of(address)),
            held=partial(self._store.queues.held, item, self._store.workers.own),
            only_asks=lambda name: name in tools and tools[name].spec.asks,
        )
        self._shown += self._background.start(self._show, progress)
        return progress

    async def _show(self, progress: ProgressMessage) -> None:
        try:
            await progress.run()
        finally:
            self._shown -= 1
            if not self._shown:
                self._idle.set()

    async def drain(self, seconds: float) -> None:
        """Let the last edits of runs that have just ended finish."""
        self._idle = anyio.Event()
        if self._shown and seconds > 0:
            await sleep_unless(self._clock, seconds, self._idle)

    def acknowledge(self, address: Address, message: str | None) -> None:
        """Show at once that a message was received: react, or type where that is not possible."""
        if self.react(address, message, SEEN_REACTION):
            return
        channel, to = self.channels.get(address.channel), platform_address(address)
        if not self._progress or not isinstance(channel, SupportsTyping):
            return
        if not self._display_on(address).typing:
            return
        if self._rate_limiters[address.channel].try_type(to):
            self._background.start(self._try_call, to, partial(channel.typing, to, True))

    def react(self, address: Address, message: str | None, emoji: str) -> bool:
        """React to a message, if the platform supports it and it cannot delay an answer."""
        channel = self.channels.get(address.channel)
        if not message or not isinstance(channel, SupportsReactions):
            return False
        platform, to = platform_of(address.channel), platform_address(address)
        busy = len(self._reactions) >= MAX_REACTIONS and (to, message) not in self._reactions
        if platform in self._without_reactions or busy:
            return False
        if not self._rate_limiters[address.channel].try_react(to):
            return False
        if (to, message) in self._reactions:
            self._reactions[to, message] = emoji
        elif self._background.start(self._react_in_order, channel, to, message, emoji):
            self._reactions[to, message] = ""
        return True

    async def _react_in_order(
        self, channel: SupportsReactions, address: Address, message: str, emoji: str
    ) -> None:
        """Show a reaction, then any newer one, so that the last one stays."""
        try:
            while emoji:
                await self._try_call(address, partial(channel.react, address, message, emoji))
                emoji = self._reactions[address, message]
                self._reactions[address, message] = ""
        finally:
            del self._reactions[address, message]

    async def _try_call(self, address: Address, show: Callable[[], Awaitable[None]]) -> None:
        try:
            async with time_limit(self._clock, self._timing.timeout):
                await show()
        except Exception as error:  # noqa: BLE001 - signs are optional
            log.info("cannot show a reaction in %s: %r", address, error)
