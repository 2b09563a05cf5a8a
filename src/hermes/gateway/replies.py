"""What an actor tells people: the end of a run, a question, a warning; each once, by its key."""

import logging
import re
from collections.abc import Sequence
from enum import StrEnum

import anyio
from msgspec import structs

from hermes.agent.turn import SUSPENDED
from hermes.approvals.messages import question_text
from hermes.gateway.actor_deps import ActorDeps
from hermes.gateway.chat_runs import (
    ActiveRun,
    CancelCause,
    QueuedMessage,
    cancelled_text,
    final_reply_text,
    outbox_posts,
)
from hermes.gateway.failure_messages import failure_message, with_profile_flag
from hermes.gateway.messages import InboxMessage, OutboxMessage, outbox_post
from hermes.gateway.progress_message import NO_ANSWER
from hermes.gateway.stale_progress import final_edit_amendment, progress_key
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_id
from hermes.ports.store import CompleteItem, Fence, Write
from hermes.schema.errors import HermesError, StoreError
from hermes.schema.events import Outcome, QuestionAnswered, QuestionAsked, RunEnded
from hermes.schema.messages import Message

log = logging.getLogger(__name__)

RESUMED_BELOW = "This was interrupted, and is taken up again below."
RUN_STOPPED = "This was stopped."
QUESTION_EXPIRED = "Nobody answered in time, so it was not done."


class ReplyWriter:
    """For one session; what is told lies in the outbox before anybody is called to deliver it."""

    def __init__(self, key: str, parts: ActorDeps) -> None:
        self._key = key
        self._store = parts.store
        self._clock = parts.clock
        self._posted = parts.surroundings.posted
        self._below = parts.surroundings.below
        self._profile = parts.surroundings.profile

    def announce(self, letter: InboxMessage) -> None:
        for address in letter.answers:
            self._posted(address)

    async def settle(
        self, batch: Sequence[QueuedMessage], key: str, text: str, *, recovered: Fence | None = None
    ) -> None:
        """Post the answer to a batch that nothing more is done about.

        One that an earlier process made is `recovered`, by who holds its session now.
        """
        done = [CompleteItem(held.key) for held in batch]
        await self.post(batch, key, text, *done, recovered=recovered)

    async def post(
        self,
        batch: Sequence[QueuedMessage],
        key: str,
        text: str,
        *writes: Write,
        recovered: Fence | None = None,
    ) -> None:
        letter = batch[-1].letter
        reply = structs.replace(self._reply(letter, text), recovered=recovered is not None)
        more = outbox_posts(key, reply, batch) if silent_reply_kind(text) is None else []
        await self._store.commit(*writes, *more, fence=recovered)
        self.announce(letter)

    async def question(self, letter: InboxMessage, event: QuestionAsked | QuestionAnswered) -> None:
        """The key of a post lets no question in twice, also after a restart."""
        match event:
            case QuestionAsked(question=question):
                left = question.time_left(self._clock.now())
                key, text = f"{question.id}:asked", question_text(question, left)
                reply = structs.replace(self._reply(letter, text), question=question.id)
            case QuestionAnswered(question=question, answer=answer):
                if answer:
                    return
                key, reply = f"{question}:lapsed", self._reply(letter, QUESTION_EXPIRED)
        await self._store.commit(outbox_post(key, reply))
        self._posted(letter.address)

    async def warning(self, run: ActiveRun, text: str) -> None:
        letter = run.batch[-1].letter
        try:
            await self._store.commit(
                outbox_post(f"{run.id}:idle:{new_id('msg')}", self._reply(letter, text))
            )
        except StoreError as error:
            log.warning("session %s cannot be told that its turn is idle: %s", self._key, error)
        self.announce(letter)

    def closing(self, run: ActiveRun, ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        """Settle what was answered and post the answer, in the commit of the run's last word."""
        failpoint("actor.closing")
        bubble = _reusable_post(run)
        if ended.outcome is Outcome.CANCELLED and run.cause is None:
            if run.bubble is not None and ended.code == SUSPENDED:
                run.bubble.take_back(RESUMED_BELOW)
            return ()
        spoken = {message.id for message in said}
        heard = [held for held in run.heard if held.letter.user.id in spoken]
        writes: list[Write] = [CompleteItem(held.key) for held in (*run.batch, *heard)]
        role = run.batch[-1].letter.role
        text = run.last_words = final_reply_text(ended, said, run.cause, role)
        if ended.outcome is Outcome.FAILED:
            log.warning("run %s failed: %s", run.id, ended.reason)
            text = run.last_words = with_profile_flag(text, self._profile)
        if silent_reply_kind(text) is None:
            below = self._below(said) if ended.outcome is Outcome.DONE else ""
            writes += self._end(run, f"{text}\n\n{below}" if below else text, bubble)
        elif run.bubble is not None:
            run.bubble.end_with(NO_ANSWER)
        return writes + _final_edit_of(run)

    async def last_word(self, run: ActiveRun, failure: Exception | None) -> None:
        """For a run that could not say one itself."""
        bubble = _reusable_post(run)
        if isinstance(failure, StoreError):
            if run.bubble is not None:
                run.bubble.take_back(RESUMED_BELOW)
            raise failure
        if failure is not None:
            log.error("run %s of session %s broke", run.id, self._key, exc_info=failure)
            known = failure if isinstance(failure, HermesError) else HermesError("")
            told = failure_message(known.code, known.sentence, run.batch[-1].letter.role)
            text = with_profile_flag(told, self._profile)
        elif run.cause in {CancelCause.STOPPED, CancelCause.IDLE} and not run.ended:
            text = cancelled_text(run.cause)
        else:
            return
        with anyio.CancelScope(shield=True):
            done = [CompleteItem(held.key) for held in run.batch]
            ends = self._end(run, text.strip(), bubble)
            await self._store.commit(*done, *ends, *_final_edit_of(run))
        self.announce(run.batch[-1].letter)

    def _end(self, run: ActiveRun, text: str, bubble: str | None = None) -> list[Write]:
        """The one visible end of a run: its key lets no second one in."""
        reply = self._reply(run.batch[-1].letter, text)
        # A post that becomes the answer is nobody's leftover any more.
        settled: list[Write] = [CompleteItem(progress_key(run.id, bubble))] if bubble else []
        return settled + outbox_posts(
            f"{run.id}:end", structs.replace(reply, run=run.id, bubble=bubble), run.batch
        )

    def _reply(self, letter: InboxMessage, text: str) -> OutboxMessage:
        message = None if letter.answer_at else letter.message
        at = self._clock.now()
        return OutboxMessage(address=letter.address, text=text, at=at, reply_to=message)


def _final_edit_of(run: ActiveRun) -> list[Write]:
    """The post that stays may have to say farewell after the next start."""
    owed = run.bubble and run.bubble.owed
    return [final_edit_amendment(run.id, *owed)] if owed else []


def _reusable_post(run: ActiveRun) -> str | None:
    """The post that may become the run's last words, if there is one.

    Whoever stops a run looks for the answer below what they wrote, and wants it at once, also on
    a platform that is slow to change posts.
    """
    if run.bubble is None:
        return None
    post = run.bubble.freeze()
    if run.cause is not CancelCause.STOPPED:
        return post
    run.bubble.end_with(RUN_STOPPED)
    return None


_EDGES = " \t\r\n\"'`*_~.,:;!?()<>{}\u2026\u2018\u2019\u201c\u201d-"
_SPELLED = frozenset({"SILENT", "NO REPLY"})
"""As words of a language these may be an answer, so they count only in capitals."""

_MARKED = re.compile(r"\[ ?(?:silent|no[_ ]reply) ?\]|no_reply", re.IGNORECASE)
_MAX_SILENT_LENGTH = 80

_NARRATION = re.compile(
    r"(?:(?:stays|remains|keeps|is|stay|staying|remaining)\s+)?(?:silent|quiet)"
    r"|silence|says\s+nothing|saying\s+nothing|nothing\s+to\s+(?:say|add)"
    r"|no\s+(?:reply|response|answer|message|output)(?:\s+(?:needed|required|necessary))?",
    re.IGNORECASE,
)
_WRAPPED = re.compile(
    r"[*_~\s]*[(\[]\s*(?P<round>.+?)\s*[)\]][*_~\s]*|(?P<mark>[*_]{1,3})(?P<starred>[^*_]+)(?P=mark)"
)
_SPEECHLESS = re.compile(r"(?:\.|\u2026|\.\.\.|\U0001f507|\U0001f92b|\U0001f910)\ufe0f?")


class SilentReply(StrEnum):
    """How a reply was silent: by the word agreed for it, or by telling of it."""

    MARKER = "marker"
    NARRATION = "narration"


def silent_reply_kind(reply: str, *, narration: bool = True) -> SilentReply | None:
    """None when there is something to deliver. An empty reply is no silence but a failure."""
    bare = reply.strip()
    if not bare or len(bare) > _MAX_SILENT_LENGTH:
        return None
    if _is_marker(bare):
        return SilentReply.MARKER
    return SilentReply.NARRATION if narration and _is_narration(bare) else None


def _is_marker(reply: str) -> bool:
    words = " ".join(reply.strip(_EDGES).split())
    return words in _SPELLED or _MARKED.fullmatch(words) is not None


def _is_narration(reply: str) -> bool:
    if _SPEECHLESS.fullmatch(reply):
        return True
    found = _WRAPPED.fullmatch(reply)
    if found is None:
        return False
    told = (found["round"] or found["starred"]).strip(" .\u2026!*_")
    return _NARRATION.fullmatch(told) is not None
