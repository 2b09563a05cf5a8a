"""Names of people and chats of a workspace, asked for once."""

import logging
from collections.abc import Iterable, Mapping

from hermes.channels.slack.objects import Chat, Person
from hermes.channels.slack.web_api import WebApi
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import NotSent

log = logging.getLogger(__name__)

MAX_REMEMBERED = 5_000


class Directory:
    """If the app lacks the scopes for names, ids are shown instead."""

    def __init__(self) -> None:
        self._people: LruMap[str, Person] = LruMap(MAX_REMEMBERED)
        self._chats: LruMap[str, Chat] = LruMap(MAX_REMEMBERED)

    async def person(self, api: WebApi, user: str) -> Person:
        if (known := self._people.get(user)) is None:
            known = Person(id=user)
            # Bots without a user have a different kind of id.
            if user.startswith(("U", "W")):
                try:
                    known = await api.person(user)
                except NotSent as error:
                    log.info("the name of %s cannot be read: %s", user, error)
            self._people.put(user, known)
        return known

    async def names(self, api: WebApi, users: Iterable[str]) -> Mapping[str, str]:
        return {user: (await self.person(api, user)).shown_name for user in users}

    async def chat(self, api: WebApi, chat: str) -> Chat:
        if (known := self._chats.get(chat)) is None:
            known = Chat(id=chat, is_im=chat.startswith("D"))
            if not known.is_im:
                try:
                    known = await api.chat(chat)
                except NotSent as error:
                    log.info("the name of %s cannot be read: %s", chat, error)
            self._chats.put(chat, known)
        return known
