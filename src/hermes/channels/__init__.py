"""Messaging platforms: one driver each, behind the channel port."""

from collections.abc import Mapping

from hermes.channels import telegram, webhook
from hermes.ports.channel import ChannelManifest

MANIFESTS: Mapping[str, ChannelManifest] = {
    manifest.name: manifest
    for manifest in (
        telegram.MANIFEST,
        webhook.MANIFEST,
    )
}  # fmt: skip
"""The catalogue: one line per platform. A manifest imports neither its driver nor an SDK."""
