"""What `gateway run` shows whoever watches it: whom it serves, where it listens, how to end it."""

import logging
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TextIO

from hermes.cli.export.plain import flat
from hermes.config.home import Home
from hermes.daemon.state import Phase, PlatformState, Snapshot
from hermes.kit.redact import Redactor
from hermes.kit.text import plural
from hermes.telemetry.logs import FORMAT

MOST = 1000
"""Lines about changes; after that only the log tells them, for this may be a file as well."""


class Foreground:
    """Says at first how things are, and then only what has changed."""

    def __init__(self, out: TextIO, home: Home) -> None:
        self._out = out
        self._home = home
        self._told: Mapping[str, str] | None = None
        self._ending = False
        self._left = MOST

    def __call__(self, snapshot: Snapshot) -> None:
        lines = self._lines(snapshot)
        try:
            self._out.write("".join(f"{line}\n" for line in lines))
            self._out.flush()
        except (OSError, ValueError):
            # Nobody watches any more, and that is no reason to end.
            return

    def _lines(self, snapshot: Snapshot) -> list[str]:
        if snapshot.gateway_state is Phase.DRAINING:
            lines = [] if self._ending else [_farewell(snapshot)]
            self._ending = True
            return lines
        now = {flat(name): _described(one) for name, one in sorted(snapshot.platforms.items())}
        before, self._told = self._told, now
        if before is None:
            return self._greeting(snapshot, now)
        changes = [f"  {name}: {text}" for name, text in now.items() if before.get(name) != text]
        shown = changes[: self._left]
        self._left -= len(shown)
        return shown

    def _greeting(self, snapshot: Snapshot, platforms: Mapping[str, str]) -> list[str]:
        profiles = snapshot.served_profiles or (self._home.profile,)
        word = "profile" if len(profiles) == 1 else "profiles"
        serves = f"The gateway serves the {word} {flat(', '.join(profiles))}"
        lines = [f"{serves} (pid {os.getpid()}). Ctrl+C stops it."]
        lines += [f"  {name}: {text}" for name, text in platforms.items()]
        if not platforms:
            lines.append("  It listens on no platform, only for `hermes` on this machine.")
        lines.append(f"  What it does is logged in {self._home.logs / 'agent.log'}")
        return lines


def _described(platform: PlatformState) -> str:
    reason = platform.error_message or platform.error_code
    return flat(f"{platform.state} ({reason})" if reason else platform.state)


def _farewell(snapshot: Snapshot) -> str:
    word = "Restarting" if snapshot.restart_requested else "Stopping"
    turns = snapshot.active_agents
    if not turns:
        # A turn of the command line may run all the same.
        return f"{word}; Ctrl+C once more does not wait."
    have = "has" if turns == 1 else "have"
    return (
        f"{word} once {plural(turns, 'running turn')} {have} ended; Ctrl+C once more does not wait."
    )


@contextmanager
def logging_to(stream: TextIO, redactor: Redactor) -> Generator[None]:
    """Show the log there as well, as long as the block runs."""
    handler = _Shown(stream, redactor)
    handler.setFormatter(logging.Formatter(FORMAT))
    logger = logging.getLogger("hermes")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Shown(logging.StreamHandler[TextIO]):
    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        super().__init__(stream)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact(super().format(record))
