"""Opening a profile's webhooks: its channel, at the one listener of the process."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from hermes.channels.webhook.book import RouteBook
from hermes.channels.webhook.channel import NAME, WebhookChannel
from hermes.channels.webhook.listener import Limits, Listener
from hermes.channels.webhook.settings import WebhookSettings, read_settings
from hermes.channels.webhook.subscriptions import FILE, Subscriptions
from hermes.kit.clock import Clock
from hermes.ports.channel import ChannelParts

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_channel(parts: ChannelParts) -> AsyncGenerator[WebhookChannel]:
    """The first profile says where the listener is; all others are found there, too."""
    settings = read_settings(parts.settings.extra, parts.env)
    channel = webhook_channel(settings, parts.home / FILE, parts.clock)
    listener = await parts.shares.once(NAME, lambda: _listener(settings, parts.clock))
    if (listener.host, listener.asked) != (settings.host, settings.port):
        log.warning(
            "the webhooks of the profile %s are heard at %s:%d, as those of all profiles",
            parts.profile,
            listener.host,
            listener.port,
        )
    listener.attach(parts.profile, channel)
    try:
        yield channel
    finally:
        listener.detach(parts.profile)


def webhook_channel(settings: WebhookSettings, file: Path, clock: Clock) -> WebhookChannel:
    """The channel alone; `file` holds what was subscribed to at the command line."""
    return WebhookChannel(RouteBook(settings, Subscriptions(file)), clock, settings.per_minute)


def _listener(settings: WebhookSettings, clock: Clock) -> Listener:
    return Listener(clock, settings.host, settings.port, limits=Limits(body=settings.body))
