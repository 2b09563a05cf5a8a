"""The context passed to every command: streams, environment and home."""

import re
import sys
from functools import cache
from typing import TYPE_CHECKING, TextIO

from hermes.cli.main import VERBS
from hermes.config.env import Env, set_term
from hermes.config.home import Home, resolve_home
from hermes.schema.errors import ConfigError

if TYPE_CHECKING:
    from hermes.config.loader import LoadedConfig


class CliContext:
    def __init__(
        self,
        env: Env,
        profile: str | None,
        streams: tuple[TextIO, TextIO, TextIO] | None = None,
    ) -> None:
        """`profile` is the name given with `-p`; without `streams`, those of the process."""
        self.env = env
        self.profile = profile
        self.stdin, self.stdout, self.stderr = streams or (sys.stdin, sys.stdout, sys.stderr)
        self._home: Home | None = None

    def home(self) -> Home:
        """The profile's home; resolved on first use, so that `--help` works without one."""
        from hermes.schema.scope import HOME_HIDDEN_VARIABLE

        if HOME_HIDDEN_VARIABLE in self.env and not self.env.get("HERMES_HOME"):
            raise ConfigError(
                "The Hermes home is not visible inside the agent's sandbox.",
                hint="To send a message, use the send_message tool; to use another home, set "
                "HERMES_HOME.",
            )
        self._home = self._home or resolve_home(self.env, self.profile)
        return self._home

    def profile_env(self) -> Env:
        """The environment including the home's .env."""
        from hermes.config.env import profile_env

        return profile_env(self.home().dotenv, self.env)

    def load_config(self) -> "LoadedConfig":
        from hermes.config.loader import load_config

        return load_config(self.home(), self.profile_env())

    def print(self, text: str) -> None:
        self.stdout.write(f"{text}\n")

    def print_json(self, value: object) -> None:
        import msgspec

        self.print(msgspec.json.encode(value).decode())

    def note(self, text: str) -> None:
        """Write a remark to stderr, apart from output for programs on stdout."""
        self.stderr.write(f"{text}\n")
        self.stderr.flush()

    def disable_escapes(self) -> None:
        """Write no terminal escape sequences from now on."""
        self.env = Env({**self.env, "TERM": "dumb"})
        set_term("dumb")

    def with_profile(self, text: str) -> str:
        """The text with `-p NAME` in its commands, if the profile was chosen with that flag."""
        if self.profile is None:
            return text
        return _command_pattern().sub(f"hermes -p {self.profile}", text)


@cache
def _command_pattern() -> re.Pattern[str]:
    verbs = "|".join(verb for verb in VERBS if verb != "profile")
    return re.compile(rf"(?<![\w/.-])hermes(?= (?:{verbs}|-z)\b)")
