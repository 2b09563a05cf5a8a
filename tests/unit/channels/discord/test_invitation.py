"""The link that adds the bot to a server asks for what the channel uses, and for nothing else."""

import discord

from hermes.channels.discord.setup import PERMISSIONS


def test_invitation_requests_only_the_permissions_in_use() -> None:
    requested = {name for name, granted in discord.Permissions(PERMISSIONS) if granted}
    assert requested == {
        "add_reactions", "read_messages", "send_messages", "embed_links", "attach_files",
        "read_message_history", "create_public_threads", "send_messages_in_threads",
        "send_voice_messages",
    }  # fmt: skip
