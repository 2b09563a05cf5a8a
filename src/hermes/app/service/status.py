"""The gateway's status file `gateway_state.json`, which is read leniently."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from hermes.app.service.lock import RECORD_KIND, ProcessRecord, running_gateway
from hermes.config.home import Home, named_profiles
from hermes.kit.files import read_regular_file, write_atomic

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
    """`updated_at` is the time of the last change; filled in by the writer of the file.

    `address` is the URL at which a platform that is a server can be reached.
    """

    state: str
    error_code: str | None = None
    error_message: str | None = None
    address: str | None = None
    updated_at: Moment | None = None


class Snapshot(Struct, frozen=True, kw_only=True):
    """The status of the gateway without its process and time.

    `sandboxes` lists, per profile, the sandbox of its commands once it is known.
    """

    gateway_state: Phase = Phase.STARTING
    exit_reason: str | None = None
    restart_requested: bool = False
    active_agents: int = 0
    platforms: Mapping[str, PlatformState] = {}
    served_profiles: tuple[str, ...] = ()
    sandboxes: Mapping[str, tuple[str, ...]] = {}


class GatewayState(Struct, frozen=True, kw_only=True):
    """The content of the file; `gateway_state` may have values that we do not know."""

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
    """Read the file; None if it is missing or invalid. Invalid fields are skipped."""
    try:
        fields = msgspec.json.decode(read_regular_file(path), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    known: dict[str, object] = {}
    for field in structs.fields(GatewayState):
        if field.encode_name in fields:
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                known[field.name] = msgspec.json.decode(fields[field.encode_name], type=field.type)
    state = structs.replace(GatewayState(), **known)
    return state if state.gateway_state and state.kind == RECORD_KIND else None


def write_state(path: Path, state: GatewayState) -> None:
    data = msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n"
    write_atomic(path, data, mode=0o600)


class GatewayStatus(Struct, frozen=True, kw_only=True):
    """`record` is the running gateway that serves the home, if any; `state` its last status.

    Without a running gateway, `state` is the last one's final state.
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
        """Whether nothing runs although no end was recorded."""
        last = self.state.gateway_state if self.state else ""
        alive = {*SERVING, Phase.STARTING, Phase.DRAINING}
        return self.record is None and last in alive and not (self.state and self.state.exit_reason)

    @property
    def platforms(self) -> dict[str, PlatformState]:
        """This profile's platforms; a shared gateway names the others' `profile/platform`."""
        states: Mapping[str, PlatformState] = self.state.platforms if self.state else {}
        if self.served_by is None:
            return {name: state for name, state in states.items() if "/" not in name}
        prefix = f"{self.home.profile}/"
        return {
            name.removeprefix(prefix): state
            for name, state in states.items()
            if name.startswith(prefix)
        }

    @property
    def sandboxes(self) -> tuple[str, ...]:
        """The sandbox of commands in a running gateway, once known."""
        if self.record is None or self.state is None:
            return ()
        return self.state.sandboxes.get(self.home.profile, ())

    @property
    def since(self) -> datetime | None:
        return self.record.started_at if self.record else None


def gateway_status(home: Home) -> GatewayStatus:
    """Read the status; a state left by another process is ignored."""
    record = running_gateway(home)
    path = Path(record.home) if record and record.home else home.path
    state = read_state(Home(home.root, path).gateway_state)
    if record is not None and state is not None and state.pid != record.pid:
        state = None
    return GatewayStatus(home=home, record=record, state=state)


def all_gateway_statuses(root: Path) -> list[GatewayStatus]:
    """Return the default profile first, then the others by name."""
    homes = [Home(root, root)]
    homes += [Home(root, root / "profiles" / name, name) for name in named_profiles(root)]
    return [gateway_status(home) for home in homes]
