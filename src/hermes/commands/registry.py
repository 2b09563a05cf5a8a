"""Look up slash commands by name and run them."""

import re
import textwrap
from collections.abc import Mapping, Sequence

from hermes.commands.command import Availability, Command, CommandContext, require_service
from hermes.kit.text import parse_count
from hermes.schema.errors import UsageError
from hermes.schema.messages import Text
from hermes.schema.terminal import CommandReply, SubmitReply, TextReply

_COMMAND = re.compile(r"/(\?|[A-Za-z][\w-]*)(?:\s|$)")
_PAGE_SIZE = 15
"""Commands per page in a chat."""

MAX_NAME_WIDTH = 26
"""Width of the command column; the summary gets the rest."""


class Registry:
    """Commands by name and alias, plus `/help` and `/commands`."""

    def __init__(self, commands: Sequence[Command]) -> None:
        async def run_help(context: CommandContext, args: str) -> CommandReply:
            return TextReply(self.help(args, context))

        async def run_pages(context: CommandContext, args: str) -> CommandReply:
            return TextReply(self._page(args, context))

        help_command = Command(
            name="help",
            aliases=("h", "?"),
            usage="[command]",
            summary="List commands, or describe one.",
            run=run_help,
        )
        pages_command = Command(
            name="commands",
            usage="[page]",
            summary="List commands page by page.",
            availability=Availability.CHAT,
            run=run_pages,
        )
        self.commands = (*commands, help_command, pages_command)
        self._by_name: Mapping[str, Command] = _by_name(self.commands)

    @property
    def names(self) -> list[str]:
        return sorted(self._by_name)

    def find(self, name: str) -> Command:
        """Find by name or alias; `_` matches `-`, which some platforms do not allow in commands."""
        command = self._by_name.get(name.lower().replace("_", "-"))
        if command is None:
            raise UsageError(f"Unknown command: /{name}.", hint=self._suggestion(name))
        return command

    async def run(self, context: CommandContext, line: str) -> CommandReply:
        """Run `/name args`. Raises `UsageError` if it is unknown or not permitted."""
        name, *args = line.strip().removeprefix("/").split(None, 1) or [""]
        return await self.resolve(context, name).run(context, args[0].strip() if args else "")

    def resolve(self, context: CommandContext, name: str) -> Command:
        """Return the command. Raises `UsageError` if the user may not use it here."""
        learning = context.services.learning
        known = name.lower().replace("_", "-") in self._by_name
        if not known and learning is not None and (skill := learning.skill_for_command(name)):
            command = skill_command(skill)
        else:
            command = self.find(name)
        _check_permitted(command, context)
        return command

    def help(self, name: str = "", context: CommandContext | None = None) -> str:
        """Describe one command, or list those available in the context."""
        if name:
            command = self.find(name.removeprefix("/"))
            if context is not None:
                _check_permitted(command, context)
            names = ", ".join(f"/{alias}" for alias in command.aliases)
            aliases = f" (also {names})" if names else ""
            return f"{_usage_line(command)}{aliases}\n  {command.summary}"
        return _command_table(self._applying(context), context)

    def _page(self, args: str, context: CommandContext) -> str:
        commands = self._applying(context)
        pages = max(1, -(-len(commands) // _PAGE_SIZE))
        number = parse_count(args or "1")
        if number is None or number > pages:
            raise UsageError(f"There are only {pages} pages.", hint="/commands 1 shows the first.")
        table = _command_table(commands[(number - 1) * _PAGE_SIZE : number * _PAGE_SIZE], context)
        more = f"\nPage {number} of {pages}; next: /commands {number + 1}"
        return table + (more if number < pages else f"\nPage {number} of {pages}.")

    def _applying(self, context: CommandContext | None) -> list[Command]:
        commands = [
            command for command in self.commands if context is None or command.is_offered(context)
        ]
        return sorted(commands, key=lambda command: command.name)

    def _suggestion(self, name: str) -> str:
        from difflib import get_close_matches  # noqa: PLC0415 - only needed after a typo

        matches = get_close_matches(name.lower(), self._by_name, n=1)
        return f"Did you mean /{matches[0]}?" if matches else "/help lists all commands."


def standard_commands() -> Registry:
    from hermes.commands import (  # noqa: PLC0415 - not needed for one-shot runs
        administration,
        approvals,
        checkpoints,
        context_window,
        learning,
        people,
        preferences,
        sessions,
        terminal,
        workspace,
    )
    from hermes.commands.feature_commands import feature_command  # noqa: PLC0415 - as above
    from hermes.ports.feature_catalog import FEATURES, feature_commands  # noqa: PLC0415 - as above

    return Registry(
        (
            *sessions.COMMANDS,
            *checkpoints.COMMANDS,
            *preferences.COMMANDS,
            *context_window.COMMANDS,
            *administration.COMMANDS,
            *people.COMMANDS,
            *learning.COMMANDS,
            *approvals.COMMANDS,
            *terminal.COMMANDS,
            *workspace.COMMANDS,
            *(feature_command(name, verb) for name in FEATURES for verb in feature_commands(name)),
        )
    )


def is_command(line: str) -> bool:
    """Whether the line is a slash and a word; a path such as `/etc/hosts` is not a command."""
    return _COMMAND.match(line.strip()) is not None


def _check_permitted(command: Command, context: CommandContext) -> None:
    permitted = context.caller.permitted
    if permitted is not None and command.name not in permitted:
        raise UsageError(f"You cannot use /{command.name} here.", hint="/help lists your commands.")
    if context.caller.surface not in command.availability.value:
        where = "in a chat" if command.availability is Availability.CHAT else "in the terminal"
        raise UsageError(f"/{command.name} only works {where}.")
    if command.owner_only and not context.is_owner:
        raise UsageError(f"Only an owner may use /{command.name}.")


def _by_name(commands: Sequence[Command]) -> dict[str, Command]:
    found: dict[str, Command] = {}
    for command in commands:
        for name in (command.name, *command.aliases):
            if name in found:
                raise ValueError(f"two commands are named /{name}")
            found[name] = command
    return found


def _command_table(commands: Sequence[Command], context: CommandContext | None) -> str:
    rows = [(_usage_line(command), command.summary) for command in commands]
    if context is not None and context.in_chat:
        # Columns do not line up in a proportional font.
        return "\n".join(f"{left}: {right}" for left, right in rows)
    return format_columns(rows, MAX_NAME_WIDTH)


def _usage_line(command: Command) -> str:
    return f"/{command.name} {command.usage}".rstrip()


def skill_command(name: str) -> Command:
    async def run(context: CommandContext, args: str) -> CommandReply:
        learning = context.services.learning
        learning = require_service(learning, "Skills are not available here.")
        text = await learning.skill_instructions(name, context.conversation.session.id)
        request = args or "Follow it now, for our current work."
        typed = Text(f"/{name} {args}".rstrip())
        return SubmitReply((typed, Text(f"{text}\n\n{request}")), notice=f"Using the skill {name}.")

    return Command(
        name=name, usage="[request]", summary=f"Use the skill {name}.", owner_only=True, run=run
    )


LINE_WIDTH = 76
"""80 columns minus the frame around the text."""


def format_columns(rows: Sequence[tuple[str, str]], widest: int = LINE_WIDTH // 2) -> str:
    """Format two columns; long text wraps within its column, long names get their own line."""
    width = min(max((len(left) for left, _ in rows), default=0), widest)
    return "\n".join(_format_row(left, right, width) for left, right in rows)


def _format_row(left: str, right: str, width: int) -> str:
    # Long words are not broken, so that paths can be copied.
    first, *more = textwrap.wrap(
        right, LINE_WIDTH - width - 4, break_long_words=False, break_on_hyphens=False
    ) or [""]
    below = [f"{'':<{width + 4}}{line}" for line in more]
    if len(left) > width:
        return "\n".join([f"  {left}", f"{'':<{width + 4}}{first}", *below])
    return "\n".join([f"  {left:<{width}}  {first}".rstrip(), *below])
