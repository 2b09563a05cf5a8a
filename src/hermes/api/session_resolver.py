"""Find or create a request's session: the named one, the one it continues, or a new one."""

import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, structs

from hermes.api.context import SESSION_ID_HEADER
from hermes.api.errors import ApiError, invalid, not_found
from hermes.api.settings import ModelRoute
from hermes.api.turn_gate import SOURCE, is_own_session, principal_for, require_own_session
from hermes.api.turn_input import TurnInput
from hermes.app.build import App
from hermes.ports.store import AppendMessage, OpenSession
from hermes.schema.errors import ConfigError, ModelError, NotFound, SessionBusy
from hermes.schema.events import RunEnded
from hermes.schema.messages import Assistant, Media, Message, Trust, Usage, User, text_of
from hermes.schema.scope import OWNER, Role
from hermes.schema.sessions import Session

MAX_REMEMBERED = 10_000
MAX_SAME_OPENING = 4
"""Number of conversations with the same opening that can be distinguished after a restart."""
_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+=-]{0,255}")


class ResolvedSession(Struct, frozen=True):
    """A turn's session. `history` must still be stored if the session is new.

    With `unchecked`, opening the session shows whether it is new.
    """

    session: Session
    new: bool
    history: Sequence[Message] = ()
    unchecked: bool = False


def id_from_header(value: str | None, header: str) -> str:
    """Return the id from a header, or "" without one. Raises `ApiError`."""
    if value is None or not value.strip():
        return ""
    if not _ID_PATTERN.fullmatch(value.strip()) or ".." in value:
        message = f"{header} may contain up to 256 letters, digits and . _ : @ + = -"
        raise invalid(message, param=header, code="invalid_session_id")
    return value.strip()


class SessionResolver:
    """Finds the session of a request; ids are derived from a secret so that they cannot be guessed.

    Ends of recent conversations are remembered; after a restart they are found by their opening.
    """

    def __init__(self, key: str) -> None:
        self._secret = hashlib.sha256(f"session ids of {key}".encode()).digest()
        self._ends: OrderedDict[bytes, str] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._busy: set[str] = set()

    async def find(
        self, app: App, prompt: TurnInput, session_id: str, key: str, *, checked: bool = False
    ) -> ResolvedSession:
        """Find the session by the headers `session_id` and `key`; release it with `release`.

        With `checked`, check that the id of a new session is free.
        """
        if session_id:
            resolved = await self._find_named(app, prompt, session_id, key)
        elif prompt.history:
            resolved = await self._find_continued(app, prompt, key)
        else:
            session_id = await self._free_id(app, prompt, checked=checked)
            resolved = ResolvedSession(
                new_session(app, session_id, key), new=True, unchecked=not checked
            )
        if session_id and session_id in self._busy:
            raise SessionBusy(
                f"Session {session_id} is busy with another turn.", hint="Wait until it ends."
            )
        self._busy.add(resolved.session.id)
        return resolved

    def release(self, resolved: ResolvedSession) -> None:
        """Release the session after its turn, or after a collision with an existing one."""
        self._busy.discard(resolved.session.id)
        if resolved.unchecked:
            self._known[resolved.session.id] = None
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)

    def remember(self, app: App, history: Iterable[Message], session: str) -> None:
        """Remember the end of a conversation, so that the next request continues this session."""
        self._ends[self._digest(app, visible_history(history))] = session
        if len(self._ends) > MAX_REMEMBERED:
            self._ends.popitem(last=False)

    async def find_end(self, app: App, history: Iterable[Message]) -> Session | None:
        """Return the session that ends with this history, if it was remembered; only once."""
        remembered = self._ends.pop(self._digest(app, visible_history(history)), "")
        if not remembered or remembered in self._busy:
            return None
        session = await find_session(app, remembered)
        return None if remembered in self._busy else session

    async def _find_named(
        self, app: App, prompt: TurnInput, named: str, key: str
    ) -> ResolvedSession:
        if session := await find_session(app, named):
            return ResolvedSession(require_own_session(session, Role.OWNER), new=False)
        return ResolvedSession(new_session(app, named, key), new=True, history=prompt.history)

    async def _find_continued(self, app: App, prompt: TurnInput, key: str) -> ResolvedSession:
        if session := await self.find_end(app, prompt.history):
            return ResolvedSession(session, new=False)
        return await self._find_by_opening(app, prompt, key)

    async def _find_by_opening(self, app: App, prompt: TurnInput, key: str) -> ResolvedSession:
        history = visible_history(prompt.history)
        for session_id in self._opening_ids(app, prompt):
            session = await find_session(app, session_id)
            if session_id in self._busy or (session and not is_own_session(session, Role.OWNER)):
                continue
            if session is None:
                return ResolvedSession(
                    new_session(app, session_id, key), new=True, history=prompt.history
                )
            rows = await app.store.archive_for(OWNER).messages(session_id)
            if (
                visible_history(row.message for row in rows) == history
                and session_id not in self._busy
            ):
                return ResolvedSession(session, new=False)
        return ResolvedSession(new_session(app, key=key), new=True, history=prompt.history)

    async def _free_id(self, app: App, prompt: TurnInput, *, checked: bool) -> str:
        """Return an unused session id, if possible one that can be found again by its opening."""
        for session_id in self._opening_ids(app, prompt):
            if session_id in self._known or (
                checked and await find_session(app, session_id) is not None
            ):
                continue
            if session_id not in self._busy:
                return session_id
        return f"api-{secrets.token_hex(16)}"

    def _opening_ids(self, app: App, prompt: TurnInput) -> Iterator[str]:
        """Yield the ids of sessions that begin like this one."""
        users = (one for one in (*prompt.history, prompt.question) if isinstance(one, User))
        first = next(users, None)
        opening = visible_history([first]) if first else ()
        for number in range(MAX_SAME_OPENING):
            yield f"api-{self._digest(app, prompt.instructions, opening, number).hex()}"

    def _digest(self, app: App, *what: object) -> bytes:
        data = repr((app.home.profile, *what)).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=16, key=self._secret).digest()


def visible_history(messages: Iterable[Message]) -> tuple[tuple[str, str, int], ...]:
    """Reduce messages to what a client can see and reproduces exactly.

    Tool calls, program messages, the split into several answers and whitespace are left out. Images
    are only counted.
    """
    history: list[tuple[str, str, int]] = []
    for message in messages:
        if not isinstance(message, User | Assistant):
            continue
        if isinstance(message, User) and message.trust is Trust.PROGRAM:
            continue
        role = "user" if isinstance(message, User) else "assistant"
        text = "".join(text_of(message).split())
        images = sum(isinstance(part, Media) for part in message.parts)
        if not text and not images:
            continue
        if history and history[-1][0] == role:
            _, previous, previous_images = history.pop()
            history.append((role, previous + text, previous_images + images))
        else:
            history.append((role, text, images))
    return tuple(history)


def with_route(session: Session, route: ModelRoute | None) -> Session:
    """Return the session with the model of the route, which it keeps."""
    if route is None:
        return session
    return structs.replace(session, model=route.model, provider=route.provider)


async def prepare_session(
    app: App, resolved: ResolvedSession, route: ModelRoute | None
) -> ResolvedSession:
    """Store the history of a new session and apply the model of a route."""
    session = with_route(resolved.session, route)
    if not resolved.history:
        return ResolvedSession(session, resolved.new)
    now = session.started_at
    writes = [AppendMessage(session.id, "", message, now) for message in resolved.history]
    await app.store.commit(OpenSession(session), *writes)
    return ResolvedSession(session, new=False)


CLIENT_ERRORS = (ApiError, ConfigError, ModelError)
"""Errors that end a request without an answer, while the store works."""


async def discard_unanswered(
    app: App, created: ResolvedSession, ended: RunEnded | None, error: Exception
) -> None:
    """Delete the session of a failed turn, if it was created for it and the model said nothing.

    Only for requests that name no session: their client cannot know this one.
    """
    # Without an end, only a history was stored; a session that could not be opened is not ours.
    is_ours = created.new and (ended is not None or bool(created.history))
    if not is_ours or (ended is not None and ended.usage != Usage()):
        return
    if isinstance(error, ApiError):
        error.headers.pop(SESSION_ID_HEADER, None)
    await app.store.archive_for(OWNER).delete([created.session.id])


def new_session(app: App, identity: str = "", key: str = "", role: Role = Role.OWNER) -> Session:
    """Create a session; generated ids cannot be guessed."""
    identity = identity or f"api-{secrets.token_hex(16)}"
    return Session(
        id=identity,
        principal=principal_for(role, identity),
        started_at=app.clock.now(),
        source=SOURCE,
        # Prefixed, so that no caller can take over the session of a chat.
        key=f"{SOURCE}:{key}" if key else "",
        cwd=app.conversation.session.cwd,
    )


async def find_session(app: App, identity: str) -> Session | None:
    try:
        return await app.store.archive_for(OWNER).get(identity)
    except NotFound:
        return None


async def get_session(app: App, identity: str) -> Session:
    """Get a session of any role; to continue it, use `get_own_session`."""
    session = await find_session(app, identity)
    if session is None:
        raise not_found(f"Session {identity[:100]!r} not found.", "session_not_found")
    return session


async def get_own_session(app: App, identity: str, role: Role) -> Session:
    """Get a session that a turn of this role may continue. Raises `ApiError`."""
    return require_own_session(await get_session(app, identity), role)
