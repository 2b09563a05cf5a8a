"""Webhooks: signed HTTP calls from other programs start turns."""

from hermes.ports.channel import ChannelCapabilities, ChannelManifest

MANIFEST = ChannelManifest(
    name="webhook",
    label="Webhooks",
    factory="hermes.channels.webhook.channel:open_channel",
    caps=ChannelCapabilities(max_text=16_000, direct=False),
)
