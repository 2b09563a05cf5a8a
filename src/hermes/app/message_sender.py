"""Put messages to other chats, and forwarded questions, into the outbox."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.gateway.messages import OutboxMessage, outbox_post, wake_outbox
from hermes.gateway.questions import forwarded_choices
from hermes.gateway.targets import (
    LocalTarget,
    OriginTarget,
    UnresolvedReason,
    address_name,
    parse_targets,
    resolve_targets,
    target_name,
)
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.bus import Bus
from hermes.ports.channel import Attachment
from hermes.ports.message_sender import SendTarget
from hermes.ports.store import Store
from hermes.schema.scope import OWNER, Address, Scope

if TYPE_CHECKING:
    from hermes.app.chat_directory import SendTargets

_UNRESOLVED_TEXT = {
    UnresolvedReason.NO_ORIGIN: "the request did not come from a chat",
    UnresolvedReason.NO_HOME: "the platform has no home channel; set one with `/sethome` in a chat",
    UnresolvedReason.NO_HOME_ANYWHERE: "no platform has a home channel",
    UnresolvedReason.UNKNOWN_PLATFORM: "no such platform is configured",
}
_PAGE = SendTarget("origin", is_page=True)
_LOCAL = SendTarget("local", reason="this is a file, not a chat")


class OutboxSender:
    """Implements `hermes.ports.message_sender.MessageSender` for one profile."""

    def __init__(self, home: Home, env: Env, store: Store, clock: Clock, bus: Bus) -> None:
        self._home = home
        self._env = env
        self._store = store
        self._clock = clock
        self._bus = bus

    def resolve(self, scope: Scope, target: str) -> Sequence[SendTarget]:
        from hermes.app.chat_directory import resolve_names  # noqa: PLC0415 - few turns send

        known = self._known_targets(scope)
        requested = resolve_names(parse_targets(target), known.chats)
        on_page = _is_on_page(scope) and OriginTarget() in requested
        found = resolve_targets(
            [one for one in requested if not (on_page and one == OriginTarget())],
            known.homes,
            origin=scope.address,
            platforms=known.platforms,
        )
        trusted = {*known.homes.values(), scope.address}
        return [
            *(
                SendTarget(address_name(address), address, trusted=address in trusted)
                for address in found.addresses
            ),
            *(
                SendTarget(target_name(missing.target), reason=_UNRESOLVED_TEXT[missing.reason])
                for missing in found.unresolved
            ),
            *([_PAGE] if on_page else []),
            *([_LOCAL] if LocalTarget() in requested else []),
        ]

    async def send(
        self,
        scope: Scope,
        targets: Sequence[SendTarget],
        text: str,
        *,
        attachments: tuple[Attachment, ...] = (),
    ) -> None:
        addresses = [target.address for target in targets if target.address is not None]
        # The requesting session knows about it; the sessions of other chats are notified.
        messages = [
            OutboxMessage(
                address=address,
                text=text,
                at=self._clock.now(),
                cross_post=address != scope.address and bool(text),
                attachments=attachments,
            )
            for address in addresses
        ]
        await self._store.commit(*(outbox_post(new_id("send"), message) for message in messages))
        for address in addresses:
            wake_outbox(self._bus, address)

    def owner_chat(self, scope: Scope) -> Address | None:
        """The home channel of the requester's platform, otherwise the first one."""
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

    def _known_targets(self, scope: Scope) -> "SendTargets":
        from hermes.app.chat_directory import load_send_targets  # noqa: PLC0415 - as above

        own = [scope.address.channel] if scope.address else []
        return load_send_targets(self._home, self._env, own)


def _is_on_page(scope: Scope) -> bool:
    """Whether the owner's session began on the dashboard; it has no chat to send to."""
    return scope.address is None and scope.principal == OWNER and scope.source == "web"
