"""When a chat begins a new session by itself: after a long silence, or once a day."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum

from msgspec import Struct

from hermes.config.sections.chats import SessionReset
from hermes.kit.text import plural
from hermes.schema.scope import platform_of


class ResetReason(StrEnum):
    IDLE = "idle"
    DAILY = "daily"


class ResetPolicy(Struct, frozen=True, kw_only=True):
    """The rule of a platform wins over that of a kind of chat, and that over the general one."""

    general: SessionReset = SessionReset()
    by_type: Mapping[str, SessionReset] = {}
    by_platform: Mapping[str, SessionReset] = {}
    zone: tzinfo | None = None

    def due(self, key: str, last: datetime, now: datetime) -> ResetReason | None:
        """Whether the session of this key, last active then, has come to its end."""
        rules = self._rules(key)
        if rules.mode in {"idle", "both"} and now - last >= timedelta(minutes=rules.idle_minutes):
            return ResetReason.IDLE
        if rules.mode in {"daily", "both"} and last < self._day_began(now, rules.at_hour):
            return ResetReason.DAILY
        return None

    def asks(self, key: str) -> bool:
        """Whether anything can ever be due, so that nobody looks in vain."""
        return self._rules(key).mode != "none"

    def waits_for(self, key: str, begun: Sequence[datetime], now: datetime) -> bool:
        """Whether one of the processes that began then is young enough to keep a session open."""
        longest = timedelta(hours=self._rules(key).bg_process_max_age_hours)
        return any(now - one < longest for one in begun)

    def sentence(self, key: str, reason: ResetReason) -> str:
        """What to tell the chat; nothing where the settings want none."""
        rules = self._rules(key)
        platform, _ = _place(key)
        if not rules.notify or platform in rules.notify_exclude:
            return ""
        why = {
            ResetReason.IDLE: f"nobody wrote for {_length(rules.idle_minutes)}",
            ResetReason.DAILY: "a new day has begun",
        }
        return f"This is a new session, because {why[reason]}. /resume goes back to earlier ones."

    def _rules(self, key: str) -> SessionReset:
        platform, kind = _place(key)
        return self.by_platform.get(platform) or self.by_type.get(kind) or self.general

    def _day_began(self, now: datetime, hour: int) -> datetime:
        here = now.astimezone(self.zone)
        began = here.replace(hour=min(hour, 23), minute=0, second=0, microsecond=0)
        return began if began <= here else began - timedelta(days=1)


def _place(key: str) -> tuple[str, str]:
    """Platform and kind of chat are the third and fourth part of a session key."""
    parts = key.split(":")
    return (platform_of(parts[2]), parts[3]) if len(parts) > 3 else ("", "")


def _length(minutes: int) -> str:
    if minutes % 60 or minutes < 60:
        return plural(minutes, "minute")
    hours = minutes // 60
    return "an hour" if hours == 1 else f"{hours} hours"
