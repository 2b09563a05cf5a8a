"""A partner that outlives the gateway: where that is gone, somebody else goes on in its place."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from threading import Lock
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Struct, structs

from hermes.ipc.client import (
    AgentClient,
    CommandReply,
    ConversationOptions,
    ConversationState,
    GatewayGone,
    Greeting,
    RecentHistory,
    RequestNotReceived,
    ShowEvent,
    UsageReport,
    UserInput,
)
from hermes.schema.errors import HermesError, SessionBusy
from hermes.schema.events import Event, MessageAdded, Notice, Outcome, RunEnded

GATEWAY_BACK = "The gateway was away and is back; this chat goes on with it."
GATEWAY_GONE = "The gateway is gone; this chat goes on by itself."
TURN_CUT_OFF = "The gateway ended in the middle of this turn. What was done until then is kept."
_TRIES = 2
"""How often something is begun at a gateway that ends before it begins."""

T = TypeVar("T")
Wait: TypeAlias = Callable[[float], bool]
"""Lets so many seconds pass; False when somebody does not want to wait any more."""


class OpenClient(NamedTuple):
    """Somebody to talk to, for as long as `open` is; `notes` are for the person."""

    open: ExitStack
    partner: AgentClient
    notes: tuple[str, ...] = ()


class Reconnect(Protocol):
    """How somebody is found once the gateway is gone: at its door again, or in this process."""

    def __call__(self, start: ConversationOptions, wait: Wait, *, alone: bool) -> OpenClient: ...


class BusyRetry(Struct, frozen=True, kw_only=True):
    """Seconds that another process may hold on to the session, and those of one look at it."""

    busy: float = 65.0
    look: float = 0.2


class ReconnectingClient:
    """One thing at a time, as with any partner; what is said while nobody is there waits for it."""

    def __init__(
        self,
        met: OpenClient,
        start: ConversationOptions,
        search: Reconnect,
        patience: BusyRetry | None = None,
    ) -> None:
        self._met = met
        self._start = start
        self._search = search
        self._patience = patience or BusyRetry()
        self._notices: list[str] = []
        self._steering: set[str] = set()
        """Ids of words to the last turn that it has not been told to have heard."""
        self._lost = False
        self._fresh = False
        """Somebody was found anew, and has said nothing yet."""
        self._failed = False
        """Nobody was found; whoever says something next looks again."""
        self._closed = False
        self._opening = Lock()
        self._enough: SimpleQueue[None] = SimpleQueue()
        """Has something in it when what is being done is not wanted any more."""

    @property
    def greeting(self) -> Greeting:
        return self._met.partner.greeting

    @property
    def state(self) -> ConversationState:
        return self._met.partner.state

    def say(self, question: UserInput, show: ShowEvent) -> Outcome:
        self._enough = SimpleQueue()
        for attempt in range(1, _TRIES + 2):
            self._ensure_client(alone=attempt > _TRIES)
            self._steering = set()
            turn = _Turn(show, self._steering)
            told = self._tell(show)
            if not self._enough.empty():
                show(RunEnded("", Outcome.CANCELLED, "Interrupted.", "cancelled"))
                return Outcome.CANCELLED
            try:
                # Whoever asks about news may have been told all there is by now.
                wordless = not (question.parts or question.images)
                if told and wordless and not self._met.partner.news():
                    show(RunEnded("", Outcome.DONE))
                    return Outcome.DONE
                return self._begin(question, turn)
            except GatewayGone:
                self._lost = True
                if turn.begun:
                    return self._end(turn, show)
        raise HermesError("Nobody could be found who answers.", hint="Say it once more.")

    def answer(self, question: str, words: str) -> None:
        # Whoever waits for the turn is told that it is over.
        with suppress(GatewayGone):
            self._met.partner.answer(question, words)

    def steer(self, word: str, text: str) -> None:
        # What the turn did not hear is still to be said: it is not lost with the gateway.
        self._steering.add(word)
        with suppress(GatewayGone):
            self._met.partner.steer(word, text)

    def news(self) -> bool:
        """Only says that somebody is gone: whoever types is not kept from it by a search."""
        if self._failed:
            return False
        if self._lost or self._notices:
            return True
        try:
            return self._met.partner.news()
        except GatewayGone:
            self._lost = True
            return True

    def command(self, line: str) -> CommandReply:
        self._enough = SimpleQueue()
        try:
            return self._asked(lambda partner: partner.command(line), again=RequestNotReceived)
        except GatewayGone as error:
            raise HermesError(
                "The gateway ended while it did this, so that nobody knows whether it was done.",
                hint="Look, and say it again if it was not.",
            ) from error

    def report(self, ended: RunEnded | None) -> UsageReport:
        return self._asked(lambda partner: partner.report(ended))

    def past(self) -> RecentHistory:
        return self._asked(lambda partner: partner.past())

    def interrupt(self) -> None:
        """Whoever does not want to wait for the gateway goes on without it."""
        self._enough.put(None)
        self._met.partner.interrupt()

    def close(self) -> None:
        """A search that is going on is given up."""
        self._closed = True
        self._enough.put(None)
        with self._opening:
            self._met.open.close()

    def _asked(self, work: Callable[[AgentClient], T], again: type[GatewayGone] = GatewayGone) -> T:
        """Asked once more of somebody else, where that can do no harm."""
        self._ensure_client()
        try:
            return work(self._met.partner)
        except GatewayGone as error:
            self._lost = True
            if not isinstance(error, again):
                raise
        self._ensure_client(alone=True)
        return work(self._met.partner)

    def _begin(self, question: UserInput, turn: "_Turn") -> Outcome:
        """The lease of a gateway that has ended may lapse only after a while."""
        left = self._patience.busy if self._fresh else 0.0
        self._fresh = False
        while True:
            try:
                return self._met.partner.say(question, turn.hear)
            except SessionBusy:
                if turn.begun or left <= 0 or not self._wait(self._patience.look):
                    raise
                left -= self._patience.look

    def _end(self, turn: "_Turn", show: ShowEvent) -> Outcome:
        """A turn that was cut off gets its last word; who goes on is looked for first."""
        if turn.ended is not None:
            return turn.ended
        try:
            self._ensure_client()
        finally:
            self._tell(show)
            show(RunEnded("", Outcome.CANCELLED, TURN_CUT_OFF, "cancelled"))
        return Outcome.CANCELLED

    def _tell(self, show: ShowEvent) -> bool:
        """Whether there was anything to tell."""
        notices, self._notices = self._notices, []
        for notice in notices:
            show(Notice(notice))
        return bool(notices)

    def _ensure_client(self, *, alone: bool = False) -> None:
        """Have somebody to talk to. Raises why there is nobody."""
        if not self._lost:
            return
        with self._opening:
            if self._closed:
                raise GatewayGone("This chat is over.")
            start = _resume_options(self._start, self.state)
            start = structs.replace(start, unheard=tuple(sorted(self._steering)))
            self._met.open.close()
            self._failed = True
            self._met = met = self._search(start, self._wait, alone=alone)
            self._lost = self._failed = False
            self._fresh = True
        self._notices += met.notes

    def _wait(self, seconds: float) -> bool:
        try:
            self._enough.get(timeout=seconds)
        except Empty:
            return True
        # Kept, for the next one who looks.
        self._enough.put(None)
        return False


class _Turn:
    """What was told of a turn until now."""

    def __init__(self, show: ShowEvent, steering: set[str]) -> None:
        self._show = show
        self._steering = steering
        self.begun = False
        self.ended: Outcome | None = None

    def hear(self, event: Event) -> None:
        self.begun = True
        if isinstance(event, RunEnded):
            self.ended = event.outcome
        elif isinstance(event, MessageAdded):
            self._steering.discard(event.message.id)
        self._show(event)


def _resume_options(start: ConversationOptions, state: ConversationState) -> ConversationOptions:
    """In the session as it is: with its own model and folder, once it has any."""
    if not state.started:
        return structs.replace(start, resume="", latest=False)
    return structs.replace(
        start, resume=state.session, latest=False, model="", provider="", moved=False
    )
