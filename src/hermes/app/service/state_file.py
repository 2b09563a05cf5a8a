"""Keep `gateway_state.json` up to date, on changes only and at most once a second."""

import logging
from collections.abc import Mapping
from datetime import datetime

import anyio
from msgspec import structs

from hermes.app.service.lock import ProcessRecord
from hermes.app.service.status import (
    GatewayState,
    Phase,
    PlatformState,
    Snapshot,
    write_state,
)
from hermes.config.home import Home
from hermes.gateway.supervisor import ChannelCondition, ChannelState
from hermes.kit.clock import Clock

log = logging.getLogger(__name__)

WRITE_INTERVAL = 1.0


class StateFile:
    """`put` is cheap and may be called at any time; `keep` writes changes; `write` is immediate."""

    def __init__(self, home: Home, record: ProcessRecord, clock: Clock) -> None:
        self._path = home.gateway_state
        self._record = record
        self._clock = clock
        self._changed = anyio.Event()
        self._written: Snapshot | None = None
        self.snapshot = Snapshot()
        self.writes = 0

    def put(self, snapshot: Snapshot) -> None:
        """Set the status; an equal one changes nothing."""
        now = self._clock.now()
        dated = {
            name: self._dated(name, platform, now) for name, platform in snapshot.platforms.items()
        }
        snapshot = structs.replace(snapshot, platforms=dated)
        if snapshot != self.snapshot:
            self.snapshot = snapshot
            self._changed.set()

    async def keep(self) -> None:
        """Write changes until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            if self.snapshot != self._written:
                await anyio.to_thread.run_sync(self._write, self.snapshot)
                await self._clock.sleep(WRITE_INTERVAL)

    def write(self, snapshot: Snapshot) -> None:
        """Set the status and write it before returning."""
        self.put(snapshot)
        if self.snapshot != self._written:
            self._write(self.snapshot)

    def _write(self, snapshot: Snapshot) -> None:
        state = GatewayState(
            pid=self._record.pid,
            kind=self._record.kind,
            argv=self._record.argv,
            start_time=self._record.start_time,
            updated_at=self._clock.now(),
            **structs.asdict(snapshot),
        )
        try:
            write_state(self._path, state)
        except OSError as error:
            # Not fatal; only the status cannot be read.
            log.warning("%s cannot be written: %s", self._path, error.strerror)
            return
        self._written = snapshot
        self.writes += 1

    def _dated(self, name: str, state: PlatformState, now: datetime) -> PlatformState:
        if state.updated_at is not None:
            return state
        before = self.snapshot.platforms.get(name)
        if before is not None and structs.replace(before, updated_at=None) == state:
            return before
        return structs.replace(state, updated_at=now)


_STATES = {
    ChannelCondition.LISTENING: "connected",
    ChannelCondition.WAITING: "connecting",
    ChannelCondition.PAUSED: "paused",
    ChannelCondition.STANDBY: "standby",
    ChannelCondition.CLOSED: "disconnected",
    ChannelCondition.FAILED: "retrying",
    ChannelCondition.SILENT: "retrying",
}
_HEALTHY = frozenset(
    {
        ChannelCondition.LISTENING,
        ChannelCondition.WAITING,
        ChannelCondition.PAUSED,
        ChannelCondition.STANDBY,
    }
)


def platforms_of(channels: Mapping[str, ChannelState]) -> dict[str, PlatformState]:
    return {name: _platform(channel) for name, channel in channels.items()}


def phase_of(channels: Mapping[str, ChannelState]) -> Phase:
    """Degraded while a channel fails; channels that connect, pause or stand by do not count."""
    healthy = all(channel.condition in _HEALTHY for channel in channels.values())
    return Phase.RUNNING if healthy else Phase.DEGRADED


def _platform(channel: ChannelState) -> PlatformState:
    failed = channel.condition in {ChannelCondition.FAILED, ChannelCondition.SILENT}
    explained = failed or channel.condition is ChannelCondition.STANDBY
    return PlatformState(
        state=_STATES[channel.condition],
        error_code=channel.condition.value if failed else None,
        error_message=channel.reason or None if explained else None,
        updated_at=channel.since,
    )
