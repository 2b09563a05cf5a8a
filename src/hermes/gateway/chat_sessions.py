"""Open chat sessions, and reset them after a long silence or once a day."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum

from msgspec import Struct

from hermes.config.sections.messaging import SessionReset
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_session_id
from hermes.kit.text import plural
from hermes.ports.store import ChangeSession, OpenSession, Store
from hermes.schema.errors import StoreError
from hermes.schema.scope import OWNER, platform_of
from hermes.schema.sessions import Session, SessionChange


class ResetReason(StrEnum):
    IDLE = "idle"
    DAILY = "daily"


class ResetPolicy(Struct, frozen=True, kw_only=True):
    """Reset rules; a platform's rule overrides the chat type's, which overrides the general one."""

    general: SessionReset = SessionReset()
    by_type: Mapping[str, SessionReset] = {}
    by_platform: Mapping[str, SessionReset] = {}
    zone: tzinfo | None = None

    def due(self, key: str, last: datetime, now: datetime) -> ResetReason | None:
        """Return why a session last active at `last` must be reset, or None."""
        rules = self._rules(key)
        if rules.mode in {"idle", "both"} and now - last >= timedelta(minutes=rules.idle_minutes):
            return ResetReason.IDLE
        if rules.mode in {"daily", "both"} and last < self._day_began(now, rules.at_hour):
            return ResetReason.DAILY
        return None

    def is_enabled(self, key: str) -> bool:
        """Whether any reset can become due."""
        return self._rules(key).mode != "none"

    def keeps_open(self, key: str, started: Sequence[datetime], now: datetime) -> bool:
        """Whether a process started recently enough to keep the session open."""
        longest = timedelta(hours=self._rules(key).bg_process_max_age_hours)
        return any(now - one < longest for one in started)

    def notice(self, key: str, reason: ResetReason) -> str:
        """Return the notice for the chat, or "" if notices are off."""
        rules = self._rules(key)
        platform, _ = _platform_and_chat_type(key)
        if not rules.notify or platform in rules.notify_exclude:
            return ""
        cause = "a new day has begun"
        if reason is ResetReason.IDLE:
            cause = f"there was no message for {_duration(rules.idle_minutes)}"
        return f"This is a new session because {cause}. Use /resume to go back."

    def _rules(self, key: str) -> SessionReset:
        platform, kind = _platform_and_chat_type(key)
        return self.by_platform.get(platform) or self.by_type.get(kind) or self.general

    def _day_began(self, now: datetime, hour: int) -> datetime:
        here = now.astimezone(self.zone)
        began = here.replace(hour=min(hour, 23), minute=0, second=0, microsecond=0)
        return began if began <= here else began - timedelta(days=1)


def _platform_and_chat_type(key: str) -> tuple[str, str]:
    """Return the third and fourth part of a session key."""
    parts = key.split(":")
    return (platform_of(parts[2]), parts[3]) if len(parts) > 3 else ("", "")


def _duration(minutes: int) -> str:
    if minutes % 60 or minutes < 60:
        return plural(minutes, "minute")
    hours = minutes // 60
    return "an hour" if hours == 1 else f"{hours} hours"


_TRIES = 5


class OpenedSession(Struct, frozen=True, kw_only=True):
    """The session to continue in, and why the previous one ended."""

    session: Session
    new: bool = False
    previous: Session | None = None
    reason: str = ""
    notice: str = ""


class ChatSessions:
    """`running` returns when a session's processes started; they keep it open."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        cwd: str,
        resets: ResetPolicy,
        running: Callable[[Session], Sequence[datetime]],
    ) -> None:
        self._store = store
        self._archive = store.archive_for(OWNER)
        self._clock = clock
        self._cwd = cwd
        self._resets = resets
        self._running = running

    async def find(self, key: str) -> Session | None:
        return await self._archive.by_key(key)

    async def current(self, key: str, channel: str, principal: str) -> Session:
        """Return the open session, or begin a new one."""
        found = await self.find(key)
        return found or await self.begin(key, channel, principal)

    async def open_for_turn(self, key: str, channel: str, principal: str) -> OpenedSession:
        """Return the session for the next turn, resetting one that is due."""
        found = await self._archive.by_key(key)
        if found is not None and self._resets.is_enabled(key):
            last = await self._archive.active_at(found.id)
            now = self._clock.now()
            reason = self._resets.due(key, last, now)
            if reason and not self._resets.keeps_open(key, self._running(found), now):
                await self.end(found, reason)
                return OpenedSession(
                    session=await self.begin(key, channel, principal),
                    new=True,
                    previous=found,
                    reason=reason,
                    notice=self._resets.notice(key, reason),
                )
        if found is not None:
            return OpenedSession(session=found)
        return OpenedSession(session=await self.begin(key, channel, principal), new=True)

    async def begin(self, key: str, channel: str, principal: str, title: str = "") -> Session:
        for tries_left in reversed(range(_TRIES)):
            now = self._clock.now()
            session = Session(
                id=new_session_id(now),
                started_at=now,
                source=platform_of(channel),
                principal=principal,
                key=key,
                title=title,
                cwd=self._cwd,
            )
            try:
                await self._store.commit(OpenSession(session))
            except StoreError:
                # Session ids are based on the second, so concurrent ones may collide.
                if not tries_left or not await self._exists(session.id):
                    raise
                continue
            failpoint("sessions.opened")
            return session
        raise AssertionError("unreachable")

    async def end(self, session: Session, reason: str) -> None:
        change = SessionChange(ended_at=self._clock.now(), end_reason=reason)
        await self._store.commit(ChangeSession(session.id, change))

    async def _exists(self, session: str) -> bool:
        try:
            await self._archive.get(session)
        except StoreError:
            return False
        return True
