"""Messaging platforms: one driver each, behind the channel port."""

from collections.abc import Mapping

from hermes.ports.channel import ChannelManifest

MANIFESTS: Mapping[str, ChannelManifest] = {
    manifest.name: manifest
    for manifest in (
        ChannelManifest(name="webhook", factory="hermes.channels.webhook.channel:open_channel"),
    )
}
