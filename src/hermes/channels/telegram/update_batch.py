"""Order a batch of updates, group it by chat, and keep the parts of an album together."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from hermes.channels.telegram.objects import Update, UpdateNumber
from hermes.channels.unreadable_updates import UnreadableUpdates


def read_update(data: bytes, unreadable: UnreadableUpdates) -> Update:
    """Read an update; an unreadable one becomes empty, so that it is acknowledged with the others.

    Raises `MsgspecError` if it has no number.
    """
    found = unreadable.decode(data, Update)
    return found or Update(update_id=msgspec.json.decode(data, type=UpdateNumber).update_id)


class UpdateBatch:
    def __init__(self, updates: Iterable[Update]) -> None:
        unique = {update.update_id: update for update in updates}
        self.updates = [unique[number] for number in sorted(unique)]

    @property
    def first_id(self) -> int:
        return self.updates[0].update_id

    @property
    def last_id(self) -> int:
        return self.updates[-1].update_id

    @property
    def album_sizes(self) -> Counter[str]:
        return Counter(album for update in self.updates if (album := _album(update)))

    def by_chat(self) -> list[list[Sequence[Update]]]:
        """The updates of each chat in order; an album stands where its first part was."""
        chats: dict[int, dict[str, list[Update]]] = {}
        for update in self.updates:
            groups = chats.setdefault(chat_of(update), {})
            groups.setdefault(_album(update) or str(update.update_id), []).append(update)
        return [[*groups.values()] for groups in chats.values()]


def _album(update: Update) -> str:
    group = update.message.media_group_id if update.message is not None else ""
    return f"album {group}" if group else ""


def chat_of(update: Update) -> int:
    message = update.message or update.edited_message
    if message is not None:
        return message.chat.id
    if update.message_reaction is not None:
        return update.message_reaction.chat.id
    query = update.callback_query
    return query.message.chat.id if query is not None and query.message is not None else 0
