"""Transcripts as a turn begins: cached from the last turn, with a result for every lost call."""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from itertools import dropwhile

from msgspec import Struct

from hermes.agent.history import History, open_calls, unanswered_calls
from hermes.agent.tool_calls import failed_result, interrupted_result
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.ports.approvals import RecoveredQuestions
from hermes.ports.store import AppendMessage, Fence, SettleIntent, Store, Write
from hermes.schema.messages import Message
from hermes.schema.tools import Effect

NOTHING_RECOVERED = RecoveredQuestions()
MAX_BYTES = 5_000_000
"""Total memory limit."""

BYTES_PER_MESSAGE = 1_000
"""Overhead of a message in addition to its text."""


class _CachedTranscript(Struct, frozen=True):
    generation: int
    history: History
    size: int


class TranscriptCache:
    """Recently used transcripts, so that the next turn need not read them again.

    A cached transcript is valid if no other process held the session in between, that is, if the
    lease's generation follows directly on the cached one.
    """

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self._limit = limit
        self._cached: OrderedDict[str, _CachedTranscript] = OrderedDict()
        self._size = 0

    def take(self, session: str, generation: int) -> History | None:
        """Take the current transcript out of the cache; None if it must be read from the store."""
        cached = self._cached.pop(session, None)
        if cached is None:
            return None
        self._size -= cached.size
        return cached.history if cached.generation + 1 == generation else None

    def put(self, session: str, generation: int, history: History) -> None:
        """Put a transcript back; the least recently used ones are evicted."""
        self.take(session, -1)
        size = history.memory_bytes + BYTES_PER_MESSAGE * len(history)
        self._cached[session] = _CachedTranscript(generation, history, size)
        self._size += size
        while self._size > self._limit:
            _, oldest = self._cached.popitem(last=False)
            self._size -= oldest.size


async def close_lost_calls(
    store: Store,
    clock: Clock,
    fence: Fence,
    history: Sequence[Message],
    recovered: RecoveredQuestions = NOTHING_RECOVERED,
    *,
    started_only: bool = False,
) -> list[Message]:
    """Return the history with a result for every call that a crash interrupted, stored durably.

    Only a call that was waiting for a person, and the calls after it, are left to be run. Calls to
    be resumed get none; `open_calls` finds them. With `started_only`, calls that did not
    start here get none either: a client may have them and still return their results.
    """
    session, lost = fence.session, unanswered_calls(history)
    if not lost:
        return list(history)
    started = {intent.call: intent for intent in await store.open_intents(session)}
    resumable = _resumable_calls(history, recovered, started)
    writes: list[Write] = []
    results: list[Message] = []
    if started_only:
        known = started.keys() | recovered.results.keys()
        resumable |= {call for call, _ in lost if call not in known}
    for call in [call for call, _ in lost if call not in resumable]:
        # Without an intent the call was a read or had not started: nothing was changed either way.
        intent = started.get(call)
        effect, run = (intent.effect, intent.run) if intent else (Effect.READ, "")
        if call in recovered.results:
            result = failed_result(call, recovered.results[call])
        else:
            result = interrupted_result(call, effect, started=True)
        results.append(result)
        writes += [AppendMessage(session, run, result, clock.now()), SettleIntent(session, call)]
    if writes:
        failpoint("recovery.before_close")
        await store.commit(*writes, fence=fence)
        failpoint("recovery.after_close")
    return [*history, *results]


def _resumable_calls(
    history: Sequence[Message], recovered: RecoveredQuestions, started: Collection[str]
) -> set[str]:
    """The last answer's calls, beginning with the first waiting one, unless they have started."""
    calls = dropwhile(
        lambda call: call not in recovered.waiting, [call.id for call in open_calls(history)]
    )
    return {call for call in calls if call in recovered.waiting or call not in started}
