"""Callbacks: the address that a program named, at which it hears what comes after its request.

A session has at most one. What is due there lies in the outbox like an answer to a chat, is
signed as our own webhooks are, and is tried until it was taken or given up on, visibly. Its
secret is kept sealed: whoever has the database alone cannot read it.
"""

from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct

from hermes.api.entry import SOURCE
from hermes.api.errors import ApiError, invalid
from hermes.api.outside import is_public_url, parsed
from hermes.api.seal import Seal
from hermes.gateway.letters import Reply, post_reply
from hermes.ports.matters import Matter, PutMatter
from hermes.ports.store import Post, Store
from hermes.schema.scope import Address

KIND = "api_callback"
LONGEST_URL = 2_000
SHORTEST_SECRET = 16
LONGEST_SECRET = 256
ON, OFF = "on", "off"

Fields: TypeAlias = dict[str, object]


class Callback(Struct, frozen=True):
    """`secret` is there only in rows from before secrets were sealed."""

    url: str
    secret: str = ""
    sealed: str = ""

    def secret_by(self, seal: Seal) -> str:
        """What calls are signed with. Raises `SealBroken`."""
        return seal.opened(self.sealed, self.url) if self.sealed else self.secret


class Due(Struct, frozen=True, kw_only=True):
    """What is sent, as JSON. `id` stays the same however often it is sent."""

    id: str
    type: str
    timestamp: str
    data: Fields


def checked(url: str | None, secret: str | None, seal: Seal, *, private: bool) -> Callback | None:
    """None when no callback is asked for. Raises `ApiError` for one that may not be called."""
    if not url:
        if secret:
            raise _refused("A callback_secret needs a callback_url.", "callback_url")
        return None
    allowed = parsed(url) is not None if private else is_public_url(url)
    if len(url) > LONGEST_URL or not allowed:
        told = "callback_url must be http(s), with a host, and no private address"
        raise _refused(f"{told} (see callback_allow_private).", "callback_url")
    if not secret or not SHORTEST_SECRET <= len(secret) <= LONGEST_SECRET:
        told = f"callback_secret has {SHORTEST_SECRET} to {LONGEST_SECRET} characters."
        raise _refused(told, "callback_secret")
    if not secret.isascii() or not secret.isprintable():
        raise _refused("callback_secret must be printable ASCII.", "callback_secret")
    return Callback(url, sealed=seal.closed(secret, url))


def registered(session: str, callback: Callback | None, now: datetime) -> PutMatter:
    """From now on; without a callback the session has none any more."""
    body = Raw(msgspec.json.encode(callback))
    state = OFF if callback is None else ON
    matter = Matter(
        kind=KIND,
        id=session,
        session=session,
        state=state,
        at=now,
        body=body,
        open=callback is not None,
    )
    return PutMatter(matter)


async def callback_of(store: Store, session: str) -> Callback | None:
    matter = await store.matters.get(KIND, session)
    return msgspec.json.decode(matter.body, type=Callback | None) if matter else None


def place_of(session: str) -> Address:
    """Where a session of the API is reached."""
    return Address(SOURCE, session)


def due_post(key: str, session: str, kind: str, now: datetime, data: Fields) -> Post:
    """To be committed together with what it tells of."""
    due = Due(id=key, type=kind, timestamp=now.isoformat(), data={"session_id": session, **data})
    text = msgspec.json.encode(due).decode()
    # What answers to its own key is ours: nobody else who posts there can say so.
    return post_reply(key, Reply(address=place_of(session), text=text, at=now, reply_to=key))


def _refused(told: str, param: str) -> ApiError:
    return invalid(told, param=param, code="invalid_callback")
