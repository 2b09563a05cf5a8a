"""Check whether a running gateway would behave like an agent started by the client."""

import re
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from hermes import __version__
from hermes.app.build import App
from hermes.config.env import BASE_PREFIXES, BASE_VARIABLES
from hermes.config.variables import VARIABLES, is_secret
from hermes.ipc.protocol import PROTOCOL, EnvFingerprint, Hello
from hermes.kit.files import content_digest, read_regular_file
from hermes.sandbox.child_env import OWNER_VARIABLES, SCOPE_PREFIXES

_TERMINAL_VARIABLES = frozenset({"TERM", "COLORTERM"})
_LOGIN_VARIABLES = re.compile(r"XDG_(?!.*_(HOME|DIRS)$)")
_REFERENCE = re.compile(rb"\$\{([A-Za-z_][A-Za-z0-9_]*)")

FileStamps: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class Compatibility:
    """What an app was built from: its settings, environment and version."""

    def __init__(self, app: App, fingerprint: EnvFingerprint) -> None:
        self._files = (app.home.config, app.home.dotenv, app.home.auth)
        self._stamps = _file_stamps(self._files)
        self._digests = [content_digest(file) for file in self._files]
        self._configured = _configured_variables(app)
        self._fingerprint = self._relevant(fingerprint)

    def difference(self, hello: Hello) -> str:
        """Return the difference as a sentence, or ""."""
        if hello.protocol != PROTOCOL or hello.version != __version__:
            return f"The gateway runs version {__version__}."
        if self._settings_changed():
            return "The settings have changed since the gateway started."
        theirs = self._relevant(hello.marks)
        different = sorted(
            name
            for name in theirs.keys() | self._fingerprint.keys()
            if theirs.get(name) != self._fingerprint.get(name)
        )
        if different:
            return f"The gateway has a different {', '.join(different[:5])}."
        return ""

    def _settings_changed(self) -> bool:
        """Whether the settings changed; files are only read again if they were touched."""
        if _file_stamps(self._files) == self._stamps:
            return False
        return [content_digest(file) for file in self._files] != self._digests

    def _relevant(self, fingerprint: EnvFingerprint) -> EnvFingerprint:
        return {name: digest for name, digest in fingerprint.items() if self._is_relevant(name)}

    def _is_relevant(self, name: str) -> bool:
        """Whether the variable matters: we read it, or the agent's commands would get it."""
        if name == "HERMES_HOME" or name.startswith(SCOPE_PREFIXES):
            return False
        if name in self._configured or name in VARIABLES or is_secret(name):
            return True
        if name in _TERMINAL_VARIABLES or _LOGIN_VARIABLES.match(name):
            return False
        plain = name in BASE_VARIABLES or (name.isupper() and name.lower() in BASE_VARIABLES)
        return plain or name in OWNER_VARIABLES or name.startswith(("HERMES_", *BASE_PREFIXES))


def _configured_variables(app: App) -> frozenset[str]:
    """Return variables that only the settings mention."""
    config = app.config
    names = [
        provider.key_env for provider in (*config.custom_providers, *config.providers.values())
    ]
    with suppress(OSError):
        names += [name.decode() for name in _REFERENCE.findall(read_regular_file(app.home.config))]
    return frozenset([*config.terminal.env_passthrough, *names])


def _file_stamps(files: tuple[Path, ...]) -> FileStamps:
    def stamp(path: Path) -> tuple[int, int, int] | None:
        try:
            stat = path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    return tuple(map(stamp, files))
