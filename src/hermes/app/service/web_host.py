"""Serve the web page inside the gateway process if the owner's settings enable it."""

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from hermes.app.build import App
from hermes.app.service.status import PlatformState
from hermes.kit.clock import Clock
from hermes.kit.errors import ConfigError

if TYPE_CHECKING:
    from hermes.web.server import WebServer

log = logging.getLogger(__name__)

NAME = "dashboard"


class WebHost:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._server: WebServer | None = None
        self._failure = ""

    async def open(self, owner: App, stack: AsyncExitStack) -> None:
        """Start the server; if that fails, log it and go on without."""
        if not owner.config.dashboard.enabled:
            return
        from hermes.web.server_state import open_server  # noqa: PLC0415 - imported only when enabled
        from hermes.web.settings import read_settings  # noqa: PLC0415 - as above

        try:
            settings = read_settings(owner.config)
            opening = open_server(settings, owner.home, self._clock, by="gateway")
            self._server = await stack.enter_async_context(opening)
            log.info("the dashboard is running at %s", self._server.address)
        except (ConfigError, OSError) as error:
            # Such as a full disk: the gateway goes on without the page.
            self._failure = error.sentence if isinstance(error, ConfigError) else str(error)
            log.warning("the dashboard could not start: %s", self._failure)

    def attach(self, profile: str, app: App) -> None:
        if self._server is not None:
            self._server.attach(profile, app)

    def detach(self, profile: str) -> None:
        if self._server is not None:
            self._server.detach(profile)

    def drain(self) -> None:
        if self._server is not None:
            self._server.drain()

    async def wait_idle(self) -> None:
        """Wait until no turn of the page is running; call after `drain`."""
        if self._server is not None:
            await self._server.wait_idle()

    @property
    def active(self) -> int:
        return self._server.active if self._server is not None else 0

    def states(self) -> dict[str, PlatformState]:
        """Return the server's state for the state file."""
        if self._failure:
            state = PlatformState(
                state="fatal", error_code="not_opened", error_message=self._failure
            )
            return {NAME: state}
        if self._server is None:
            return {}
        return {NAME: PlatformState(state="connected", address=self._server.address)}
