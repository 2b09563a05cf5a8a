"""What every verb is given: streams, environment, and the home it works in."""

import sys
from functools import cached_property
from typing import TextIO

from hermes.config.env import Env, process_env
from hermes.config.home import Home, resolve_home


class CliContext:
    def __init__(
        self, env: Env, profile: str | None, streams: tuple[TextIO, TextIO, TextIO]
    ) -> None:
        self.env = env
        self.profile = profile
        self.stdin, self.stdout, self.stderr = streams

    @cached_property
    def _home(self) -> Home:
        return resolve_home(self.env, self.profile)

    def home(self) -> Home:
        """The profile's home; looked for when first needed, so that `--help` works without."""
        return self._home


def make_context(profile: str | None) -> CliContext:
    return CliContext(Env(process_env()), profile, (sys.stdin, sys.stdout, sys.stderr))
