"""`bot-chat`: a session of a profile to which jobs deliver, and in which the profile answers."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from hermes.agent.answers import nudge
from hermes.cron.fire_runner import EXCLUDED_TOOLS, SOURCE, UNREACHABLE_DELAYS, FireSettings
from hermes.cron.service import LANE
from hermes.kit.clock import Clock
from hermes.kit.ids import new_holder_id, new_id, new_session_id
from hermes.ports.bus import Bus
from hermes.ports.store import CompleteItem, EnqueueItem, QueueItem, Store, Write
from hermes.schema.errors import HermesError, NotFound, SessionBusy, StoreError, Unreachable
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import OWNER, InheritedLimits
from hermes.schema.sessions import Session
from hermes.session.limited_run import LimitedRun, RunLimits, RunResult
from hermes.session.runner import Runner
from hermes.session.turn_request import TurnRequest

log = logging.getLogger(__name__)

TARGET = "bot-chat"
TITLE = "Bot Chat"
"""The title of the session, as in the public system."""
QUEUE = "bot_chat"
BUSY_SECONDS = 10.0
"""Seconds between attempts while somebody else uses the session."""
MAX_ATTEMPTS = len(UNREACHABLE_DELAYS) + 1
_PROMPT = Path(__file__).with_name("bot_chat.md")


class DeliveredResult(Struct, frozen=True):
    """The body of an inbox row: what a job delivers to a profile."""

    profile: str
    job: str
    text: str


def split_targets(deliver: str) -> tuple[list[str], str]:
    """The profiles of `bot-chat[:profile]`, empty for the job's own, and all other targets."""
    parts = [part.strip() for part in deliver.split(",") if part.strip()]
    profiles: dict[str, None] = {}
    others: list[str] = []
    for part in parts:
        name, _, profile = part.partition(":")
        if name.strip().lower() == TARGET:
            profiles[profile.strip().lower()] = None
        else:
            others.append(part)
    return [*profiles], ",".join(others)


def result_row(key: str, result: DeliveredResult) -> Write:
    """The write that delivers a result, once per key."""
    body = Raw(msgspec.json.encode(result))
    return EnqueueItem(QueueItem(key=key, queue=QUEUE, topic=result.profile, body=body))


class BotChat:
    """Answers the results one after the other; `forward` hands one to another profile's store."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        bus: Bus,
        runner: Runner,
        forward: Callable[[str, QueueItem], Awaitable[None]],
        settings: FireSettings,
    ) -> None:
        self._store = store
        self._clock = clock
        self._bus = bus
        self._runner = runner
        self._forward = forward
        self._settings = settings
        self._holder = new_holder_id(store.workers.own)

    async def run(self) -> None:
        """Answer until cancelled."""
        with self._bus.listen(LANE) as wakeups:
            while True:
                try:
                    if await self.answer_next(is_patient=True):
                        continue
                    is_waiting = await self._is_waiting()
                except StoreError as error:
                    log.warning("results of jobs are answered later: %s", error)
                    is_waiting = True
                except Exception:
                    # One result must not end the others, nor the jobs.
                    log.exception("the result of a job could not be answered")
                    is_waiting = True
                if is_waiting:
                    # It is due later, or another process has it.
                    await self._clock.sleep(BUSY_SECONDS)
                    continue
                await wakeups.wait()
                wakeups.take()

    async def answer_next(self, *, is_patient: bool = False) -> bool:
        """Answer the oldest result that is due; return whether there may be more to do.

        If somebody uses the session, wait for them if `is_patient`.
        """
        if not await self._is_waiting():
            return False
        items = await self._store.queues.claim(QUEUE, None, self._holder, None)
        if not items:
            return False
        item = items[0]
        result = msgspec.json.decode(item.body, type=DeliveredResult)
        try:
            if result.profile == self._settings.profile:
                return await self._answer(item, result, is_patient=is_patient)
            await self._forward(result.profile, item)
        except HermesError as error:
            if isinstance(error, StoreError):
                raise
            await self._park(item, result, error.sentence)
        else:
            await self._store.commit(CompleteItem(item.key, self._holder))
        return True

    async def _is_waiting(self) -> bool:
        return bool(await self._store.queues.topics(QUEUE))

    async def _answer(self, item: QueueItem, result: DeliveredResult, *, is_patient: bool) -> bool:
        if item.attempts >= MAX_ATTEMPTS:
            await self._park(item, result, "Hermes ended several times during the answer.")
            return True
        ended = await self._run_turn(item, result)
        while ended.code == SessionBusy.code and is_patient:
            await self._clock.sleep(BUSY_SECONDS)
            ended = await self._run_turn(item, result)
        if ended.interrupted or not ended.failure:
            return not ended.interrupted
        delay = _delay(ended, item.attempts)
        if delay is not None:
            await self._store.queues.retry(item.key, self._clock.now() + delay, ended.failure)
            return False
        await self._park(item, result, ended.failure)
        return True

    async def _run_turn(self, item: QueueItem, result: DeliveredResult) -> RunResult:
        run = LimitedRun(
            runner=self._runner,
            clock=self._clock,
            limits=RunLimits(idle=self._settings.idle),
            end=lambda ended: self._end(item, ended),
        )
        return await run.run(await self._turn(item, result))

    def _end(self, item: QueueItem, ended: RunResult) -> Sequence[Write]:
        """A result that was answered is done, together with the end of the turn."""
        return () if ended.failure else (CompleteItem(item.key, self._holder),)

    async def _park(self, item: QueueItem, result: DeliveredResult, reason: str) -> None:
        log.warning("the result of job %s was not answered: %s", result.job, reason)
        await self._store.queues.park(item.key, reason, self._holder)

    async def _turn(self, item: QueueItem, result: DeliveredResult) -> TurnRequest:
        archive, name = self._store.archive_for(OWNER), f"{item.key}:message"
        try:
            session, new = await archive.find(TITLE), False
            begun = any(row.message.id == name for row in await archive.messages(session.id))
        except NotFound:
            session, new, begun = self._new_session(), True, False
        prompt = _prompt().format(name=result.job)
        data = User(new_id("msg"), (Text(result.text),), Trust.DATA)
        return TurnRequest(
            session=session,
            message=None if begun else User(name, (Text(prompt),), Trust.PROGRAM),
            note=nudge("resumed") if begun else data,
            new=new,
            source=SOURCE,
            async_delivery=False,
            excluded_tools=EXCLUDED_TOOLS,
            inherited_limits=InheritedLimits(platform=SOURCE),
        )

    def _new_session(self) -> Session:
        now, folder = self._clock.now(), self._settings.workspace
        return Session(id=new_session_id(now), started_at=now, title=TITLE, cwd=folder)


def _delay(ended: RunResult, attempts: int) -> timedelta | None:
    """After what time to try again; None if that would not help."""
    if ended.code == SessionBusy.code:
        return timedelta()
    may_retry = ended.code == Unreachable.code and not ended.used
    return UNREACHABLE_DELAYS[attempts] if may_retry and attempts < MAX_ATTEMPTS - 1 else None


@cache
def _prompt() -> str:
    return _PROMPT.read_text("utf-8").strip()
