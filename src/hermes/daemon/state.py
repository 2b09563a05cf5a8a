"""What the gateway says of itself in `gateway_state.json`, and reading it back with patience."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from hermes.daemon.record import KIND
from hermes.kit.files import read_ordinary

Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]


class Phase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    DRAINING = "draining"
    STOPPED = "stopped"
    STARTUP_FAILED = "startup_failed"


AT_WORK = frozenset({Phase.RUNNING, Phase.DEGRADED})


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
    kind: str = KIND
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
        fields = msgspec.json.decode(read_ordinary(path), type=dict[str, msgspec.Raw])
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
    return state if state.gateway_state and state.kind == KIND else None
