"""Send messages to other chats, and route follow-ups to where the work was started."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.gateway.followups import chat_followup, current_scope, is_chat
from hermes.gateway.messages import INBOX, OutboxMessage, outbox_post, wake_outbox
from hermes.gateway.questions import forwarded_choices
from hermes.gateway.targets import ResolvedTargets, parse_targets, resolve_targets
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.bus import Bus
from hermes.ports.channel import Attachment
from hermes.ports.message_sender import TargetResult
from hermes.ports.store import EnqueueItem, QueueItem, Store, Write
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import Address, Role, Scope

if TYPE_CHECKING:
    from hermes.app.chat_directory import SendTargets

_UNRESOLVED_TEXT = {
    "no_origin": "the request did not come from a chat",
    "no_home": "it has no home channel; set one with `/sethome` in a chat",
    "no_home_anywhere": "no platform has a home channel",
    "unknown_platform": "no such platform is configured",
}


class OutboxSender:
    """Implements `hermes.ports.message_sender.MessageSender` for one profile."""

    def __init__(self, home: Home, env: Env, store: Store, clock: Clock, bus: Bus) -> None:
        self._home = home
        self._env = env
        self._store = store
        self._clock = clock
        self._bus = bus

    def resolve(self, scope: Scope, target: str) -> Sequence[TargetResult]:
        targets, homes = self._resolve(scope, target)
        near = {*homes, *([scope.address] if scope.address else [])}
        found = [
            TargetResult(_address_text(address), trusted=address in near)
            for address in targets.addresses
        ]
        return [*found, *_unresolved_results(targets)]

    async def send(
        self, scope: Scope, target: str, text: str, *, attachments: tuple[Attachment, ...] = ()
    ) -> Sequence[TargetResult]:
        targets, homes = self._resolve(scope, target)
        rows = [(new_id("send"), address) for address in targets.addresses]
        now, origin = self._clock.now(), scope.address
        # The requesting session knows about it; the sessions of other chats are notified.
        replies = [
            (
                key,
                OutboxMessage(
                    address=target,
                    text=text,
                    at=now,
                    cross_post=target != origin and bool(text),
                    attachments=attachments,
                ),
            )
            for key, target in rows
        ]
        await self._store.commit(*(outbox_post(key, reply) for key, reply in replies))
        for _, address in rows:
            wake_outbox(self._bus, address)
        sent = [
            TargetResult(_address_text(target), key, trusted=target in homes)
            for key, target in rows
        ]
        return [*sent, *_unresolved_results(targets)]

    def owner_chat(self, scope: Scope) -> Address | None:
        """The home channel of the requester's platform, or any other."""
        homes = self._known_targets(scope).homes
        channel = scope.address.channel if scope.address else ""
        return homes.get(channel) or next(iter(homes.values()), None)

    async def forward(self, question: str, address: Address, text: str) -> None:
        """Put a question into the outbox, once."""
        reply = OutboxMessage(
            address=address,
            text=text,
            at=self._clock.now(),
            question=question,
            choices=forwarded_choices(question),
        )
        await self._store.commit(outbox_post(f"{question}:carried", reply))
        wake_outbox(self._bus, address)

    def _resolve(self, scope: Scope, target: str) -> tuple[ResolvedTargets, set[Address]]:
        from hermes.app.chat_directory import resolve_names  # noqa: PLC0415 - few turns send

        known = self._known_targets(scope)
        requested = resolve_names(parse_targets(target), known.chats)
        resolved = resolve_targets(
            requested, known.homes, origin=scope.address, platforms=known.platforms
        )
        return resolved, set(known.homes.values())

    def _known_targets(self, scope: Scope) -> "SendTargets":
        from hermes.app.chat_directory import load_send_targets  # noqa: PLC0415 - as above

        online = [scope.address.channel] if scope.address else []
        return load_send_targets(self._home, self._env, online)


def _unresolved_results(targets: ResolvedTargets) -> list[TargetResult]:
    return [
        TargetResult(str(one.target), reason=_UNRESOLVED_TEXT[one.reason])
        for one in targets.unresolved
    ]


def _address_text(address: Address) -> str:
    return ":".join(filter(None, [address.channel, address.chat, address.thread]))


MAX_SESSIONS = 10_000
"""How many sessions `has_followups` knows; elsewhere the next turn finds the message."""


SESSION_FOLLOWUPS = "followups"
"""Wake-ups for follow-ups in sessions that are not chats, by session."""


class FollowupMessage(User, frozen=True, tag="user"):
    """A message that starts a turn, with the role of the requester of the work."""

    role: Role = Role.OWNER
    news: bool = False


class FollowupRouter:
    """Implements `hermes.ports.message_sender.Followups`.

    A chat gets the message as if it had been sent there. In any other session it is an inbox
    item that the next turn picks up before it answers.
    """

    def __init__(self, store: Store, bus: Bus) -> None:
        self._store = store
        self._bus = bus
        self._sessions: dict[str, None] = {}

    async def current_scope(self, scope: Scope) -> Scope:
        """The scope in which the session continues now, such as after a reset."""
        return await current_scope(self._store, scope)

    def rows(
        self, scope: Scope, key: str, text: str, *, trust: Trust = Trust.DATA
    ) -> Sequence[Write]:
        if is_chat(scope):
            return [chat_followup(scope, key, text, trust)]
        message = FollowupMessage(key, (Text(text),), trust, scope.role, news=True)
        body = Raw(msgspec.json.encode(message))
        return [EnqueueItem(QueueItem(key=key, queue=INBOX, topic=scope.session, body=body))]

    def wake(self, scope: Scope) -> None:
        if is_chat(scope):
            self._bus.wake(INBOX, scope.key)
            return
        # Keep the most recent session last: the oldest ones are dropped first.
        self._sessions.pop(scope.session, None)
        self._sessions[scope.session] = None
        while len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._bus.wake(SESSION_FOLLOWUPS, scope.session)

    async def has_followups(self, session: str) -> bool:
        """Whether a session has a follow-up that no turn has picked up yet."""
        if session not in self._sessions:
            return False
        if session in await self._store.queues.topics(INBOX):
            return True
        self._sessions.pop(session, None)
        return False
