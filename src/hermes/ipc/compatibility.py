"""Whether an agent that runs already would do the same as one that the caller starts himself."""

import re
from pathlib import Path
from typing import TypeAlias

from hermes import __version__
from hermes.app.build import App
from hermes.config.variables import VARIABLES, is_secret
from hermes.ipc.protocol import PROTOCOL, EnvFingerprint, Hello
from hermes.kit.files import read_regular_file
from hermes.sandbox.child_env import BASE_PREFIXES, BASE_VARIABLES, OWNER_VARIABLES, SCOPE_PREFIXES

_TERMINAL_VARIABLES = frozenset({"TERM", "COLORTERM"})
_LOGIN_VARIABLES = re.compile(r"XDG_(?!.*_(HOME|DIRS)$)")
_REFERENCE = re.compile(rb"\$\{([A-Za-z_][A-Za-z0-9_]*)")

FileStamps: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class Compatibility:
    """What an app was made from: settings, environment, program. `marks` are its environment's."""

    def __init__(self, app: App, marks: EnvFingerprint) -> None:
        self._files = (app.home.config, app.home.dotenv, app.home.auth)
        self._stamp = _file_stamps(self._files)
        self._named = _configured_variables(app)
        self._marks = self._relevant(marks)

    def difference(self, hello: Hello) -> str:
        """What is different, as a sentence; empty when nothing is."""
        if hello.protocol != PROTOCOL or hello.version != __version__:
            return f"The gateway runs version {__version__}."
        if _file_stamps(self._files) != self._stamp:
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

    def _relevant(self, marks: EnvFingerprint) -> EnvFingerprint:
        return {name: mark for name, mark in marks.items() if self._records(name)}

    def _records(self, name: str) -> bool:
        """What we read ourselves, and what the commands of the agent would be given."""
        if name == "HERMES_HOME" or name.startswith(SCOPE_PREFIXES):
            return False
        if name in self._named or name in VARIABLES or is_secret(name):
            return True
        if name in _TERMINAL_VARIABLES or _LOGIN_VARIABLES.match(name):
            return False
        plain = name in BASE_VARIABLES or (name.isupper() and name.lower() in BASE_VARIABLES)
        return plain or name in OWNER_VARIABLES or name.startswith(("HERMES_", *BASE_PREFIXES))


def _configured_variables(app: App) -> frozenset[str]:
    """Variables that only the settings know of."""
    config = app.config
    keys = [one.key_env for one in (*config.custom_providers, *config.providers.values())]
    return frozenset(
        [*config.terminal.env_passthrough, *keys, *_referenced_variables(app.home.config)]
    )


def _referenced_variables(path: Path) -> list[str]:
    try:
        return [name.decode() for name in _REFERENCE.findall(read_regular_file(path))]
    except OSError:
        return []


def _file_stamps(files: tuple[Path, ...]) -> FileStamps:
    return tuple(map(_file_stamp, files))


def _file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
