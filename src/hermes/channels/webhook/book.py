"""All routes of a profile: those of its settings, and those of a file that may change any time."""

import logging
from collections.abc import Mapping

from hermes.channels.webhook.routes import Route, read_route, with_shared_secrets
from hermes.channels.webhook.settings import WebhookSettings
from hermes.channels.webhook.subscriptions import Stamp, Subscriptions, Table
from hermes.schema.errors import ConfigError

log = logging.getLogger(__name__)


class RouteBook:
    """The file is looked at before every answer, and read anew only when it has changed.

    A route of the settings wins over one of the file. An entry that cannot be understood is
    known but not served; a file that cannot be read leaves the routes as they were.
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
            log.warning("%s The routes stay as they were.", error.sentence)
            return
        subscribed = subscribed_routes(table, self._settings.secret)
        for name in subscribed.keys() & self._settings.routes.keys():
            log.warning("webhook route %s: the settings have it, too, and win", name)
        self._take({**subscribed, **self._settings.routes})

    def _take(self, routes: Mapping[str, Route]) -> None:
        before, self._all = self._all, with_shared_secrets(routes)
        _tell({name: route for name, route in self._all.items() if route != before.get(name)})


def subscribed_routes(table: Table, default_secret: str = "") -> dict[str, Route]:
    routes: dict[str, Route] = {}
    for name, entry in table.items():
        try:
            routes[name] = read_route(name, entry, default_secret)
        except ConfigError as error:
            routes[name] = Route(name=name, unserved=error.sentence)
    return routes


def _tell(routes: Mapping[str, Route]) -> None:
    for name, route in routes.items():
        if route.unserved:
            log.warning("webhook route %s is not served: %s", name, route.unserved)
        for note in route.notes:
            log.warning("webhook route %s: %s", name, note)
