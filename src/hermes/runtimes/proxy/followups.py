"""Deliver what the remote gateway says in a session after its turn.

When a background job there ends, the remote agent answers by itself. We follow the session, and
store such an answer as a message here, which starts a turn that delivers it.
"""

import logging
from collections.abc import Sequence
from contextlib import aclosing
from datetime import timedelta
from itertools import takewhile

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Raw, Struct

from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.retry import Backoff
from hermes.kit.sse import SseTooLong
from hermes.ports.message_sender import Followups
from hermes.ports.runtime_sessions import PutRuntimeSession, RuntimeSession
from hermes.ports.store import Store
from hermes.runtimes.proxy.chat_runtime import RemoteGateway, remote_session_id
from hermes.runtimes.proxy.errors import LinkBroken
from hermes.runtimes.proxy.gateway_client import (
    RUNS_PATH,
    GatewayClient,
    RequestRejected,
)
from hermes.schema.errors import HermesError, ModelError, StoreError
from hermes.schema.messages import Assistant, Message, User, text_of
from hermes.schema.scope import Scope

log = logging.getLogger(__name__)

RUNTIME = "proxy"
FOLLOWUP_PREFIX = "far-said:"
"""Prefix of the ids of such messages."""
MAX_FOLLOWED = 32
"""Sessions to follow, those with the newest turns."""
RUN_RETENTION = timedelta(hours=24)
"""How long the remote gateway keeps its runs."""
BACKOFF = Backoff(base=1.0, cap=60.0)


class FollowedSession(Struct, frozen=True, kw_only=True):
    """`after` is the remote number of the last message processed; `since` is its start time."""

    scope: Scope
    after: int = 0
    since: float = 0.0


class _SessionMessage(Struct, frozen=True):
    id: str
    seq: int
    role: str
    content: object = None
    timestamp: float = 0.0
    run_id: str | None = None


def followup_text(messages: Sequence[Message]) -> str:
    """Return the text of the followups that are to be delivered."""
    late = takewhile(lambda message: not isinstance(message, Assistant), reversed(messages))
    texts = [text_of(message) for message in late if is_followup(message)]
    return "\n\n".join(reversed(texts))


def is_followup(message: Message) -> bool:
    return isinstance(message, User) and message.id.startswith(FOLLOWUP_PREFIX)


class RemoteFollowups:
    """Keep `run` running while chats are served."""

    def __init__(
        self, remote: RemoteGateway, clock: Clock, store: Store, followups: Followups
    ) -> None:
        self._remote = remote
        self._clock = clock
        self._store = store
        self._followups = followups
        self._following: dict[str, anyio.CancelScope] = {}
        self._known: dict[str, FollowedSession] = {}
        self._wake_event = anyio.Event()

    def is_followed(self, session: str) -> bool:
        return session in self._known

    async def follow(self, scope: Scope, created: float) -> None:
        """Follow the session of a turn that was started there at the remote time `created`."""
        session = remote_session_id(scope)
        known = self._known.pop(session, None) or await self._read(session)
        known = known or FollowedSession(scope=scope, since=created)
        followed = msgspec.structs.replace(known, scope=scope)
        self._known[session] = followed
        await self._store.commit(self._put(followed))
        self._wake_event.set()

    async def run(self) -> None:
        try:
            await self._restore()
        except (StoreError, *JSON_ERRORS) as error:
            log.warning("cannot read the followed sessions: %s", error)
        async with anyio.create_task_group() as group:
            while True:
                self._wake_event = anyio.Event()
                self._follow_newest(group)
                await self._wake_event.wait()

    async def _restore(self) -> None:
        for record in await self._store.runtime_sessions.newest(RUNTIME, MAX_FOLLOWED):
            if self._clock.now() - record.at < RUN_RETENTION / 2:
                followed = msgspec.json.decode(record.state, type=FollowedSession)
                self._known.setdefault(record.id, followed)

    def _follow_newest(self, group: TaskGroup) -> None:
        for session in list(self._known)[:-MAX_FOLLOWED]:
            del self._known[session]
            if session in self._following:
                self._following[session].cancel()
        for session in self._known:
            if session not in self._following:
                self._following[session] = anyio.CancelScope()
                group.start_soon(self._follow, session, self._following[session])

    async def _follow(self, session: str, scope: anyio.CancelScope) -> None:
        attempts = 0
        with scope:
            while session in self._known:
                before = self._known[session].after
                try:
                    await self._listen(session)
                except RequestRejected as error:
                    if error.status in {401, 403, 404, 405}:
                        log.info("session %s cannot be followed there: %s", session, error)
                        self._known.pop(session, None)
                        break
                except (LinkBroken, HermesError, SseTooLong, *JSON_ERRORS) as error:
                    log.info("following session %s failed: %s", session, error)
                except Exception:
                    # A failure must not affect the other sessions.
                    log.exception("following session %s failed", session)
                moved = session in self._known and self._known[session].after > before
                attempts = 1 if moved else attempts + 1
                await self._clock.sleep(BACKOFF.delay(attempts))
        self._following.pop(session, None)

    async def _listen(self, session: str) -> None:
        async with GatewayClient(self._remote, self._clock) as client:
            after = self._known[session].after
            path = f"/api/sessions/{session}/events"
            async with aclosing(client.stream(path, after)) as events:
                async for event in events:
                    if event.event == "message":
                        message = msgspec.json.decode(event.data, type=_SessionMessage)
                        await self._on_message(client, session, message)

    async def _on_message(
        self, client: GatewayClient, session: str, message: _SessionMessage
    ) -> None:
        if (known := self._known.get(session)) is None:
            return
        moved = msgspec.structs.replace(known, after=max(known.after, message.seq))
        if message.seq > known.after and await self._is_late_message(client, message, known):
            text = message.content if isinstance(message.content, str) else ""
            changes = self._followups.rows(known.scope, f"{FOLLOWUP_PREFIX}{message.id}", text)
            await self._store.commit(*changes, self._put(moved))
            self._followups.wake(known.scope)
        if (now := self._known.get(session)) is not None:
            self._known[session] = msgspec.structs.replace(now, after=moved.after)

    async def _is_late_message(
        self, client: GatewayClient, message: _SessionMessage, known: FollowedSession
    ) -> bool:
        """Return whether the message belongs to no run: the output of runs is delivered anyway."""
        if message.role != "assistant" or not message.run_id or message.timestamp < known.since:
            return False
        if not isinstance(message.content, str) or not message.content.strip():
            return False
        try:
            await client.call_with_retries("GET", f"{RUNS_PATH}/{message.run_id}")
        except ModelError as error:
            cause = error.__cause__
            if isinstance(cause, RequestRejected) and cause.status == 404:
                return True
            raise
        return False

    async def _read(self, session: str) -> FollowedSession | None:
        """Ignore old entries: the remote gateway no longer knows whether those were runs."""
        record = await self._store.runtime_sessions.get(RUNTIME, session)
        if record is None or self._clock.now() - record.at > RUN_RETENTION / 2:
            return None
        return msgspec.json.decode(record.state, type=FollowedSession)

    def _put(self, followed: FollowedSession) -> PutRuntimeSession:
        record = RuntimeSession(
            runtime=RUNTIME,
            id=remote_session_id(followed.scope),
            session=followed.scope.session,
            at=self._clock.now(),
            state=Raw(msgspec.json.encode(followed)),
        )
        return PutRuntimeSession(record)
