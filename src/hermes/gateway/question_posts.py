"""Which post asks which question, so that a reply to the post is an answer to that question."""

from datetime import timedelta

import msgspec
from msgspec import Raw

from hermes.approvals import rows
from hermes.kit.clock import Clock
from hermes.ports.matters import Matter, PutMatter
from hermes.ports.store import Store
from hermes.schema.scope import Address

KIND = "question_post"
KEPT = rows.KEPT + timedelta(days=1)
"""Longer than the question itself, so that its post is never one that asks nothing."""
NO_QUESTION = "none"
"""In place of an id: it is a reply, and not to a question."""
_ASKED = "asked"


class QuestionPosts:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def noted(self, question: str, address: Address, post: str) -> PutMatter:
        """To be written with the receipt of the post."""
        matter = Matter(
            kind=KIND,
            id=_name(address, post),
            session="",
            state=_ASKED,
            at=self._clock.now(),
            body=Raw(msgspec.json.encode(question)),
            open=False,
        )
        return PutMatter(matter)

    async def question_in(self, address: Address, post: str | None) -> str:
        """The id of the question that the post asks; empty when it asks none that is known."""
        if not post:
            return ""
        matter = await self._store.matters.get(KIND, _name(address, post))
        return (matter and msgspec.json.decode(matter.body, type=str | None)) or ""

    async def forget_old(self) -> int:
        return await self._store.matters.forget(KIND, self._clock.now() - KEPT)


def _name(address: Address, post: str) -> str:
    """A thread of a chat has no posts of its own names."""
    return msgspec.json.encode((address.channel, address.chat, post)).decode()
