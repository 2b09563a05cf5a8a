"""Offer the slash commands in Discord's own list."""

import logging
import re
from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from hermes.channels.discord import DiscordOptions
from hermes.channels.discord.rest_api import RestApi
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.text import one_line
from hermes.schema.errors import HermesError

log = logging.getLogger(__name__)

MAX_COMMANDS = 100
MAX_DESCRIPTION = 100
_NAME = re.compile(r"[a-z0-9_-]{1,32}")
_CHAT_INPUT, _STRING = 1, 3
_NOBODY = "0"
"""Permissions that only administrators of a server have; they may show a command to others."""


class Option(Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: int
    name: str
    description: str = ""
    required: bool = False


class Command(Struct, frozen=True, kw_only=True):
    """A command of the application, as it is sent and as Discord lists it."""

    name: str
    description: str = ""
    type: int = _CHAT_INPUT
    options: tuple[Option, ...] = ()
    default_member_permissions: str | None = None


ARGUMENTS = Option(type=_STRING, name="arguments", description="What follows the command.")


def own_commands(commands: Sequence[tuple[str, str]], options: DiscordOptions) -> list[Command]:
    """Return the commands to offer; Discord refuses repeated names and empty descriptions."""
    summaries: dict[str, str] = {}
    for command, summary in commands:
        description = one_line(summary, MAX_DESCRIPTION)
        if _NAME.fullmatch(name := command.lower()) and description:
            summaries.setdefault(name, description)
    return [
        Command(
            name=name,
            description=description,
            options=(ARGUMENTS,),
            default_member_permissions=_NOBODY if options.hide_slash_commands else None,
        )
        for name, description in summaries.items()
    ][:MAX_COMMANDS]


async def publish_commands(
    api: RestApi, application: str, commands: Sequence[Command], options: DiscordOptions
) -> None:
    """Set the list if it differs; without it, commands can still be typed in direct messages.

    With the policy `safe`, commands of other programs for the same application stay.
    """
    if options.command_sync_policy == "off":
        return
    path = f"/applications/{application}/commands"
    wanted = list(commands) if options.slash_commands else []
    try:
        found = await api.call_with_retries("GET", path, list[Raw])
        existing = [(msgspec.json.decode(raw, type=Command), raw) for raw in found]
        # They are sent back unchanged: they may have fields that we do not read.
        others: list[tuple[Command, Raw]] = []
        if options.command_sync_policy == "safe":
            names = {command.name for command in commands}
            others = [(command, raw) for command, raw in existing if command.name not in names]
        wanted = wanted[: max(0, MAX_COMMANDS - len(others))]
        after = [*wanted, *(command for command, _ in others)]
        if _by_name([command for command, _ in existing]) != _by_name(after):
            body = [*wanted, *(raw for _, raw in others)]
            await api.call_with_retries("PUT", path, object, body)
    except (HermesError, *JSON_ERRORS) as error:
        log.warning("the list of commands could not be set: %s", error)


def _by_name(commands: Sequence[Command]) -> dict[tuple[int, str], Command]:
    return {(command.type, command.name): command for command in commands}
