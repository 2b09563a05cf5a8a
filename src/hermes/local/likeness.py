"""Whether an agent that runs already would do the same as one that the caller starts himself."""

import re
from pathlib import Path
from typing import TypeAlias

from hermes import __version__
from hermes.app.build import App
from hermes.config.variables import VARIABLES, is_secret
from hermes.kit.files import read_ordinary
from hermes.local.marks import Marks
from hermes.local.wire import PROTOCOL, Hello
from hermes.sandbox.child_env import FAMILIES, OWNERS, PLAIN, SCOPED

_OF_THE_TERMINAL = frozenset({"TERM", "COLORTERM"})
_OF_THE_LOGIN = re.compile(r"XDG_(?!.*_(HOME|DIRS)$)")
_REFERENCE = re.compile(rb"\$\{([A-Za-z_][A-Za-z0-9_]*)")

Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class Likeness:
    """What an app was made from: settings, environment, program. `marks` are its environment's."""

    def __init__(self, app: App, marks: Marks) -> None:
        self._files = (app.home.config, app.home.dotenv, app.home.auth)
        self._stamp = _stamp(self._files)
        self._named = _named_by(app)
        self._marks = self._relevant(marks)

    def difference(self, hello: Hello) -> str:
        """What is different, as a sentence; empty when nothing is."""
        if hello.protocol != PROTOCOL or hello.version != __version__:
            return f"The gateway runs version {__version__}."
        if _stamp(self._files) != self._stamp:
            return "The settings have changed since the gateway started."
        theirs = self._relevant(hello.marks)
        different = sorted(
            name
            for name in theirs.keys() | self._marks.keys()
            if theirs.get(name) != self._marks.get(name)
        )
        if different:
            return f"The gateway has another {', '.join(different[:5])}."
        return ""

    def _relevant(self, marks: Marks) -> Marks:
        return {name: mark for name, mark in marks.items() if self._matters(name)}

    def _matters(self, name: str) -> bool:
        """What we read ourselves, and what the commands of the agent would be given."""
        if name == "HERMES_HOME" or name.startswith(SCOPED):
            return False
        if name in self._named or name in VARIABLES or is_secret(name):
            return True
        if name in _OF_THE_TERMINAL or _OF_THE_LOGIN.match(name):
            return False
        plain = name in PLAIN or (name.isupper() and name.lower() in PLAIN)
        return plain or name in OWNERS or name.startswith(("HERMES_", *FAMILIES))


def _named_by(app: App) -> frozenset[str]:
    """Variables that only the settings know of."""
    config = app.config
    keys = [one.key_env for one in (*config.custom_providers, *config.providers.values())]
    return frozenset([*config.terminal.env_passthrough, *keys, *_referred_to(app.home.config)])


def _referred_to(path: Path) -> list[str]:
    try:
        return [name.decode() for name in _REFERENCE.findall(read_ordinary(path))]
    except OSError:
        return []


def _stamp(files: tuple[Path, ...]) -> Stamp:
    return tuple(map(_stamp_of, files))


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
