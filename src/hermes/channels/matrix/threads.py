"""Threads in which the agent takes part: no one needs to mention it there."""

from hermes.channels.matrix.client_api import ClientApi
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import NotSent, Offline, UnknownOutcome

MAX_THREADS = 5_000


class Threads:
    """Knows where the agent wrote; the server is asked about other threads once."""

    def __init__(self, api: ClientApi) -> None:
        self._api = api
        self._known: LruMap[tuple[str, str], str] = LruMap(MAX_THREADS)
        """Threads by room and first event: `yes` or `no`."""
        self._of: LruMap[str, str] = LruMap(MAX_THREADS)
        """The thread of each message that belongs to the room's session."""

    def join(self, room: str, thread: str) -> None:
        """Record that the agent has written in the thread."""
        self._known.put((room, thread), "yes")

    def remember(self, message: str, thread: str) -> None:
        self._of.put(message, thread)

    def thread_of(self, message: str | None) -> str | None:
        return self._of.get(message) if message else None

    async def takes_part(self, room: str, thread: str, user: str) -> bool:
        """Whether `user`, the agent, started the thread or wrote in it."""
        known = self._known.get((room, thread))
        if known is None:
            known = "yes" if await self._ask(room, thread, user) else "no"
            self._known.put((room, thread), known)
        return known == "yes"

    async def _ask(self, room: str, thread: str, user: str) -> bool:
        try:
            first = await self._api.event(room, thread)
        except Offline:
            raise
        except (NotSent, UnknownOutcome):
            return False
        summary = first.notes.relations.thread
        wrote = summary is not None and summary.current_user_participated
        return wrote or first.sender == user
