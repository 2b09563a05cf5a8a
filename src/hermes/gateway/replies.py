"""Write a run's replies to the outbox: its end, questions and warnings, each once by key."""

import logging
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

import anyio
from msgspec import structs

from hermes.agent.turn import SUSPENDED
from hermes.approvals.messages import question_text
from hermes.gateway.chat_runs import ActiveRun, CancelCause, QueuedMessage
from hermes.gateway.failure_messages import failure_message, limit_message, with_profile_flag
from hermes.gateway.footer import AnswerFooter
from hermes.gateway.messages import InboxMessage, OutboxMessage, outbox_post, wake_outbox
from hermes.gateway.progress_message import NO_ANSWER, ProgressMessage
from hermes.gateway.questions import question_choices
from hermes.gateway.stale_progress import final_edit_amendment, progress_key
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_id
from hermes.ports.bus import Bus
from hermes.ports.channel import Channel
from hermes.ports.store import CompleteItem, Fence, Store, Write
from hermes.schema.errors import HermesError, StoreError
from hermes.schema.events import Outcome, QuestionAnswered, QuestionAsked, RunEnded
from hermes.schema.messages import Message, final_text
from hermes.schema.scope import Role

log = logging.getLogger(__name__)

ENDED_WHEN_IDLE = (
    "Nothing happened in this turn for too long, so I ended it. "
    "Ask again, or tell me how to continue."
)
RESUMED_BELOW = "Interrupted; continued below."
RUN_STOPPED = "This run was stopped."
QUESTION_EXPIRED = "No answer in time, so it was not done."


class ReplyWriter:
    """Writes replies to the outbox before announcing them to delivery."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        bus: Bus,
        channels: Mapping[str, Channel],
        footer: AnswerFooter,
        profile: str,
    ) -> None:
        self._store = store
        self._clock = clock
        self._holder = store.workers.own
        self._bus = bus
        self._channels = channels
        self.later_channels = frozenset(
            name for name, channel in channels.items() if channel.caps.async_delivery
        )
        """The channels whose chats can be messaged after the turn."""
        self._footer = footer
        self._profile = profile

    def announce(self, message: InboxMessage) -> None:
        for address in message.reply_addresses:
            if address.channel not in self._channels:
                log.warning("no channel %s: its messages stay queued", address.channel)
            wake_outbox(self._bus, address)

    async def settle(
        self, batch: Sequence[QueuedMessage], key: str, text: str, *, recovered: Fence | None = None
    ) -> None:
        """Post the final answer to a batch and complete it.

        An answer made by an earlier process is `recovered` under the current lease's fence.
        """
        # Not those that another worker has taken over.
        done = [CompleteItem(queued.key, self._holder) for queued in batch]
        await self.post(batch, key, text, *done, recovered=recovered)

    async def post(
        self,
        batch: Sequence[QueuedMessage],
        key: str,
        text: str,
        *writes: Write,
        recovered: Fence | None = None,
    ) -> None:
        message, more = batch[-1].message, list[Write]()
        if silent_reply_kind(text) is None:
            more = self._answer(key, message, text, recovered=recovered is not None)
        await self._store.commit(*writes, *more, fence=recovered)
        self.announce(message)

    async def question(
        self, message: InboxMessage, event: QuestionAsked | QuestionAnswered
    ) -> None:
        """Post a question or its expiry; the key prevents duplicates after a restart."""
        match event:
            case QuestionAsked(question=question):
                remaining = question.time_left(self._clock.now())
                key, text = f"{question.id}:asked", question_text(question, remaining)
                reply = structs.replace(
                    self._reply(message, text),
                    question=question.id,
                    choices=question_choices(question, message),
                )
            case QuestionAnswered(question=question, answer=answer):
                if answer:
                    return
                key, reply = f"{question}:lapsed", self._reply(message, QUESTION_EXPIRED)
        await self._store.commit(outbox_post(key, reply))
        wake_outbox(self._bus, message.address)

    async def warning(self, run: ActiveRun, text: str) -> None:
        message = run.batch[-1].message
        warning = outbox_post(f"{run.id}:idle:{new_id('msg')}", self._reply(message, text))
        try:
            await self._store.commit(warning)
        except StoreError as error:
            log.warning("cannot store the idle warning of run %s: %s", run.id, error)
        self.announce(message)

    def final_writes(
        self, run: ActiveRun, ended: RunEnded, messages: Sequence[Message]
    ) -> Sequence[Write]:
        """Complete the answered messages and post the answer, in the run's final commit."""
        failpoint("actor.closing")
        progress_post = _reusable_post(run.progress, run.cause) if run.progress else None
        if ended.outcome is Outcome.CANCELLED and run.cause is None:
            if run.progress is not None and ended.code == SUSPENDED:
                run.progress.end_without_answer(RESUMED_BELOW)
            return ()
        stored = {message.id for message in messages}
        steered = [queued for queued in run.steered if queued.message.user.id in stored]
        answered, role = (*run.batch, *steered), run.batch[-1].message.role
        writes: list[Write] = [CompleteItem(queued.key, self._holder) for queued in answered]
        text = run.reply_text = final_reply_text(ended, messages, run.cause, role)
        if ended.outcome is Outcome.FAILED:
            log.warning("run %s failed: %s", run.id, ended.reason)
            text = run.reply_text = with_profile_flag(text, self._profile)
        if silent_reply_kind(text) is None:
            below = self._footer.text_for(messages) if ended.outcome is Outcome.DONE else ""
            text = f"{text}\n\n{below}" if below else text
            key, message = f"{run.id}:end", run.batch[-1].message
            writes += self._answer(key, message, text, run=run.id, progress_post=progress_post)
        elif run.progress is not None:
            run.progress.end_with(NO_ANSWER)
        return writes + _final_edit_of(run.id, run.progress) if run.progress else writes

    async def write_final(self, run: ActiveRun, failure: Exception | None) -> None:
        """Write the final reply of a run that could not do so itself."""
        progress_post = _reusable_post(run.progress, run.cause) if run.progress else None
        if isinstance(failure, StoreError):
            if run.progress is not None:
                run.progress.end_without_answer(RESUMED_BELOW)
            raise failure
        if failure is not None:
            log.error("run %s failed", run.id, exc_info=failure)
            known = failure if isinstance(failure, HermesError) else HermesError("")
            explanation = failure_message(known.code, known.sentence, run.batch[-1].message.role)
            text = with_profile_flag(explanation, self._profile)
        elif run.cause in {CancelCause.STOPPED, CancelCause.IDLE} and not run.ended:
            text = _cancelled_text(run.cause)
        else:
            return
        key, message = f"{run.id}:end", run.batch[-1].message
        with anyio.CancelScope(shield=True):
            done = [CompleteItem(queued.key, self._holder) for queued in run.batch]
            final_reply = self._answer(
                key, message, text.strip(), run=run.id, progress_post=progress_post
            )
            edit = _final_edit_of(run.id, run.progress) if run.progress else []
            await self._store.commit(*done, *final_reply, *edit)
        self.announce(message)

    def _reply(self, message: InboxMessage, text: str) -> OutboxMessage:
        reply_to = None if message.answer_at else message.message
        at = self._clock.now()
        return OutboxMessage(address=message.address, text=text, at=at, reply_to=reply_to)

    def _answer(
        self,
        key: str,
        message: InboxMessage,
        text: str,
        *,
        run: str = "",
        progress_post: str | None = None,
        recovered: bool = False,
    ) -> list[Write]:
        """Write the answer for every target; the key prevents a second one.

        Only the first one replaces the progress message, which then needs no final edit.
        """
        answer = OutboxMessage(
            address=message.reply_addresses[0],
            text=text,
            at=self._clock.now(),
            run=run,
            reply_to=None if message.answer_at else message.asker.message or None,
            progress_post=progress_post,
            recovered=recovered,
        )
        writes: list[Write] = [outbox_post(key, answer)]
        if progress_post:
            writes.append(CompleteItem(progress_key(run, progress_post), self._holder))
        for number, address in enumerate(message.answer_at[1:], 2):
            copy = structs.replace(answer, address=address, progress_post=None)
            writes.append(outbox_post(f"{key}:{number}", copy))
        return writes


def final_reply_text(
    ended: RunEnded, messages: Sequence[Message], cause: CancelCause | None, role: Role = Role.OWNER
) -> str:
    match ended.outcome:
        case Outcome.DONE:
            return final_text(messages)
        case Outcome.EXHAUSTED:
            limit = limit_message(ended.code, ended.reason, role)
            return f"{final_text(messages)}\n\n{limit}".strip()
        case Outcome.FAILED:
            return failure_message(ended.code, ended.reason, role)
        case Outcome.CANCELLED:
            return _cancelled_text(cause)


def _cancelled_text(cause: CancelCause | None) -> str:
    match cause:
        case CancelCause.STOPPED:
            return "Stopped."
        case CancelCause.IDLE:
            return ENDED_WHEN_IDLE
        case CancelCause.INTERRUPTED | None:
            return "Interrupted."


def _final_edit_of(run: str, progress: ProgressMessage) -> list[Write]:
    """Store the final text of a progress message, in case the process dies before the edit."""
    final_edit = progress.final_edit
    return [final_edit_amendment(run, *final_edit)] if final_edit else []


def _reusable_post(progress: ProgressMessage, cause: CancelCause | None) -> str | None:
    """Return the post that may become the run's answer, if any.

    After /stop the user expects the reply below their command, without waiting for an edit.
    """
    post = progress.freeze()
    if cause is not CancelCause.STOPPED:
        return post
    progress.end_with(RUN_STOPPED)
    return None


_EDGES = " \t\r\n\"'`*_~.,:;!?()<>{}\u2026\u2018\u2019\u201c\u201d-"
_SPELLED = frozenset({"SILENT", "NO REPLY"})
"""These may be ordinary answers, so they only count in capitals."""

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
    """How a reply was silent: by the agreed marker, or by describing the silence."""

    MARKER = "marker"
    NARRATION = "narration"


def silent_reply_kind(reply: str, *, narration: bool = True) -> SilentReply | None:
    """Return how the reply is silent, or None to deliver it. An empty reply is a failure."""
    bare = reply.strip()
    if not bare or len(bare) > _MAX_SILENT_LENGTH:
        return None
    text = " ".join(bare.strip(_EDGES).split())
    if text in _SPELLED or _MARKED.fullmatch(text):
        return SilentReply.MARKER
    if not narration:
        return None
    if (found := _WRAPPED.fullmatch(bare)) is None:
        return SilentReply.NARRATION if _SPEECHLESS.fullmatch(bare) else None
    words = (found["round"] or found["starred"]).strip(" .\u2026!*_")
    return SilentReply.NARRATION if _NARRATION.fullmatch(words) else None
