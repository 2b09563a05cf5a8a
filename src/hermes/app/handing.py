"""A session of the terminal goes on in the home chat of a platform."""

from msgspec import structs

from hermes.app.build import App
from hermes.app.places import places_of
from hermes.gateway.keyholders import keys_at
from hermes.gateway.later import moved_to
from hermes.gateway.letters import Reply, post_reply
from hermes.kit.ids import new_id
from hermes.ports.store import ChangeSession
from hermes.schema.errors import UsageError
from hermes.schema.scope import OWNER, Address
from hermes.schema.sessions import Session, SessionChange

_OVER = "another was handed over"


class HandedOver:
    """Implements `hermes.commands.services.Handing`."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def hand_over(self, session: Session, platform: str) -> str:
        app, address = self._app, self._home_of(platform)
        key = await self._key_at(address)
        now = app.clock.now()
        here = SessionChange(key=key, system="", ended_at=None, end_reason="")
        over = SessionChange(ended_at=now, end_reason=_OVER)
        name = f" “{session.title}”" if session.title else ""
        told = f"The session{name} of the terminal goes on here. Write to go on with it."
        reply = post_reply(new_id("send"), Reply(address=address, text=told, at=now))
        place = moved_to(session.id, key, address, now)
        async with app.runner.holding(session.id) as lease:
            while (old := await app.store.seen_by(OWNER).by_key(key)) and old.id != session.id:
                # Whoever is in the middle of something there is not cut off.
                async with app.runner.holding(old.id) as theirs:
                    await app.store.commit(ChangeSession(old.id, over), fence=theirs.fence)
            moved = ChangeSession(session.id, here)
            await app.store.commit(moved, place, reply, fence=lease.fence)
        app.outgoing.announce(address)
        return f"{platform}, chat {address.chat}"

    def _home_of(self, platform: str) -> Address:
        places = places_of(self._app.home, self._app.env)
        if platform in places.homes:
            return structs.replace(places.homes[platform], channel=platform)
        if platform not in places.platforms:
            known = ", ".join(sorted(places.homes)) or "none"
            raise UsageError(
                f"There is no platform {platform!r}.", hint=f"Those with a home channel: {known}."
            )
        raise UsageError(
            f"{platform} has no home channel.", hint="/sethome in a chat there makes it one."
        )

    async def _key_at(self, address: Address) -> str:
        """Under which name the owner has spoken there; in a group others may have, too."""
        keys = await keys_at(self._app.store, address)
        archive = self._app.store.seen_by(OWNER)
        for key in keys:
            session = await archive.by_key(key)
            if session is not None and session.principal == OWNER:
                return key
        if len(keys) == 1:
            return keys[0]
        raise UsageError(
            "You have not spoken with me in that chat yet.", hint="Write something there first."
        )
