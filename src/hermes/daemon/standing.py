"""How the gateway of a profile stands, seen from outside: who runs it, and what it says."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from hermes.config.home import Home, named_profiles
from hermes.daemon.lock import who_holds
from hermes.daemon.record import Record
from hermes.daemon.state import AT_WORK, GatewayState, Phase, PlatformState, read_state


class Standing(Struct, frozen=True, kw_only=True):
    """`record` is the living gateway that serves the home, if any does; `state` its last word.

    Without a living one, `state` is what the last one left.
    """

    home: Home
    record: Record | None = None
    state: GatewayState | None = None

    @property
    def served_by(self) -> str | None:
        """The other profile whose gateway serves this one."""
        record = self.record
        return record.profile if record and record.serves_as_guest(self.home) else None

    @property
    def died(self) -> bool:
        """Nothing runs, although the last word was not that it had ended."""
        last = self.state.gateway_state if self.state else ""
        alive = {*AT_WORK, Phase.STARTING, Phase.DRAINING}
        return self.record is None and last in alive and not (self.state and self.state.exit_reason)

    @property
    def platforms(self) -> dict[str, PlatformState]:
        """This profile's own; a gateway of several names the others' as `profile/platform`."""
        every: Mapping[str, PlatformState] = self.state.platforms if self.state else {}
        if self.served_by is None:
            return {name: one for name, one in every.items() if "/" not in name}
        own = f"{self.home.profile}/"
        return {name.removeprefix(own): one for name, one in every.items() if name.startswith(own)}

    @property
    def sandboxes(self) -> tuple[str, ...]:
        """What holds back commands in a gateway that runs; empty before one has shown it."""
        if self.record is None or self.state is None:
            return ()
        return self.state.sandboxes.get(self.home.profile, ())

    @property
    def since(self) -> datetime | None:
        return self.record.started_at if self.record else None


def look(home: Home) -> Standing:
    """Reads only; a state that another process left is not taken for that of the living one."""
    record = who_holds(home)
    path = Path(record.home) if record and record.home else home.path
    state = read_state(Home(home.root, path).gateway_state)
    if record is not None and state is not None and state.pid != record.pid:
        state = None
    return Standing(home=home, record=record, state=state)


def look_at_all(root: Path) -> list[Standing]:
    """The default profile first, then the others by name."""
    homes = [Home(root, root)]
    homes += [Home(root, root / "profiles" / name, name) for name in named_profiles(root)]
    return [look(home) for home in homes]
