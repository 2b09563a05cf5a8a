"""Map posts and buttons to the questions they ask, so that replies and presses answer them."""

from collections.abc import Mapping
from datetime import timedelta

from hermes.approvals import approval_store
from hermes.approvals.messages import choice_of_word
from hermes.approvals.questions import split_answer
from hermes.approvals.service import Answerer, ApprovalService
from hermes.gateway.chat_sessions import ChatSessions
from hermes.gateway.messages import Admitted, InboxMessage
from hermes.kit.clock import Clock
from hermes.ports.channel import Choice, Choices
from hermes.ports.chat_records import PutQuestionPost
from hermes.ports.store import Store
from hermes.schema.messages import Text
from hermes.schema.questions import ApprovalChoice, Question, QuestionKind
from hermes.schema.scope import Address

BUTTON_LABELS = {
    ApprovalChoice.ONCE: "Allow once",
    ApprovalChoice.SESSION: "Allow for this session",
    ApprovalChoice.ALWAYS: "Always allow",
    ApprovalChoice.DENY: "Deny",
}
BUTTON_SIGNS = {
    ApprovalChoice.ONCE: "✅",
    ApprovalChoice.SESSION: "🔁",
    ApprovalChoice.ALWAYS: "♾️",
    ApprovalChoice.DENY: "❌",
}
CLOSED = "This question is closed."
RETENTION = approval_store.RETENTION + timedelta(days=1)
"""Longer than the question itself, so that a reply to its post is still recognized."""
NOT_A_QUESTION = "none"
"""Placeholder id of a reply to a post that is not a question."""


def question_choices(question: Question, message: InboxMessage) -> Choices | None:
    """Return the buttons of a question; the text of the question lists the answers, too.

    `message` began the turn that asks.
    """
    requester = ""
    if question.kind is QuestionKind.CLARIFY:
        labels = {str(number): label for number, label in enumerate(question.choices, 1)}
    elif question.elsewhere:
        # Only the owner can answer it, in their own chat.
        labels = {}
    else:
        labels = {choice: BUTTON_LABELS[ApprovalChoice(choice)] for choice in question.choices}
        if question.answerable_by == message.principal:
            requester = message.asker.user
    return _choices(question.id, labels, requester)


def forwarded_choices(question: str) -> Choices | None:
    """Return the buttons of a request that was forwarded to the owner."""
    once, deny = ApprovalChoice.ONCE, ApprovalChoice.DENY
    return _choices(question, {once: BUTTON_LABELS[once], deny: BUTTON_LABELS[deny]})


def _choices(question: str, labels: Mapping[str, str], requester: str = "") -> Choices | None:
    # A press reports the question and the word that would answer it.
    choices = tuple(
        Choice(label, f"{question}:{word}", _sign(word)) for word, label in labels.items()
    )
    return Choices(choices, in_text=True, requester=requester) if choices else None


def _sign(word: str) -> str:
    """Return the emoji of a decision; numbered answers have none of their own."""
    return next((sign for choice, sign in BUTTON_SIGNS.items() if choice == word), "")


class QuestionPosts:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def record(self, question: str, address: Address, post: str) -> PutQuestionPost:
        """Return the write to commit with the receipt of the post."""
        return PutQuestionPost(address, post, question, self._clock.now())

    async def question_in(self, address: Address, post: str | None) -> str:
        return await self._store.chats.question_in(address, post) if post else ""

    async def forget_old(self) -> int:
        return await self._store.chats.forget_question_posts(self._clock.now() - RETENTION)


class QuestionAnswers:
    def __init__(
        self, approvals: ApprovalService, sessions: ChatSessions, posts: QuestionPosts
    ) -> None:
        self._approvals = approvals
        self._sessions = sessions
        self._posts = posts

    async def is_answer(self, admitted: Admitted, message: InboxMessage) -> bool:
        """Whether the message answers a question its sender may answer."""
        if not (text := _only_text(message)):
            return False
        question = await self._question(message)
        if question in {"", NOT_A_QUESTION} and not await self._approvals.has_open_questions():
            return False
        answerer = await self._answerer(admitted, message)
        if question == NOT_A_QUESTION:
            return await self._choice(answerer, text) is not None
        return await self._approvals.would_answer(answerer, text, question=question)

    async def answer(self, admitted: Admitted, message: InboxMessage) -> str | None:
        """Apply the answer and return the reply; None if it is a normal message."""
        answerer, text = await self._answerer(admitted, message), _only_text(message)
        question = await self._question(message)
        if question == NOT_A_QUESTION:
            if (choice := await self._choice(answerer, text)) is None:
                return None
            name = split_answer(text)[1] or NOT_A_QUESTION
            return (await self._approvals.answer(answerer, choice, question=name)).message
        outcome = await self._approvals.reply(answerer, text, question=question)
        return None if outcome is None or outcome.is_new_message else outcome.message

    async def press(self, admitted: Admitted, message: InboxMessage, value: str) -> str:
        """Apply the answer of the pressed button and return the reply."""
        question, _, word = value.rpartition(":")
        if not question:
            return CLOSED
        answerer = await self._answerer(admitted, message)
        outcome = await self._approvals.reply(answerer, word, question=question)
        return CLOSED if outcome is None else outcome.message

    async def _question(self, message: InboxMessage) -> str:
        """Return the id of the question replied to, NOT_A_QUESTION, or "" if it is not a reply."""
        found = await self._posts.question_in(message.address, message.reply_to)
        return found or (NOT_A_QUESTION if message.reply_to else "")

    async def _choice(self, answerer: Answerer, text: str) -> ApprovalChoice | None:
        """Return the decision of a yes or no in reply to another post; None for a normal message.

        It may be about that post, so it only decides a question it names; without a name, the user
        is asked which one is meant. The post may be a question whose receipt was not stored.
        """
        first, name = split_answer(text)
        if not await self._approvals.has_request(answerer, name):
            return None
        if not name and not await self._approvals.would_answer(answerer, text):
            return None
        return choice_of_word(first)

    async def _answerer(self, admitted: Admitted, message: InboxMessage) -> Answerer:
        session = await self._sessions.find(admitted.key)
        return Answerer(
            session=session.id if session else "",
            principal=admitted.principal,
            role=admitted.role,
            address=message.address,
        )


def _only_text(message: InboxMessage) -> str:
    match message.user.parts:
        case (Text(text),):
            return text.strip()
        case _:
            return ""
