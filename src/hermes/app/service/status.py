"""What the gateway says of itself in `gateway_state.json`, and reading it back with patience."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from hermes.app.service.lock import RECORD_KIND, ProcessRecord, running_gateway
from hermes.config.home import Home, named_profiles
from hermes.kit.files import read_regular_file

Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]


class Phase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    DRAINING = "draining"
    STOPPED = "stopped"
    STARTUP_FAILED = "startup_failed"


SERVING = frozenset({Phase.RUNNING, Phase.DEGRADED})


class PlatformState(Struct, frozen=True, kw_only=True):
    """`updated_at` is since when it is so; whoever keeps the file fills it in."""

    state: str
    error_code: str | None = None
    error_message: str | None = None
    updated_at: Moment | None = None


class Snapshot(Struct, frozen=True, kw_only=True):
    """How the gateway is, but for who it is and when this was said.

    `sandboxes` says of each profile what holds back its commands, once one has shown it.
    """

    gateway_state: Phase = Phase.STARTING
    exit_reason: str | None = None
    restart_requested: bool = False
    active_agents: int = 0
    platforms: Mapping[str, PlatformState] = {}
    served_profiles: tuple[str, ...] = ()
    sandboxes: Mapping[str, tuple[str, ...]] = {}


class GatewayState(Struct, frozen=True, kw_only=True):
    """The file as it is written; `gateway_state` may be a word that we do not know."""

    pid: int = 0
    kind: str = RECORD_KIND
    argv: tuple[str, ...] = ()
    start_time: int | float | str | None = None
    gateway_state: str = ""
    exit_reason: str | None = None
    restart_requested: bool = False
    active_agents: int = 0
    platforms: Mapping[str, PlatformState] = {}
    served_profiles: tuple[str, ...] = ()
    sandboxes: Mapping[str, tuple[str, ...]] = {}
    updated_at: Moment | None = None


def read_state(path: Path) -> GatewayState | None:
    """None for a file that is missing or is not such a state; odd parts of it are left out."""
    try:
        fields = msgspec.json.decode(read_regular_file(path), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    known: dict[str, object] = {}
    for field in structs.fields(GatewayState):
        if field.encode_name in fields:
            try:
                known[field.name] = msgspec.json.decode(fields[field.encode_name], type=field.type)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
    state = structs.replace(GatewayState(), **known)
    return state if state.gateway_state and state.kind == RECORD_KIND else None


class GatewayStatus(Struct, frozen=True, kw_only=True):
    """`record` is the living gateway that serves the home, if any does; `state` its last word.

    Without a living one, `state` is what the last one left.
    """

    home: Home
    record: ProcessRecord | None = None
    state: GatewayState | None = None

    @property
    def served_by(self) -> str | None:
        """The other profile whose gateway serves this one."""
        record = self.record
        return record.profile if record and record.serves_other_profile(self.home) else None

    @property
    def died(self) -> bool:
        """Nothing runs, although the last word was not that it had ended."""
        last = self.state.gateway_state if self.state else ""
        alive = {*SERVING, Phase.STARTING, Phase.DRAINING}
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


def gateway_status(home: Home) -> GatewayStatus:
    """Reads only; a state that another process left is not taken for that of the living one."""
    record = running_gateway(home)
    path = Path(record.home) if record and record.home else home.path
    state = read_state(Home(home.root, path).gateway_state)
    if record is not None and state is not None and state.pid != record.pid:
        state = None
    return GatewayStatus(home=home, record=record, state=state)


def all_gateway_statuses(root: Path) -> list[GatewayStatus]:
    """The default profile first, then the others by name."""
    homes = [Home(root, root)]
    homes += [Home(root, root / "profiles" / name, name) for name in named_profiles(root)]
    return [gateway_status(home) for home in homes]
