"""Run the API server inside the gateway process if the owner's settings enable it."""

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from hermes.api.settings import PLATFORM_NAME, is_enabled, read_settings
from hermes.app.build import App
from hermes.app.service.status import PlatformState
from hermes.kit.clock import Clock
from hermes.kit.errors import ConfigError

if TYPE_CHECKING:
    from hermes.api.server import ApiServer

log = logging.getLogger(__name__)


class ApiHost:
    def __init__(self, clock: Clock, status: Callable[[], bytes] | None = None) -> None:
        """`status` returns the gateway's status as JSON."""
        self._clock = clock
        self._status = status
        self._server: ApiServer | None = None
        self._failure = ""

    async def open(self, owner: App, stack: AsyncExitStack) -> None:
        """Start the server; if that fails, log it and go on without."""
        if not is_enabled(owner.config, owner.env):
            return
        from hermes.api.server import ApiServer  # noqa: PLC0415 - imported only when enabled

        try:
            server = ApiServer(read_settings(owner.config, owner.env), self._clock)
            server.context.status = self._status
            self._server = await stack.enter_async_context(server)
            log.info("the API server listens at %s", server.address)
        except ConfigError as error:
            log.warning("the API server could not start: %s", error.sentence)
            self._failure = error.sentence

    async def attach(self, profile: str, app: App) -> None:
        if self._server is None:
            return
        from hermes.api.inbox_recovery import settle_interrupted_turns  # noqa: PLC0415 - as above
        from hermes.api.run_service import end_abandoned_runs  # noqa: PLC0415 - as above

        await end_abandoned_runs(app.store, app.clock)
        await settle_interrupted_turns(app)
        self._server.attach(profile, app)

    def detach(self, profile: str) -> None:
        if self._server is not None:
            self._server.detach(profile)

    def drain(self) -> None:
        if self._server is not None:
            self._server.drain()

    async def idle(self) -> None:
        """Wait until no API turn is running; call after `drain`."""
        if self._server is not None:
            await self._server.turn_gate.wait_idle()

    @property
    def active(self) -> int:
        return self._server.turn_gate.active if self._server is not None else 0

    def states(self) -> dict[str, PlatformState]:
        """Return the server's state for the state file."""
        if self._failure:
            state = PlatformState(
                state="fatal", error_code="not_opened", error_message=self._failure
            )
            return {PLATFORM_NAME: state}
        return {} if self._server is None else {PLATFORM_NAME: PlatformState(state="connected")}
