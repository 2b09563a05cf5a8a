"""Keep `gateway_state.json` true at little cost: on change only, at most once a second."""

import logging
from collections.abc import Mapping
from datetime import datetime

import anyio
import msgspec
from msgspec import structs

from hermes.config.home import Home
from hermes.daemon.record import Record
from hermes.daemon.state import GatewayState, PlatformState, Snapshot
from hermes.kit.clock import Clock
from hermes.kit.files import write_atomic

log = logging.getLogger(__name__)

PACE = 1.0


class StateFile:
    """`put` is cheap and may be called at any time; `keep` writes; `write` does so at once."""

    def __init__(self, home: Home, record: Record, clock: Clock) -> None:
        self._path = home.gateway_state
        self._record = record
        self._clock = clock
        self._changed = anyio.Event()
        self._written: Snapshot | None = None
        self.snapshot = Snapshot()
        self.writes = 0

    def put(self, snapshot: Snapshot) -> None:
        """What is to be told; the same as before changes nothing."""
        snapshot = structs.replace(snapshot, platforms=self._dated(snapshot.platforms))
        if snapshot != self.snapshot:
            self.snapshot = snapshot
            self._changed.set()

    async def keep(self) -> None:
        """Write what was put, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            if self.snapshot != self._written:
                await anyio.to_thread.run_sync(self._write, self.snapshot)
                await self._clock.sleep(PACE)

    def write(self, snapshot: Snapshot) -> None:
        """Put it and have it on disk when this returns."""
        self.put(snapshot)
        if self.snapshot != self._written:
            self._write(self.snapshot)

    def _write(self, snapshot: Snapshot) -> None:
        state = GatewayState(
            pid=self._record.pid,
            kind=self._record.kind,
            argv=self._record.argv,
            start_time=self._record.start_time,
            gateway_state=snapshot.gateway_state,
            exit_reason=snapshot.exit_reason,
            restart_requested=snapshot.restart_requested,
            active_agents=snapshot.active_agents,
            platforms=snapshot.platforms,
            served_profiles=snapshot.served_profiles,
            sandboxes=snapshot.sandboxes,
            updated_at=self._clock.now(),
        )
        data = msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n"
        try:
            write_atomic(self._path, data, mode=0o600)
        except OSError as error:
            # The gateway does its work all the same; only its status cannot be read.
            log.warning("%s cannot be written: %s", self._path, error.strerror)
            return
        self._written = snapshot
        self.writes += 1

    def _dated(self, platforms: Mapping[str, PlatformState]) -> dict[str, PlatformState]:
        now = self._clock.now()
        return {name: self._since(name, one, now) for name, one in platforms.items()}

    def _since(self, name: str, state: PlatformState, now: datetime) -> PlatformState:
        if state.updated_at is not None:
            return state
        before = self.snapshot.platforms.get(name)
        if before is not None and structs.replace(before, updated_at=None) == state:
            return before
        return structs.replace(state, updated_at=now)
