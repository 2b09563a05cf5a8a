"""What people in chats say to a question of the agent: it counts at once, never behind the turn."""

from hermes.approvals.answering import word_and_id
from hermes.approvals.desk import Answerer, ApprovalDesk
from hermes.approvals.wording import choice_in
from hermes.gateway.letters import Letter, Welcome
from hermes.gateway.question_posts import NO_QUESTION, QuestionPosts
from hermes.gateway.sessions import ChatSessions
from hermes.schema.messages import Text
from hermes.schema.questions import Choice


class Answers:
    def __init__(
        self, approvals: ApprovalDesk, sessions: ChatSessions, posts: QuestionPosts
    ) -> None:
        self._approvals = approvals
        self._sessions = sessions
        self._posts = posts

    async def takes(self, welcome: Welcome, letter: Letter) -> bool:
        """Whether this is an answer to something that is asked of whoever wrote it."""
        words = _words(letter)
        if not words:
            return False
        question = await self._question(letter)
        if question in {"", NO_QUESTION} and not await self._approvals.waits():
            return False
        who = await self._who(welcome, letter)
        if question == NO_QUESTION:
            return await self._choice(who, words) is not None
        return await self._approvals.takes(who, words, question=question)

    async def take(self, welcome: Welcome, letter: Letter) -> str | None:
        """What to tell them; None when it is something to say instead."""
        who, words = await self._who(welcome, letter), _words(letter)
        question = await self._question(letter)
        if question == NO_QUESTION:
            choice = await self._choice(who, words)
            if choice is None:
                return None
            _, name = word_and_id(words)
            return (await self._approvals.answer(who, choice, question=name or NO_QUESTION)).told
        heard = await self._approvals.reply(who, words, question=question)
        return None if heard is None or heard.news else heard.told

    async def _question(self, letter: Letter) -> str:
        """The id of the question that this replies to; empty when it is no reply at all."""
        found = await self._posts.question_in(letter.address, letter.reply_to)
        return found or (NO_QUESTION if letter.reply_to else "")

    async def _choice(self, who: Answerer, words: str) -> Choice | None:
        """What yes or no to another post chooses, and None when it is something to say.

        It may be about that post, so it decides only what it names; without a name it is asked
        which is meant. The post may also be a question whose receipt is not here yet, or was lost.
        """
        first, name = word_and_id(words)
        if not await self._approvals.asks(who, name):
            return None
        if not name and not await self._approvals.takes(who, words):
            return None
        return choice_in(first)

    async def _who(self, welcome: Welcome, letter: Letter) -> Answerer:
        session = await self._sessions.find(welcome.key)
        return Answerer(
            session=session.id if session else "",
            principal=welcome.principal,
            role=welcome.role,
            address=letter.address,
        )


def _words(letter: Letter) -> str:
    match letter.user.parts:
        case (Text(text),):
            return text.strip()
        case _:
            return ""
