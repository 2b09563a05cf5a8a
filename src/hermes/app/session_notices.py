"""Short notices about a session: to its chat, or kept until a terminal asks for them."""

from collections import OrderedDict
from collections.abc import Sequence

from hermes.gateway.messages import OutboxMessage, outbox_post, wake_outbox
from hermes.kit.clock import Clock
from hermes.ports.bus import Bus
from hermes.ports.store import Write
from hermes.schema.scope import Address

MAX_SESSIONS = 256


class SessionNotices:
    def __init__(self, clock: Clock, bus: Bus) -> None:
        self._clock = clock
        self._bus = bus
        self._waiting: OrderedDict[str, list[str]] = OrderedDict()
        self._progress: dict[str, str] = {}

    def has_notice(self, session: str) -> bool:
        return session in self._waiting

    def take(self, session: str) -> list[str]:
        """The notices not yet shown at a terminal; each is returned once."""
        self._progress.pop(session, None)
        return self._waiting.pop(session, [])

    def rows(self, key: str, address: Address | None, text: str) -> Sequence[Write]:
        """The outbox row of a notice to a chat; none for a terminal."""
        if address is None:
            return ()
        return [outbox_post(key, OutboxMessage(address=address, text=text, at=self._clock.now()))]

    def post(self, session: str, address: Address | None, text: str) -> None:
        """Call after the commit of `rows`."""
        if address is not None:
            wake_outbox(self._bus, address)
            return
        waiting = self._waiting.setdefault(session, [])
        progress = self._progress.pop(session, None)
        if progress in waiting:
            waiting.remove(progress)
        waiting.append(text)
        while len(self._waiting) > MAX_SESSIONS:
            old, _ = self._waiting.popitem(last=False)
            self._progress.pop(old, None)

    def post_progress(self, session: str, text: str) -> None:
        """Show at a terminal that something goes on, unless its result is there first."""
        self.post(session, None, text)
        self._progress[session] = text
