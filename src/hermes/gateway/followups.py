"""Return results that arrive after a turn to the chat's session as inbox messages."""

from msgspec import structs

from hermes.gateway.messages import CHAT_KEY_PREFIX, BusyMode, InboxMessage, inbox_item
from hermes.ports.chat_records import PutSessionLocation, SessionLocation
from hermes.ports.store import EnqueueItem, Store
from hermes.schema.errors import NotFound
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import OWNER, Scope


def is_chat(scope: Scope) -> bool:
    return scope.address is not None and scope.key.startswith(CHAT_KEY_PREFIX)


def chat_followup(scope: Scope, key: str, text: str, trust: Trust = Trust.DATA) -> EnqueueItem:
    """Return the write of a follow-up to a chat.

    It waits for a running turn, whatever the busy mode; several follow-ups share one turn.
    """
    if scope.address is None:
        raise ValueError("a follow-up needs the address of a chat")
    message = InboxMessage(
        user=User(key, (Text(text),), trust),
        address=scope.address,
        # It must not be sent as a reply to the message that started the earlier turn.
        asker=structs.replace(scope.asker, message=""),
        principal=scope.principal,
        role=scope.role,
        busy_mode=BusyMode.COLLECT,
    )
    return EnqueueItem(inbox_item(key, scope.key, message))


def put_session_location(session: str, message: InboxMessage, key: str) -> PutSessionLocation:
    """Return the write to commit when a session moves to the chat of this message."""
    location = SessionLocation(
        session=session,
        key=key,
        address=message.address,
        principal=message.principal,
        role=message.role,
        asker=structs.replace(message.asker, message=""),
    )
    return PutSessionLocation(location)


async def current_scope(store: Store, scope: Scope) -> Scope:
    """Return the scope where the conversation continues now.

    Follows a session that was resumed in another chat. If the session has ended, the scope stays:
    the next session with its key gets the follow-up.
    """
    try:
        session = await store.archive_for(OWNER).get(scope.session)
    except NotFound:
        return scope
    if session.ended_at is not None or session.key in {"", scope.key}:
        return scope
    location = await store.chats.location(scope.session)
    if location is None or location.key != session.key:
        return scope
    return structs.replace(
        scope,
        key=location.key,
        address=location.address,
        principal=location.principal,
        role=location.role,
        asker=location.asker,
    )
