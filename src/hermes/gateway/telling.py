"""What an actor tells people: the end of a run, a question, a warning; each once, by its key."""

import logging
from collections.abc import Sequence

import anyio
from msgspec import structs

from hermes.agent.turn import PUT_OFF
from hermes.approvals.wording import as_post
from hermes.gateway.bubble import SILENT
from hermes.gateway.failures import for_profile, told_of
from hermes.gateway.leftovers import leftover_key, owing
from hermes.gateway.letters import Letter, Reply, post_reply
from hermes.gateway.runs import Cause, Held, Running, last_word_for, last_words, posts
from hermes.gateway.silence import silence_of
from hermes.gateway.surroundings import Parts
from hermes.kit.failpoints import passing
from hermes.kit.ids import new_id
from hermes.ports.store import Done, Fence, Write
from hermes.schema.errors import HermesError, StoreError
from hermes.schema.events import Answered, Asked, Outcome, RunEnded
from hermes.schema.messages import Message

log = logging.getLogger(__name__)

TAKEN_UP_BELOW = "This was interrupted, and is taken up again below."
STOPPED_HERE = "This was stopped."
NOT_ANSWERED = "Nobody answered in time, so it was not done."


class Telling:
    """For one session; what is told lies in the outbox before anybody is called to deliver it."""

    def __init__(self, key: str, parts: Parts) -> None:
        self._key = key
        self._store = parts.store
        self._clock = parts.clock
        self._posted = parts.surroundings.posted
        self._below = parts.surroundings.below
        self._profile = parts.surroundings.profile

    def announce(self, letter: Letter) -> None:
        for address in letter.answers:
            self._posted(address)

    async def settle(
        self, batch: Sequence[Held], key: str, text: str, *, recovered: Fence | None = None
    ) -> None:
        """Post the answer to a batch that nothing more is done about.

        One that an earlier process made is `recovered`, by who holds its session now.
        """
        done = [Done(held.key) for held in batch]
        await self.post(batch, key, text, *done, recovered=recovered)

    async def post(
        self,
        batch: Sequence[Held],
        key: str,
        text: str,
        *writes: Write,
        recovered: Fence | None = None,
    ) -> None:
        letter = batch[-1].letter
        reply = structs.replace(self._reply(letter, text), recovered=recovered is not None)
        more = posts(key, reply, batch) if silence_of(text) is None else []
        await self._store.commit(*writes, *more, fence=recovered)
        self.announce(letter)

    async def question(self, letter: Letter, event: Asked | Answered) -> None:
        """The key of a post lets no question in twice, also after a restart."""
        match event:
            case Asked(question=question):
                left = question.time_left(self._clock.now())
                key, text = f"{question.id}:asked", as_post(question, left)
                reply = structs.replace(self._reply(letter, text), question=question.id)
            case Answered(question=question, answer=answer):
                if answer:
                    return
                key, reply = f"{question}:lapsed", self._reply(letter, NOT_ANSWERED)
        await self._store.commit(post_reply(key, reply))
        self._posted(letter.address)

    async def warning(self, run: Running, text: str) -> None:
        letter = run.batch[-1].letter
        try:
            await self._store.commit(
                post_reply(f"{run.id}:idle:{new_id('msg')}", self._reply(letter, text))
            )
        except StoreError as error:
            log.warning("session %s cannot be told that its turn is idle: %s", self._key, error)
        self.announce(letter)

    def closing(self, run: Running, ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        """Settle what was answered and post the answer, in the commit of the run's last word."""
        passing("actor.closing")
        bubble = _left_by(run)
        if ended.outcome is Outcome.CANCELLED and run.cause is None:
            if run.bubble is not None and ended.code == PUT_OFF:
                run.bubble.take_back(TAKEN_UP_BELOW)
            return ()
        spoken = {message.id for message in said}
        heard = [held for held in run.heard if held.letter.user.id in spoken]
        writes: list[Write] = [Done(held.key) for held in (*run.batch, *heard)]
        role = run.batch[-1].letter.role
        text = run.last_words = last_words(ended, said, run.cause, role)
        if ended.outcome is Outcome.FAILED:
            log.warning("run %s failed: %s", run.id, ended.reason)
            text = run.last_words = for_profile(text, self._profile)
        if silence_of(text) is None:
            below = self._below(said) if ended.outcome is Outcome.DONE else ""
            writes += self._end(run, f"{text}\n\n{below}" if below else text, bubble)
        elif run.bubble is not None:
            run.bubble.leave_as(SILENT)
        return writes + _owed_by(run)

    async def last_word(self, run: Running, failure: Exception | None) -> None:
        """For a run that could not say one itself."""
        bubble = _left_by(run)
        if isinstance(failure, StoreError):
            if run.bubble is not None:
                run.bubble.take_back(TAKEN_UP_BELOW)
            raise failure
        if failure is not None:
            log.error("run %s of session %s broke", run.id, self._key, exc_info=failure)
            known = failure if isinstance(failure, HermesError) else HermesError("")
            told = told_of(known.code, known.sentence, run.batch[-1].letter.role)
            text = for_profile(told, self._profile)
        elif run.cause in {Cause.STOPPED, Cause.IDLE} and not run.ended:
            text = last_word_for(run.cause)
        else:
            return
        with anyio.CancelScope(shield=True):
            done = [Done(held.key) for held in run.batch]
            ends = self._end(run, text.strip(), bubble)
            await self._store.commit(*done, *ends, *_owed_by(run))
        self.announce(run.batch[-1].letter)

    def _end(self, run: Running, text: str, bubble: str | None = None) -> list[Write]:
        """The one visible end of a run: its key lets no second one in."""
        reply = self._reply(run.batch[-1].letter, text)
        # A post that becomes the answer is nobody's leftover any more.
        settled: list[Write] = [Done(leftover_key(run.id, bubble))] if bubble else []
        return settled + posts(
            f"{run.id}:end", structs.replace(reply, run=run.id, bubble=bubble), run.batch
        )

    def _reply(self, letter: Letter, text: str) -> Reply:
        message = None if letter.answer_at else letter.message
        at = self._clock.now()
        return Reply(address=letter.address, text=text, at=at, reply_to=message)


def _owed_by(run: Running) -> list[Write]:
    """The post that stays may have to say farewell after the next start."""
    owed = run.bubble and run.bubble.owed
    return [owing(run.id, *owed)] if owed else []


def _left_by(run: Running) -> str | None:
    """The post that may become the run's last words, if there is one.

    Whoever stops a run looks for the answer below what they wrote, and wants it at once, also on
    a platform that is slow to change posts.
    """
    if run.bubble is None:
        return None
    post = run.bubble.freeze()
    if run.cause is not Cause.STOPPED:
        return post
    run.bubble.leave_as(STOPPED_HERE)
    return None
