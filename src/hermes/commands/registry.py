"""All slash commands by name, and the way from a typed line to its reply."""

from collections.abc import Mapping, Sequence

from hermes.commands.command import Command, Context, Reply, Told
from hermes.commands.conversation import COMMANDS as CONVERSATION
from hermes.commands.information import COMMANDS as INFORMATION
from hermes.schema.errors import UsageError


class Registry:
    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = tuple(commands)
        self._by_name: Mapping[str, Command] = {
            name: command for command in commands for name in (command.name, *command.aliases)
        }

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
        name, _, words = line.strip().removeprefix("/").partition(" ")
        if name.lower() in {"help", "h", "?"}:
            return Told(self.help(words.strip()))
        return await self.find(name).run(context, words.strip())

    def help(self, name: str = "") -> str:
        if name:
            command = self.find(name.removeprefix("/"))
            also = (
                f" (also {', '.join('/' + a for a in command.aliases)})" if command.aliases else ""
            )
            return f"/{command.name} {command.usage}".rstrip() + f"{also}\n  {command.summary}"
        rows = [(f"/{c.name} {c.usage}".rstrip(), c.summary) for c in self.commands]
        rows.append(("/help [command]", "Show this list, or one command."))
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
    word = line.strip().split(" ", 1)[0]
    return len(word) > 1 and word[0] == "/" and "/" not in word[1:] and not word[1:].isdigit()
