"""Routes subscribed on the command line, in `webhook_subscriptions.json`.

Unknown fields are preserved, and an unreadable file is never overwritten.
"""

import fcntl
import logging
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec

from hermes.channels.webhook.routes import Route, WebhookSettings, read_route, with_shared_secrets
from hermes.kit.files import read_regular_file, write_atomic, write_error_hint
from hermes.kit.json_errors import JSON_ERRORS
from hermes.schema.errors import ConfigError

log = logging.getLogger(__name__)

FILE = "webhook_subscriptions.json"
"""File name in the home."""

Table: TypeAlias = dict[str, object]
Stamp: TypeAlias = tuple[int, int, int]


class Subscriptions:
    """Reading needs no lock, because the file is replaced atomically."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def stamp(self) -> Stamp | None:
        """Return a value that changes with the file; None if there is no file."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def read(self) -> Table:
        """Return every route by name; raises `ConfigError` if the file is damaged."""
        try:
            data = read_regular_file(self._path)
            return msgspec.json.decode(data, type=dict[str, object]) if data.strip() else {}
        except FileNotFoundError:
            return {}
        except JSON_ERRORS as error:
            raise ConfigError(
                f"{self._path} is damaged: {error}",
                hint="Repair the file (it was not changed), or rename it.",
            ) from error
        except OSError as error:
            raise self._unusable(error) from error

    def add(self, name: str, entry: Table) -> bool:
        with self._changing():
            table = self.read()
            if name in table:
                return False
            self._write({**table, name: entry})
        return True

    def remove(self, name: str) -> bool:
        """Remove a route; return whether it existed."""
        with self._changing():
            table = self.read()
            if name not in table:
                return False
            del table[name]
            self._write(table)
        return True

    def _write(self, table: Table) -> None:
        data = msgspec.json.format(msgspec.json.encode(table), indent=2)
        try:
            write_atomic(self._path, data + b"\n", mode=0o600)
        except OSError as error:
            raise self._unusable(error) from error

    @contextmanager
    def _changing(self) -> Generator[None]:
        """Lock the file, so that one process writes at a time."""
        lock = self._path.with_name(f".{self._path.stem}.lock")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _unusable(self, error: OSError) -> ConfigError:
        hint = "Run this as the gateway's user, and check the owner of the file."
        return ConfigError(
            f"{self._path} cannot be used: {error.strerror}", hint=write_error_hint(error, hint)
        )


class RouteTable:
    """All routes: those of the settings and of the file, reloaded when the file changes.

    The settings win. An invalid entry is listed but not served; an unreadable file leaves the
    routes as they were.
    """

    def __init__(self, settings: WebhookSettings, file: Subscriptions) -> None:
        self._settings = settings
        self._file = file
        self._stamp: Stamp | None = None
        self._all: Mapping[str, Route] = {}
        self._take(settings.routes)

    def routes(self) -> Mapping[str, Route]:
        stamp = self._file.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self._reload()
        return self._all

    def _reload(self) -> None:
        try:
            table = self._file.read()
        except ConfigError as error:
            log.warning("%s The routes are unchanged.", error.sentence)
            return
        subscribed = subscribed_routes(table, self._settings.secret)
        for name in subscribed.keys() & self._settings.routes.keys():
            log.warning("webhook route %s: also in the settings, which win", name)
        self._take({**subscribed, **self._settings.routes})

    def _take(self, routes: Mapping[str, Route]) -> None:
        before, self._all = self._all, with_shared_secrets(routes)
        for name, route in self._all.items():
            if route == before.get(name):
                continue
            if route.unserved:
                log.warning("webhook route %s is not served: %s", name, route.unserved)
            for note in route.notes:
                log.warning("webhook route %s: %s", name, note)


def subscribed_routes(table: Table, default_secret: str = "") -> dict[str, Route]:
    routes: dict[str, Route] = {}
    for name, entry in table.items():
        try:
            routes[name] = read_route(name, entry, default_secret)
        except ConfigError as error:
            routes[name] = Route(name=name, unserved=error.sentence)
    return routes
