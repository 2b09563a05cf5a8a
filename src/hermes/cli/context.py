"""What every verb is given: streams, environment, and the home it works in."""

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
                "This is a command of an agent in its sandbox, where its home cannot be seen.",
                hint="To send something use the agent's tool send_message; for a home of your own "
                "set HERMES_HOME.",
            )
        return resolve_home(self.env, self.profile)

    def disable_escapes(self) -> None:
        """Nothing that is written from now on steers the terminal."""
        self.env = Env({**self.env, "TERM": "dumb"})
        set_term("dumb")

    def home(self) -> Home:
        """The profile's home; looked for when first needed, so that `--help` works without."""
        return self._home


def make_context(profile: str | None) -> CliContext:
    return CliContext(Env(process_env()), profile, (sys.stdin, sys.stdout, sys.stderr))
