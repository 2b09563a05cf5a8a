"""What people type in a chat in place of a command: names of their own, words that begin anew."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from hermes.config.schema import Config

ANEW = "/new"


class Shortcuts(Struct, frozen=True, kw_only=True):
    """`names` mean other commands, `barred` are commands of a shell, `anew` begins a session."""

    names: Mapping[str, str] = {}
    barred: frozenset[str] = frozenset()
    anew: frozenset[str] = frozenset()

    def meant(self, text: str) -> str:
        """The command that is meant; the text itself, when it is no shortcut."""
        if text.strip().casefold() in self.anew:
            return ANEW
        name, words = _parted(text)
        given = self.names.get(name)
        return text if given is None else f"{given} {words}".strip()

    def is_for_a_shell(self, line: str) -> bool:
        return _parted(line)[0] in self.barred


def shortcuts_from(config: Config, taken: Collection[str]) -> Shortcuts:
    """From `quick_commands` and `reset_triggers`; nobody can give another sense to our names."""
    quick = {
        name.strip().removeprefix("/").lower(): one for name, one in config.quick_commands.items()
    }
    own = {name: one for name, one in quick.items() if name and name not in taken}
    meant = {
        name: (one.target or one.command).strip().removeprefix("/")
        for name, one in own.items()
        if one.type == "alias"
    }
    triggers = {one.strip().casefold() for one in config.reset_triggers}
    return Shortcuts(
        names={f"/{name}": f"/{command}" for name, command in meant.items() if command},
        barred=frozenset(f"/{name}" for name, one in own.items() if one.type == "exec"),
        anew=frozenset(one for one in triggers if one and one.removeprefix("/") not in taken),
    )


def _parted(text: str) -> tuple[str, str]:
    typed, _, words = text.strip().partition(" ")
    return typed.partition("@")[0].lower(), words.strip()
