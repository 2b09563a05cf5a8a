"""The manifest from which Slack creates the app: scopes, events and slash commands."""

import re
from collections.abc import Sequence

from hermes.kit.text import one_line

MAX_COMMANDS = 50
MAX_NAME = 32
MAX_DESCRIPTION = 100
OWN_COMMAND = "hermes"
SCOPES = (
    "app_mentions:read", "assistant:write", "channels:history", "channels:read", "chat:write",
    "commands", "files:read", "files:write", "groups:history", "groups:read", "im:history",
    "im:read", "im:write", "mpim:history", "mpim:read", "reactions:read", "reactions:write",
    "users:read",
)  # fmt: skip
NEEDED = frozenset({"chat:write", "im:history", "app_mentions:read"})
"""Without these, the app can do nothing useful."""
EVENTS = (
    "app_mention", "assistant_thread_context_changed", "assistant_thread_started",
    "message.channels", "message.groups", "message.im", "message.mpim", "reaction_added",
    "reaction_removed",
)  # fmt: skip
SCOPES_OF_EVENTS = {
    "app_mention": "app_mentions:read",
    "message.channels": "channels:history",
    "message.groups": "groups:history",
    "message.im": "im:history",
    "message.mpim": "mpim:history",
    "reaction_added": "reactions:read",
    "assistant_thread_started": "assistant:write",
}
_NAME = re.compile(rf"[a-z0-9_-]{{1,{MAX_NAME - 1}}}")
_TAKEN = frozenset(
    {
        "archive", "away", "collapse", "dm", "dnd", "expand", "feed", "feedback", "invite", "join",
        "leave", "me", "msg", "mute", "open", "people", "prefs", "remind", "remove", "rename",
        "search", "shortcuts", "shrug", "star", "status", "topic", "who",
    }
)  # fmt: skip
"""Slack's own commands; ours of the same name are typed as `/hermes NAME`."""


def app_manifest(name: str, commands: Sequence[tuple[str, str]]) -> dict[str, object]:
    """The manifest; `commands` are names and summaries, of which Slack takes fifty."""
    own = [(OWN_COMMAND, "Talk to the agent, or run one of its commands.")]
    listed = [
        (command, summary)
        for command, summary in commands
        if _NAME.fullmatch(command) and command not in _TAKEN and summary
    ]
    return {
        "display_information": {"name": name, "description": "An agent that answers in Slack."},
        "features": {
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": name, "always_online": True},
            "assistant_view": {"assistant_description": "Ask the agent anything."},
            "slash_commands": [
                {
                    "command": f"/{command}",
                    "description": one_line(summary, MAX_DESCRIPTION),
                    "usage_hint": "[arguments]",
                    "should_escape": False,
                }
                for command, summary in [*own, *listed][:MAX_COMMANDS]
            ],
        },
        "oauth_config": {"scopes": {"bot": [*SCOPES]}},
        "settings": {
            "event_subscriptions": {"bot_events": [*EVENTS]},
            "interactivity": {"is_enabled": True},
            "org_deploy_enabled": False,
            "socket_mode_enabled": True,
            "token_rotation_enabled": False,
        },
    }
