"""What Home Assistant sends: the parts of its frames that the channel uses."""

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct


class State(Struct, frozen=True, kw_only=True):
    """The state of a device."""

    entity_id: str
    state: str
    last_changed: datetime
    attributes: dict[str, Any] = {}

    @property
    def domain(self) -> str:
        return self.entity_id.partition(".")[0]

    @property
    def name(self) -> str:
        friendly_name = self.attributes.get("friendly_name")
        return friendly_name if isinstance(friendly_name, str) and friendly_name else self.entity_id

    @property
    def reading(self) -> str:
        """The state with its unit."""
        unit = self.attributes.get("unit_of_measurement")
        return f"{self.state} {unit}" if isinstance(unit, str) and unit else self.state


class StateChange(Struct, frozen=True, kw_only=True):
    """A state is None while the device does not exist."""

    old_state: State | None = None
    new_state: State | None = None


class SentMessage(Struct, frozen=True, kw_only=True):
    """A message from an automation or a dashboard to the agent."""

    message: str = ""
    user: str = ""


class Context(Struct, frozen=True, kw_only=True):
    """What caused an event; all events of one automation run share it."""

    id: str = ""


class Event(Struct, frozen=True, kw_only=True):
    """`data` depends on the type; `time_fired` has microseconds."""

    event_type: str = ""
    data: Raw = Raw(b"{}")
    context: Context = Context()
    time_fired: str = ""


class Failure(Struct, frozen=True, kw_only=True):
    message: str = ""


class Frame(Struct, frozen=True, kw_only=True):
    """A frame of the websocket; `type` says which members are set."""

    type: str
    id: int = 0
    success: bool = True
    message: str = ""
    event: Raw = Raw(b"null")
    result: Raw = Raw(b"null")
    error: Failure | None = None
