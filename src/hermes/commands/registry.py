"""All slash commands by name, and the way from a typed line to its reply."""

import re
from collections.abc import Mapping, Sequence

from hermes.commands.command import Command, Context, Reply, Told
from hermes.commands.conversation import COMMANDS as CONVERSATION
from hermes.commands.information import COMMANDS as INFORMATION
from hermes.schema.errors import UsageError

_COMMAND = re.compile(r"/(\?|[A-Za-z][\w-]*)(?:\s|$)")


class Registry:
    """Commands by name and alias; `/help` comes with the registry itself."""

    def __init__(self, commands: Sequence[Command]) -> None:
        async def run_help(context: Context, words: str) -> Reply:
            return Told(self.help(words))

        helping = Command(
            name="help",
            aliases=("h", "?"),
            usage="[command]",
            summary="Show this list, or one command.",
            run=run_help,
        )
        self.commands = (*commands, helping)
        self._by_name: Mapping[str, Command] = _by_name(self.commands)

    @property
    def names(self) -> list[str]:
        return sorted(self._by_name)

    def find(self, name: str) -> Command:
        command = self._by_name.get(name.lower())
        if command is None:
            raise UsageError(f"There is no command /{name}.", hint=self._near(name))
        return command

    async def run(self, context: Context, line: str) -> Reply:
        """Run `/name words`. Raises `UsageError` for a name that nobody knows."""
        name, *words = line.strip().removeprefix("/").split(None, 1) or [""]
        return await self.find(name).run(context, words[0].strip() if words else "")

    def help(self, name: str = "") -> str:
        if name:
            command = self.find(name.removeprefix("/"))
            also = ", ".join(f"/{alias}" for alias in command.aliases)
            return f"{_call(command)}{f' (also {also})' if also else ''}\n  {command.summary}"
        rows = [(_call(command), command.summary) for command in self.commands]
        width = max(len(left) for left, _ in rows)
        return "\n".join(f"  {left:<{width}}  {right}" for left, right in sorted(rows))

    def _near(self, name: str) -> str:
        from difflib import get_close_matches  # noqa: PLC0415 - only somebody who mistyped pays

        near = get_close_matches(name.lower(), self._by_name, n=1)
        return f"Did you mean /{near[0]}?" if near else "/help lists them all."


def standard_commands() -> Registry:
    return Registry([*CONVERSATION, *INFORMATION])


def is_command(line: str) -> bool:
    """A slash and a word; a path such as `/etc/hosts` is ordinary text."""
    return _COMMAND.match(line.strip()) is not None


def _by_name(commands: Sequence[Command]) -> dict[str, Command]:
    found: dict[str, Command] = {}
    for command in commands:
        for name in (command.name, *command.aliases):
            if name in found:
                raise ValueError(f"two commands are called /{name}")
            found[name] = command
    return found


def _call(command: Command) -> str:
    return f"/{command.name} {command.usage}".rstrip()
