"""The context passed to every command: streams, environment and home."""

import sys
from functools import cached_property
from typing import TextIO

from hermes.config.env import Env, process_env, set_term
from hermes.config.home import Home, resolve_home
from hermes.kit.errors import ConfigError


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
