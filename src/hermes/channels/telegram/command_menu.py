"""Offer the slash commands in Telegram's own menu."""

import logging
import re
from collections.abc import Sequence

from hermes.channels.telegram import TelegramOptions
from hermes.channels.telegram.bot_api import BotApi
from hermes.kit.text import one_line
from hermes.schema.errors import HermesError

log = logging.getLogger(__name__)

MAX_COMMANDS = 100
MAX_DESCRIPTION = 256
COMMON = ("new", "stop", "status", "model", "help", "steer", "queue", "retry", "undo", "usage")
"""The commands that come first, because people need them most."""
_NAME = re.compile(r"[a-z0-9_]{1,32}")
_SCOPES = ("default", "all_private_chats", "all_group_chats")

MenuEntry = dict[str, str]


def menu_entries(commands: Sequence[tuple[str, str]], options: TelegramOptions) -> list[MenuEntry]:
    """The commands by priority, as many as the menu has."""
    menu = options.command_menu
    own = tuple(name.removeprefix("/") for name in menu.priority)
    match menu.priority_mode:
        case "prepend":
            names = (*own, *COMMON)
        case "append":
            names = (*COMMON, *own)
        case "replace":
            names = own
    first = {name: place for place, name in reversed([*enumerate(names)])}
    ordered = sorted(commands, key=lambda command: first.get(command[0], len(names)))
    entries = [
        {"command": name, "description": one_line(summary, MAX_DESCRIPTION)}
        for command, summary in ordered
        if _NAME.fullmatch(name := command.lower().replace("-", "_")) and summary
    ]
    return entries[: max(1, min(menu.max_commands, MAX_COMMANDS))]


async def publish_commands(api: BotApi, entries: Sequence[MenuEntry]) -> None:
    """Set the menu of every scope; without it, commands can still be typed."""
    if not entries:
        return
    try:
        for scope in _SCOPES:
            fields = {"commands": entries, "scope": {"type": scope}}
            await api.call("setMyCommands", bool, fields)
    except HermesError as error:
        log.warning("the command menu could not be set: %s", error)
