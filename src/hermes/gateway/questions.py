"""Which post asks which question, so that a reply to the post is an answer to that question."""

from datetime import timedelta

import msgspec
from msgspec import Raw

from hermes.approvals import approval_store
from hermes.approvals.messages import choice_of_word
from hermes.approvals.questions import split_answer
from hermes.approvals.service import Answerer, ApprovalService
from hermes.gateway.chat_sessions import ChatSessions
from hermes.gateway.messages import Admitted, InboxMessage
from hermes.kit.clock import Clock
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import Store
from hermes.schema.messages import Text
from hermes.schema.questions import ApprovalChoice
from hermes.schema.scope import Address

QUESTION_POST_KIND = "question_post"
RETENTION = approval_store.RETENTION + timedelta(days=1)
"""Longer than the question itself, so that its post is never one that asks nothing."""
NOT_A_QUESTION = "none"
"""In place of an id: it is a reply, and not to a question."""
_ASKED = "asked"


class QuestionPosts:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def noted(self, question: str, address: Address, post: str) -> PutRecord:
        """To be written with the receipt of the post."""
        matter = StateRecord(
            kind=QUESTION_POST_KIND,
            id=_record_id(address, post),
            session="",
            state=_ASKED,
            at=self._clock.now(),
            body=Raw(msgspec.json.encode(question)),
            open=False,
        )
        return PutRecord(matter)

    async def question_in(self, address: Address, post: str | None) -> str:
        """The id of the question that the post asks; empty when it asks none that is known."""
        if not post:
            return ""
        matter = await self._store.records.get(QUESTION_POST_KIND, _record_id(address, post))
        return (matter and msgspec.json.decode(matter.body, type=str | None)) or ""

    async def forget_old(self) -> int:
        return await self._store.records.forget(QUESTION_POST_KIND, self._clock.now() - RETENTION)


def _record_id(address: Address, post: str) -> str:
    """A thread of a chat has no posts of its own names."""
    return msgspec.json.encode((address.channel, address.chat, post)).decode()


class QuestionAnswers:
    def __init__(
        self, approvals: ApprovalService, sessions: ChatSessions, posts: QuestionPosts
    ) -> None:
        self._approvals = approvals
        self._sessions = sessions
        self._posts = posts

    async def takes(self, welcome: Admitted, letter: InboxMessage) -> bool:
        """Whether this is an answer to something that is asked of whoever wrote it."""
        words = _only_text(letter)
        if not words:
            return False
        question = await self._question(letter)
        if question in {"", NOT_A_QUESTION} and not await self._approvals.waits():
            return False
        who = await self._who(welcome, letter)
        if question == NOT_A_QUESTION:
            return await self._choice(who, words) is not None
        return await self._approvals.takes(who, words, question=question)

    async def take(self, welcome: Admitted, letter: InboxMessage) -> str | None:
        """What to tell them; None when it is something to say instead."""
        who, words = await self._who(welcome, letter), _only_text(letter)
        question = await self._question(letter)
        if question == NOT_A_QUESTION:
            choice = await self._choice(who, words)
            if choice is None:
                return None
            _, name = split_answer(words)
            return (await self._approvals.answer(who, choice, question=name or NOT_A_QUESTION)).told
        heard = await self._approvals.reply(who, words, question=question)
        return None if heard is None or heard.news else heard.told

    async def _question(self, letter: InboxMessage) -> str:
        """The id of the question that this replies to; empty when it is no reply at all."""
        found = await self._posts.question_in(letter.address, letter.reply_to)
        return found or (NOT_A_QUESTION if letter.reply_to else "")

    async def _choice(self, who: Answerer, words: str) -> ApprovalChoice | None:
        """What yes or no to another post chooses, and None when it is something to say.

        It may be about that post, so it decides only what it names; without a name it is asked
        which is meant. The post may also be a question whose receipt is not here yet, or was lost.
        """
        first, name = split_answer(words)
        if not await self._approvals.asks(who, name):
            return None
        if not name and not await self._approvals.takes(who, words):
            return None
        return choice_of_word(first)

    async def _who(self, welcome: Admitted, letter: InboxMessage) -> Answerer:
        session = await self._sessions.find(welcome.key)
        return Answerer(
            session=session.id if session else "",
            principal=welcome.principal,
            role=welcome.role,
            address=letter.address,
        )


def _only_text(letter: InboxMessage) -> str:
    match letter.user.parts:
        case (Text(text),):
            return text.strip()
        case _:
            return ""
