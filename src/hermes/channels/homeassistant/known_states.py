"""Remember the last known states of devices across restarts."""

from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec import Struct

from hermes.channels.homeassistant.objects import State
from hermes.channels.state_file import StateFile

MAX_DEVICES = 10_000


class Position(Struct, frozen=True):
    """Until when changes were reported, and the last known state of each watched device."""

    until: datetime
    states: dict[str, str] = {}


class KnownStates:
    """The last known state of each watched device.

    Home Assistant resets all change times when it starts, so they do not show what changed.
    """

    def __init__(self, file: StateFile[Position]) -> None:
        self._file = file
        self._states: dict[str, str] = {}
        self._since: datetime | None = None
        """Until when changes were reported before this connection."""
        self._until: datetime | None = None
        """None until the missed changes are reported: a crash before that must not skip them."""

    def load(self) -> None:
        """Load the stored states at the start of a connection."""
        stored = self._file.read()
        self._since = stored.until if stored is not None else None
        self._states = dict(stored.states) if stored is not None else {}
        self._until = None

    def is_known(self, state: State) -> bool:
        return self._states.get(state.entity_id) == state.state

    def missed(self, states: Iterable[State]) -> list[State]:
        """Return the states that changed since the last connection; none without an earlier one."""
        if (since := self._since) is None:
            return []
        # Two devices can change at the same time, and only one of them may have been reported.
        changed = [state for state in states if state.last_changed >= since]
        return sorted(changed, key=lambda state: state.last_changed)

    def remember(self, state: State) -> None:
        self._states.pop(state.entity_id, None)
        self._states[state.entity_id] = state.state
        if len(self._states) > MAX_DEVICES:
            del self._states[next(iter(self._states))]

    async def finish_missed(self, until: datetime) -> None:
        """Store that all changes until then are reported. Raises `OSError`."""
        self._until = until.astimezone(UTC)
        await self._file.write(Position(self._until, self._states))

    async def finish(self, state: State) -> None:
        """Store that the change to this state is reported. Raises `OSError`."""
        self.remember(state)
        if self._until is not None:
            await self.finish_missed(max(self._until, state.last_changed))
