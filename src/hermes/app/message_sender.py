"""Words for other chats: found by the names that people write, put into the outbox."""

from collections.abc import Callable, Sequence

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.gateway.messages import OutboxMessage, outbox_post
from hermes.gateway.targets import ResolvedTargets, parse_targets, resolve_targets
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.message_sender import TargetResult
from hermes.ports.store import Store
from hermes.schema.scope import Address, Scope

_UNRESOLVED_TEXT = {
    "no_origin": "there is no chat that this came from",
    "no_home": "it has no home channel; `/sethome` in a chat makes it one",
    "no_home_anywhere": "no platform has a home channel",
    "unknown_platform": "no such platform is set up",
}


def _ignore_posted(address: Address) -> None:
    """No gateway here: the row waits for one."""


class OutboxSender:
    """Implements `hermes.ports.message_sender.Poster` for one profile."""

    def __init__(self, home: Home, env: Env, store: Store, clock: Clock) -> None:
        self._home = home
        self._env = env
        self._store = store
        self._clock = clock
        self._announce: Callable[[Address], None] = _ignore_posted

    def set_posted_callback(self, announce: Callable[[Address], None]) -> None:
        """Who is told that something waits for an address."""
        self._announce = announce

    def announce(self, address: Address) -> None:
        """Something waits for that address."""
        self._announce(address)

    def places(self, scope: Scope, target: str) -> Sequence[TargetResult]:
        goal, homes = self._goal(scope, target)
        near = {*homes, *([scope.address] if scope.address else [])}
        found = [TargetResult(_address_text(one), near=one in near) for one in goal.addresses]
        return [*found, *_unresolved_results(goal)]

    async def post(self, scope: Scope, target: str, text: str) -> Sequence[TargetResult]:
        goal, homes = self._goal(scope, target)
        rows = [(new_id("send"), address) for address in goal.addresses]
        now, here = self._clock.now(), scope.address
        # The session that asks for it knows; that of another place is told.
        replies = [
            (key, OutboxMessage(address=one, text=text, at=now, brought=one != here))
            for key, one in rows
        ]
        await self._store.commit(*(outbox_post(key, reply) for key, reply in replies))
        for _, address in rows:
            self._announce(address)
        sent = [TargetResult(_address_text(one), key, near=one in homes) for key, one in rows]
        return [*sent, *_unresolved_results(goal)]

    def home_of(self, scope: Scope) -> Address | None:
        """The home channel of the platform where that is asked, or else another one."""
        from hermes.app.send_targets import load_send_targets  # noqa: PLC0415 - as below

        online = [scope.address.channel] if scope.address else []
        homes = load_send_targets(self._home, self._env, online).homes
        return next((homes[name] for name in online if name in homes), None) or next(
            iter(homes.values()), None
        )

    async def carry(self, question: str, address: Address, text: str) -> None:
        """Into the outbox, once for the same question."""
        reply = OutboxMessage(address=address, text=text, at=self._clock.now(), question=question)
        await self._store.commit(outbox_post(f"{question}:carried", reply))
        self._announce(address)

    def _goal(self, scope: Scope, target: str) -> tuple[ResolvedTargets, set[Address]]:
        from hermes.app.send_targets import load_send_targets, resolve_names  # noqa: PLC0415 - few turns send

        online = [scope.address.channel] if scope.address else []
        places = load_send_targets(self._home, self._env, online)
        targets = resolve_names(parse_targets(target), places.chats)
        goal = resolve_targets(
            targets, places.homes, origin=scope.address, platforms=places.platforms
        )
        return goal, set(places.homes.values())


def _unresolved_results(goal: ResolvedTargets) -> list[TargetResult]:
    return [TargetResult(str(one.target), why=_UNRESOLVED_TEXT[one.why]) for one in goal.unreached]


def _address_text(address: Address) -> str:
    return ":".join(filter(None, [address.channel, address.chat, address.thread]))
