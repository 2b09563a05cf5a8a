"""What people in chats say to a question of the agent: it counts at once, never behind the turn."""

from hermes.approvals.desk import Answerer, ApprovalDesk
from hermes.gateway.letters import Letter, Welcome
from hermes.gateway.question_posts import QuestionPosts
from hermes.gateway.sessions import ChatSessions
from hermes.schema.messages import Text


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
        question = await self._posts.question_in(letter.address, letter.reply_to)
        if not question and not await self._approvals.waits():
            return False
        who = await self._who(welcome, letter)
        return await self._approvals.takes(who, words, question=question)

    async def take(self, welcome: Welcome, letter: Letter) -> str | None:
        """What to tell them; None when nothing is asked any more."""
        who = await self._who(welcome, letter)
        question = await self._posts.question_in(letter.address, letter.reply_to)
        heard = await self._approvals.reply(who, _words(letter), question=question)
        return heard and heard.told

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
