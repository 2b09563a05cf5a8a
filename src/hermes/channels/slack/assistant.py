"""Slack's assistant pane: status while the agent works, suggested prompts, titles of threads."""

import logging

from msgspec import Struct

from hermes.channels.slack import SlackOptions
from hermes.channels.slack.objects import AssistantThread
from hermes.channels.slack.web_api import Fields, MissingScope, WebApi
from hermes.channels.slack.workspaces import Workspace
from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap
from hermes.kit.text import one_line
from hermes.ports.channel import Inbound
from hermes.schema.errors import HermesError
from hermes.schema.messages import Text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

STATUS = "is thinking…"
STATUS_SECONDS = 60.0
"""Slack removes a status after two minutes, or with the next message."""
MAX_REMEMBERED = 2_000
MAX_PROMPTS = 4
MAX_TITLE = 80


class _Shown(Struct, frozen=True):
    until: float


class Assistant:
    """Everything is optional: what Slack refuses is left out. `status` is the configured text."""

    def __init__(self, clock: Clock, options: SlackOptions, status: str) -> None:
        self._clock = clock
        self._options = options
        self._status = status or STATUS
        self._shown: LruMap[Address, _Shown] = LruMap(MAX_REMEMBERED)
        self._untitled: LruMap[tuple[str, str], bool] = LruMap(MAX_REMEMBERED)
        self._refused: set[str] = set()
        """Tokens that may not set a status."""

    async def show_status(self, api: WebApi, to: Address, *, on: bool) -> None:
        """Show or clear the status in a thread; Slack has no typing indicator elsewhere."""
        now = self._clock.monotonic()
        shown = self._shown.get(to)
        if not to.thread or api.token in self._refused:
            return
        if (shown is not None and now < shown.until) if on else shown is None:
            return
        fields = {"channel_id": to.chat, "thread_ts": to.thread}
        try:
            # An empty status removes it.
            await api.act(
                "assistant.threads.setStatus",
                {**fields, "status": self._status if on else ""},
                optional=True,
            )
        except MissingScope as error:
            self._refused.add(api.token)
            log.info("no status is shown: %s", error)
            return
        self._shown.keep(to, _Shown(now + STATUS_SECONDS) if on else None)

    def posted(self, to: Address) -> None:
        """Record that a new message removed the status."""
        self._shown.drop(to)

    async def greet(self, workspace: Workspace, thread: AssistantThread) -> None:
        """Someone opened a new conversation: offer the prompts of the settings."""
        self._untitled.put((thread.channel_id, thread.thread_ts), True)
        if not self._options.suggested_prompts:
            return
        prompts = self._options.suggested_prompts[:MAX_PROMPTS]
        fields = {
            "channel_id": thread.channel_id,
            "thread_ts": thread.thread_ts,
            "prompts": [{"title": prompt.title, "message": prompt.message} for prompt in prompts],
        }
        await self._try(workspace.api, "assistant.threads.setSuggestedPrompts", fields)

    async def set_title(self, workspace: Workspace, inbound: Inbound) -> None:
        """Name a conversation of the pane after its first message."""
        chat, thread = inbound.address.chat, inbound.address.thread or ""
        if not self._untitled.get((chat, thread)) or not self._options.assistant_thread_titles:
            return
        self._untitled.drop((chat, thread))
        first = next((part.text for part in inbound.parts if isinstance(part, Text)), "")
        if title := one_line(first, MAX_TITLE):
            fields = {"channel_id": chat, "thread_ts": thread, "title": title}
            await self._try(workspace.api, "assistant.threads.setTitle", fields)

    async def _try(self, api: WebApi, method: str, fields: Fields) -> None:
        try:
            await api.act(method, fields)
        except HermesError as error:
            log.info("%s failed: %s", method, error)
