"""What the supervisor of channels knows, in the words of the state file."""

from collections.abc import Mapping
from typing import assert_never

from hermes.daemon.state import Phase, PlatformState
from hermes.gateway.supervisor import ChannelState, Condition

_WELL = frozenset({Condition.LISTENING, Condition.WAITING, Condition.PAUSED})


def platforms_of(channels: Mapping[str, ChannelState]) -> dict[str, PlatformState]:
    return {name: _platform(channel) for name, channel in channels.items()}


def phase_of(channels: Mapping[str, ChannelState]) -> Phase:
    """Degraded as long as one of them fails; one that connects, or rests by order, does not."""
    well = all(channel.condition in _WELL for channel in channels.values())
    return Phase.RUNNING if well else Phase.DEGRADED


def _platform(channel: ChannelState) -> PlatformState:
    reason = channel.reason or None
    match channel.condition:
        case Condition.LISTENING:
            return PlatformState(state="connected", updated_at=channel.since)
        case Condition.WAITING:
            return PlatformState(state="connecting", updated_at=channel.since)
        case Condition.PAUSED:
            return PlatformState(state="paused", updated_at=channel.since)
        case Condition.CLOSED:
            return PlatformState(state="disconnected", updated_at=channel.since)
        case Condition.FAILED | Condition.DEAF:
            return PlatformState(
                state="retrying",
                error_code=channel.condition.value,
                error_message=reason,
                updated_at=channel.since,
            )
        case _:
            assert_never(channel.condition)
