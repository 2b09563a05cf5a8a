"""In which session a chat completion goes on: the one it names, the one it continues, a new one."""

import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, structs

from hermes.api.errors import invalid
from hermes.api.settings import ModelRoute
from hermes.api.turn_gate import SOURCE, is_own_session, require_own_session
from hermes.api.turn_input import TurnInput
from hermes.app.build import App
from hermes.ports.store import AppendMessage, OpenSession
from hermes.schema.errors import NotFound, SessionBusy
from hermes.schema.messages import Assistant, Media, Message, Trust, User, text_of
from hermes.schema.scope import OWNER, Role
from hermes.schema.sessions import Session

SESSION_KEY_HEADER = "X-Hermes-Session-Key"
MAX_REMEMBERED = 10_000
MAX_SAME_OPENING = 4
"""How many talks that began with the same words are told apart after a restart."""
_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+=-]{0,255}")


class ResolvedSession(Struct, frozen=True):
    """Where the turn runs. `past` must still be written down, when the session is new.

    `supposed`: nobody has looked whether there is such a session; writing it will tell.
    """

    session: Session
    new: bool
    past: Sequence[Message] = ()
    supposed: bool = False


def id_from_header(value: str | None, header: str) -> str:
    """An id from a header, empty when there is none. Raises `ApiError`."""
    if value is None or not value.strip():
        return ""
    if not _ID_PATTERN.fullmatch(value.strip()) or ".." in value:
        told = f"{header} may have 256 letters, digits and . _ : @ + = -"
        raise invalid(told, param=header, code="invalid_session_id")
    return value.strip()


class SessionResolver:
    """Finds the session of a request. Ids come from a secret, so that nobody can work them out.

    The ends of recent talks are remembered; after a restart they are found by their beginning.
    """

    def __init__(self, key: str) -> None:
        self._secret = hashlib.sha256(f"session ids of {key}".encode()).digest()
        self._ends: OrderedDict[bytes, str] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._busy: set[str] = set()

    async def find(
        self, app: App, prompt: TurnInput, named: str, key: str, *, sure: bool = False
    ) -> ResolvedSession:
        """`named` and `key` are what the headers say; the place is to be given to `leave`.

        `sure` wants a place that is not only supposed to be free.
        """
        if named:
            place = await self._named(app, prompt, named, key)
        elif prompt.past:
            place = await self._going_on(app, prompt, key)
        else:
            identity = await self._free(app, prompt, sure=sure)
            place = ResolvedSession(_new_session(app, identity, key), new=True, supposed=not sure)
        if named and named in self._busy:
            raise SessionBusy(
                f"Session {named} is in the middle of a turn.", hint="Wait for its end."
            )
        self._busy.add(place.session.id)
        return place

    def leave(self, place: ResolvedSession) -> None:
        """The turn is over, or there was a session already: who begins anew goes elsewhere."""
        self._busy.discard(place.session.id)
        if place.supposed:
            self._known[place.session.id] = None
            _trim(self._known)

    def remember(self, app: App, past: Iterable[Message], session: str) -> None:
        """The talk has come this far: who goes on from here goes on in this session."""
        self._ends[self._end(app, past)] = session
        _trim(self._ends)

    async def _named(self, app: App, prompt: TurnInput, named: str, key: str) -> ResolvedSession:
        if session := await _find_session(app, named):
            return ResolvedSession(require_own_session(session, Role.OWNER), new=False)
        return ResolvedSession(_new_session(app, named, key), new=True, past=prompt.past)

    async def _going_on(self, app: App, prompt: TurnInput, key: str) -> ResolvedSession:
        remembered = self._ends.pop(self._end(app, prompt.past), "")
        if remembered and remembered not in self._busy:
            session = await _find_session(app, remembered)
            if session is not None and remembered not in self._busy:
                return ResolvedSession(session, new=False)
        return await self._find_by_opening(app, prompt, key)

    async def _find_by_opening(self, app: App, prompt: TurnInput, key: str) -> ResolvedSession:
        wanted = visible_history(prompt.past)
        for twin in range(MAX_SAME_OPENING):
            identity = self._identity(app, prompt, twin)
            session = await _find_session(app, identity)
            if identity in self._busy or (session and not is_own_session(session, Role.OWNER)):
                continue
            if session is None:
                return ResolvedSession(_new_session(app, identity, key), new=True, past=prompt.past)
            rows = await app.store.archive_for(OWNER).messages(identity)
            if (
                visible_history(row.message for row in rows) == wanted
                and identity not in self._busy
            ):
                return ResolvedSession(session, new=False)
        return ResolvedSession(_new_session(app, _random_id(), key), new=True, past=prompt.past)

    async def _free(self, app: App, prompt: TurnInput, *, sure: bool) -> str:
        """An id that no session is known to have: one that can be found again, if one is left."""
        for twin in range(MAX_SAME_OPENING):
            identity = self._identity(app, prompt, twin)
            if identity in self._known or (sure and await _find_session(app, identity) is not None):
                continue
            if identity not in self._busy:
                return identity
        return _random_id()

    def _identity(self, app: App, prompt: TurnInput, twin: int) -> str:
        users = (one for one in (*prompt.past, prompt.asked) if isinstance(one, User))
        first = next(users, None)
        words = visible_history([first]) if first else ()
        mark = repr((app.home.profile, prompt.instructions, words, twin)).encode()
        return f"api-{self._seal(mark).hex()}"

    def _end(self, app: App, past: Iterable[Message]) -> bytes:
        mark = repr((app.home.profile, visible_history(past))).encode("utf-8", "surrogatepass")
        return self._seal(mark)

    def _seal(self, mark: bytes) -> bytes:
        return hashlib.blake2b(mark, digest_size=16, key=self._secret).digest()


def visible_history(messages: Iterable[Message]) -> tuple[tuple[str, str, int], ...]:
    """Who said what, without what a client may not see or may write another way.

    That is: our own tools' work, the house's nudges, where a turn was in several answers, and
    blanks. Pictures are only counted.
    """
    said: list[tuple[str, str, int]] = []
    for message in messages:
        match message:
            case User(trust=Trust.PROGRAM):
                continue
            case User() | Assistant():
                who = "user" if isinstance(message, User) else "assistant"
            case _:
                continue
        text = "".join(text_of(message).split())
        pictures = sum(isinstance(part, Media) for part in message.parts)
        if not text and not pictures:
            continue
        if said and said[-1][0] == who:
            _, before, more = said.pop()
            said.append((who, before + text, more + pictures))
        else:
            said.append((who, text, pictures))
    return tuple(said)


def _trim(memory: OrderedDict[Any, Any]) -> None:
    while len(memory) > MAX_REMEMBERED:
        memory.popitem(last=False)


async def prepare_session(
    app: App, place: ResolvedSession, route: ModelRoute | None
) -> ResolvedSession:
    """Write down what a new session begins with, and give it the model of a route."""
    session = place.session
    if route is not None:
        session = structs.replace(session, model=route.model, provider=route.provider)
    if not place.past:
        return ResolvedSession(session, place.new)
    now = session.started_at
    said = [AppendMessage(session.id, "", message, now) for message in place.past]
    await app.store.commit(OpenSession(session), *said)
    return ResolvedSession(session, new=False)


async def _find_session(app: App, identity: str) -> Session | None:
    try:
        return await app.store.archive_for(OWNER).get(identity)
    except NotFound:
        return None


def _new_session(app: App, identity: str, key: str) -> Session:
    return Session(
        id=identity,
        started_at=app.clock.now(),
        source=SOURCE,
        # Under a name of its own, so that no caller can take the place of a chat.
        key=f"{SOURCE}:{key}" if key else "",
        cwd=app.conversation.session.cwd,
    )


def _random_id() -> str:
    return f"api-{secrets.token_hex(16)}"
