"""Messaging platforms: one driver each, behind the channel port."""

from collections.abc import Mapping

from hermes.channels import (
    discord,
    email,
    homeassistant,
    irc,
    matrix,
    mattermost,
    qqbot,
    signal,
    slack,
    sms,
    telegram,
    webhook,
    whatsapp_cloud,
    xmpp,
)
from hermes.ports.channel import ChannelManifest

MANIFESTS: Mapping[str, ChannelManifest] = {
    manifest.name: manifest
    for manifest in (
        telegram.MANIFEST,
        discord.MANIFEST,
        slack.MANIFEST,
        matrix.MANIFEST,
        email.MANIFEST,
        irc.MANIFEST,
        xmpp.MANIFEST,
        mattermost.MANIFEST,
        signal.MANIFEST,
        whatsapp_cloud.MANIFEST,
        sms.MANIFEST,
        homeassistant.MANIFEST,
        qqbot.MANIFEST,
        webhook.MANIFEST,
    )
}  # fmt: skip
"""The catalog: one line per platform. A manifest imports neither its driver nor an SDK."""
