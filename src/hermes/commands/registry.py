"""All slash commands by name, and the way from a typed line to its reply."""

import re
import textwrap
from collections.abc import Mapping, Sequence

from hermes.commands.command import (
    Availability,
    Command,
    CommandContext,
    CommandReply,
    SubmitReply,
    TextReply,
)
from hermes.kit.text import parse_count
from hermes.schema.errors import UsageError
from hermes.schema.messages import Text

_COMMAND = re.compile(r"/(\?|[A-Za-z][\w-]*)(?:\s|$)")
_PAGE_SIZE = 15
"""Commands on one page of a chat."""

MAX_NAME_WIDTH = 26
"""Columns for what is typed; the rest of a line is for what it does."""


class Registry:
    """Commands by name and alias; `/help` and `/commands` come with the registry itself."""

    def __init__(self, commands: Sequence[Command]) -> None:
        async def run_help(context: CommandContext, words: str) -> CommandReply:
            return TextReply(self.help(words, context))

        async def run_pages(context: CommandContext, words: str) -> CommandReply:
            return TextReply(self._page(words, context))

        helping = Command(
            name="help",
            aliases=("h", "?"),
            usage="[command]",
            summary="Show this list, or one command.",
            run=run_help,
        )
        paging = Command(
            name="commands",
            usage="[page]",
            summary="Show the commands page by page.",
            where=Availability.CHAT,
            run=run_pages,
        )
        self.commands = (*commands, helping, paging)
        self._by_name: Mapping[str, Command] = _by_name(self.commands)

    @property
    def names(self) -> list[str]:
        return sorted(self._by_name)

    def find(self, name: str) -> Command:
        """By name or alias; some platforms cannot write a hyphen and write a line instead."""
        command = self._by_name.get(name.lower().replace("_", "-"))
        if command is None:
            raise UsageError(f"There is no command /{name}.", hint=self._near(name))
        return command

    async def run(self, context: CommandContext, line: str) -> CommandReply:
        """Run `/name words`. Raises `UsageError` for a name that nobody knows or may use here."""
        name, *words = line.strip().removeprefix("/").split(None, 1) or [""]
        command = self.admit(context, name)
        return await command.run(context, words[0].strip() if words else "")

    def admit(self, context: CommandContext, name: str) -> Command:
        """The command, when it makes sense there and the person may use it; else `UsageError`."""
        lessons = context.services.lessons
        known = name.lower().replace("_", "-") in self._by_name
        if not known and lessons is not None and (skill := lessons.skill_for_command(name)):
            command = skill_command(skill)
        else:
            command = self.find(name)
        _check_permitted(command, context)
        return command

    def help(self, name: str = "", context: CommandContext | None = None) -> str:
        """One command, or all; with a context, those that make sense there for that person."""
        if name:
            command = self.find(name.removeprefix("/"))
            if context is not None:
                _check_permitted(command, context)
            also = ", ".join(f"/{alias}" for alias in command.aliases)
            return f"{_usage_line(command)}{f' (also {also})' if also else ''}\n  {command.summary}"
        return _command_table(self._applying(context), context)

    def _page(self, words: str, context: CommandContext) -> str:
        commands = self._applying(context)
        pages = max(1, -(-len(commands) // _PAGE_SIZE))
        number = parse_count(words or "1")
        if number is None or number > pages:
            raise UsageError(f"There are {pages} pages of commands.", hint="/commands shows one.")
        shown = _command_table(commands[(number - 1) * _PAGE_SIZE : number * _PAGE_SIZE], context)
        more = f"\nPage {number} of {pages}; /commands {number + 1} goes on."
        return shown + (more if number < pages else f"\nPage {number} of {pages}.")

    def _applying(self, context: CommandContext | None) -> list[Command]:
        commands = [one for one in self.commands if context is None or one.applies(context)]
        return sorted(commands, key=lambda one: one.name)

    def _near(self, name: str) -> str:
        from difflib import get_close_matches  # noqa: PLC0415 - only somebody who mistyped pays

        near = get_close_matches(name.lower(), self._by_name, n=1)
        return f"Did you mean /{near[0]}?" if near else "/help lists them all."


def standard_commands() -> Registry:
    from hermes.commands.catalog import COMMANDS  # noqa: PLC0415 - a single question needs none

    return Registry(COMMANDS)


def is_command(line: str) -> bool:
    """A slash and a word; a path such as `/etc/hosts` is ordinary text."""
    return _COMMAND.match(line.strip()) is not None


def _check_permitted(command: Command, context: CommandContext) -> None:
    permitted = context.seat.permitted
    if permitted is not None and command.name not in permitted:
        raise UsageError(f"/{command.name} is not for you here.", hint="/help lists what there is.")
    if context.seat.surface not in command.where.value:
        where = "in a chat" if command.where is Availability.CHAT else "in the terminal"
        raise UsageError(f"/{command.name} works {where} only.")
    if command.owners and not context.is_owner:
        raise UsageError(f"/{command.name} is for the owner only.")


def _by_name(commands: Sequence[Command]) -> dict[str, Command]:
    found: dict[str, Command] = {}
    for command in commands:
        for name in (command.name, *command.aliases):
            if name in found:
                raise ValueError(f"two commands are called /{name}")
            found[name] = command
    return found


def _command_table(commands: Sequence[Command], context: CommandContext | None) -> str:
    rows = [(_usage_line(command), command.summary) for command in commands]
    if context is not None and context.in_chat:
        # Columns are none where letters have different widths.
        return "\n".join(f"{left}: {right}" for left, right in rows)
    return format_columns(rows, MAX_NAME_WIDTH)


def _usage_line(command: Command) -> str:
    return f"/{command.name} {command.usage}".rstrip()


def skill_command(name: str) -> Command:
    async def run(context: CommandContext, words: str) -> CommandReply:
        lessons = context.services.lessons
        if lessons is None:
            raise UsageError("There are no skills here.")
        text = await lessons.opened(name, context.conversation.session.id)
        asked = words or "Follow it now, for what we are at."
        typed = Text(f"/{name} {words}".rstrip())
        return SubmitReply((typed, Text(f"{text}\n\n{asked}")), told=f"With the skill {name}.")

    return Command(
        name=name, usage="[words]", summary=f"Follow the skill {name}.", owners=True, run=run
    )


LINE_WIDTH = 76
"""Of the 80 of a small terminal, the rest is for the frame around them."""


def format_columns(rows: Sequence[tuple[str, str]], widest: int = LINE_WIDTH // 2) -> str:
    """What does not fit goes on below its own column; a name that is too long stands alone."""
    width = min(max((len(left) for left, _ in rows), default=0), widest)
    return "\n".join(_format_row(left, right, width) for left, right in rows)


def _format_row(left: str, right: str, width: int) -> str:
    first, *more = _wrap(right, LINE_WIDTH - width - 4) or [""]
    below = [f"{'':<{width + 4}}{line}" for line in more]
    if len(left) > width:
        return "\n".join([f"  {left}", f"{'':<{width + 4}}{first}", *below])
    return "\n".join([f"  {left:<{width}}  {first}".rstrip(), *below])


def _wrap(text: str, room: int) -> list[str]:
    """Paths and other long words stay whole, so that they can be copied."""
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
