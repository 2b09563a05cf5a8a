"""The context passed to every command: streams, environment and home."""

import re
import sys
from functools import cached_property
from typing import TextIO

from hermes.cli.main import VERBS
from hermes.config.env import Env, process_env, set_term
from hermes.config.home import Home, resolve_home
from hermes.kit.errors import ConfigError
from hermes.schema.errors import HermesError


class CliContext:
    def __init__(
        self, env: Env, profile: str | None, streams: tuple[TextIO, TextIO, TextIO]
    ) -> None:
        self.env = env
        self.profile = profile
        self.stdin, self.stdout, self.stderr = streams

    @cached_property
    def _home(self) -> Home:
        from hermes.schema.scope import HOME_HIDDEN_VARIABLE

        if HOME_HIDDEN_VARIABLE in self.env and not self.env.get("HERMES_HOME"):
            raise ConfigError(
                "The Hermes home is not visible inside the agent's sandbox.",
                hint="To send a message, use the send_message tool; to use another home, set "
                "HERMES_HOME.",
            )
        return resolve_home(self.env, self.profile)

    def disable_escapes(self) -> None:
        """Write no terminal escape sequences from now on."""
        self.env = Env({**self.env, "TERM": "dumb"})
        set_term("dumb")

    def home(self) -> Home:
        """The profile's home; resolved on first use, so that `--help` works without one."""
        return self._home


def make_context(profile: str | None) -> CliContext:
    return CliContext(Env(process_env()), profile, (sys.stdin, sys.stdout, sys.stderr))


_PROFILE_VERBS = [verb for verb in VERBS if verb != "profile"]
_COMMAND = re.compile(rf"(?<![\w/.-])hermes(?= (?:{'|'.join(_PROFILE_VERBS)}|-z)\b)")


def with_profile_flag(text: str, profile: str | None) -> str:
    """The text with `-p NAME` in its commands, if the profile was chosen with that flag."""
    return text if profile is None else _COMMAND.sub(f"hermes -p {profile}", text)


def add_profile_to_hint(error: Exception, profile: str) -> None:
    """Make the commands in the error's hint apply to the profile."""
    if isinstance(error, HermesError):
        error.hint = with_profile_flag(error.hint, profile)
