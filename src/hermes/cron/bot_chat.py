"""`bot-chat`: the session of a profile in which it answers results that jobs deliver to it."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Raw, Struct, structs

from hermes.agent.answers import nudge
from hermes.cron.fire_runner import (
    EXCLUDED_TOOLS,
    SOURCE,
    UNREACHABLE_DELAYS,
    FireSettings,
    failure_reason,
    total_spend_cap,
)
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
KEY = f"{SOURCE}:{TARGET}"
"""The session key; the title alone is not enough, because anyone can use it."""
QUEUE = "bot_chat"
BUSY_SECONDS = 10.0
"""Seconds between attempts while the session is in use."""
FORWARD_DELAY = timedelta(minutes=5)
"""Time between attempts while the store of another profile cannot be used."""
MAX_RESUMED = 3
_PROMPT = Path(__file__).with_name("bot_chat.md")


class DeliveredResult(Struct, frozen=True):
    """The body of an inbox row: a job's result for a profile.

    The answer may use the job's `tools` (None: all) and cost as much as a run of it.
    """

    profile: str
    job: str
    text: str
    tools: tuple[str, ...] | None = None
    spend_cap: float | None = None


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


class _Progress(Struct, frozen=True):
    """The session of the answer, and the ids of the messages that began attempts there."""

    session: Session
    new: bool = False
    begun: Sequence[str] = ()


class BotChat:
    """Answers results one at a time; `forward` passes one to another profile's store."""

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
        with self._bus.listen(QUEUE) as wakeups:
            while True:
                try:
                    if await self.answer_next(waits_if_busy=True):
                        continue
                    is_waiting = await self._is_waiting()
                except StoreError as error:
                    log.warning("job results will be answered later: %s", error)
                    is_waiting = True
                except Exception:
                    # Keep the jobs running.
                    log.exception("the result of a job could not be answered")
                    is_waiting = True
                if is_waiting:
                    # It is due later, or another process has it.
                    await self._clock.sleep(BUSY_SECONDS)
                    continue
                await wakeups.wait()
                wakeups.take()

    async def answer_next(self, *, waits_if_busy: bool = False) -> bool:
        """Answer the oldest result that is due; return whether there may be more to do."""
        if not await self._is_waiting():
            return False
        items = await self._store.queues.claim(QUEUE, None, self._holder, None)
        if not items:
            return False
        item = items[0]
        try:
            result = msgspec.json.decode(item.body, type=DeliveredResult)
            if result.profile == self._settings.profile:
                return await self._answer(item, result, waits_if_busy=waits_if_busy)
            await self._send_on(item, result)
        except StoreError:
            raise
        except msgspec.MsgspecError as error:
            await self._park(item, f"It cannot be read: {error}")
        except HermesError as error:
            await self._park(item, error.sentence)
        except Exception as error:
            # It would fail again and block the rows behind it.
            log.exception("answering the result of a job failed")
            await self._park(item, f"An error in Hermes: {error}")
        return True

    async def _is_waiting(self) -> bool:
        return bool(await self._store.queues.topics(QUEUE))

    async def _send_on(self, item: QueueItem, result: DeliveredResult) -> None:
        try:
            await self._forward(result.profile, item)
        except (StoreError, OSError) as error:
            log.warning("profile %s will get a result later: %s", result.profile, error)
            later = self._clock.now() + FORWARD_DELAY
            await self._store.queues.retry(item.key, later, str(error))
        else:
            await self._store.commit(CompleteItem(item.key, self._holder))

    async def _answer(
        self, item: QueueItem, result: DeliveredResult, *, waits_if_busy: bool
    ) -> bool:
        progress = await self._progress(item)
        # A row left by a dead process keeps its due time, unlike one that was put back.
        left = [one for one in progress.begun if one.startswith(_resumed_prefix(item))]
        if len(left) >= MAX_RESUMED:
            await self._park(item, "Hermes stopped several times during the answer.")
            return True
        ended = await self._run_turn(item, result, progress)
        while ended.code == SessionBusy.code and waits_if_busy:
            await self._clock.sleep(BUSY_SECONDS)
            progress = await self._progress(item)
            ended = await self._run_turn(item, result, progress)
        if ended.interrupted or not ended.failure:
            return not ended.interrupted
        if ended.code == SessionBusy.code:
            at = item.due or self._clock.now()
            await self._store.queues.retry(item.key, at, ended.failure)
            return False
        delay = _delay(ended, len(progress.begun))
        if delay is not None:
            await self._store.queues.retry(item.key, self._clock.now() + delay, ended.failure)
            return False
        await self._park(item, failure_reason(ended, result.spend_cap))
        return True

    async def _run_turn(
        self, item: QueueItem, result: DeliveredResult, progress: _Progress
    ) -> RunResult:
        run = LimitedRun(
            runner=self._runner,
            clock=self._clock,
            limits=RunLimits(idle=self._settings.idle),
            end=lambda ended: self._end(item, ended),
        )
        return await run.run(await self._turn(item, result, progress))

    def _end(self, item: QueueItem, ended: RunResult) -> Sequence[Write]:
        """Complete the answered result, together with the end of the turn."""
        return () if ended.failure else (CompleteItem(item.key, self._holder),)

    async def _park(self, item: QueueItem, reason: str) -> None:
        log.warning("the result %s of a job was not answered: %s", item.key, reason)
        await self._store.queues.park(item.key, reason, self._holder)

    async def _turn(
        self, item: QueueItem, result: DeliveredResult, progress: _Progress
    ) -> TurnRequest:
        session = progress.session
        if progress.begun:
            message = None
            note = structs.replace(nudge("resumed"), id=_resumed_prefix(item) + new_id("msg"))
        else:
            prompt = Text(_prompt().format(name=result.job))
            message = User(f"{item.key}:message", (prompt,), Trust.PROGRAM)
            note = User(new_id("msg"), (Text(result.text),), Trust.DATA)
        return TurnRequest(
            session=session,
            message=message,
            note=note,
            new=progress.new,
            source=SOURCE,
            async_delivery=False,
            excluded_tools=EXCLUDED_TOOLS,
            spend_cap=await total_spend_cap(self._store, session.id, result.spend_cap),
            inherited_limits=InheritedLimits(platform=SOURCE, tools=result.tools),
        )

    async def _progress(self, item: QueueItem) -> _Progress:
        archive = self._store.archive_for(OWNER)
        session = await archive.by_key(KEY)
        if session is None or session.principal != OWNER:
            return _Progress(await self._new_session(), new=True)
        ids = [row.message.id for row in await archive.messages(session.id)]
        return _Progress(session, begun=[id_ for id_ in ids if id_.startswith(f"{item.key}:")])

    async def _new_session(self) -> Session:
        now = self._clock.now()
        name, title = new_session_id(now), TITLE
        with suppress(NotFound):
            other = await self._store.archive_for(OWNER).find(TITLE)
            # The titles of a person's sessions are unique.
            title = f"{TITLE} ({name})" if other.principal == OWNER else TITLE
        folder = self._settings.workspace
        return Session(id=name, started_at=now, key=KEY, title=title, cwd=folder)


def _resumed_prefix(item: QueueItem) -> str:
    """Return the prefix of message ids that continue the answer since the row was last put back."""
    due = 0.0 if item.due is None else item.due.timestamp()
    return f"{item.key}:resumed:{due}:"


def _delay(ended: RunResult, attempts: int) -> timedelta | None:
    """Return the delay before the next attempt; None if retrying would not help."""
    may_retry = ended.code == Unreachable.code and not ended.used
    return (
        UNREACHABLE_DELAYS[attempts] if may_retry and attempts < len(UNREACHABLE_DELAYS) else None
    )


@cache
def _prompt() -> str:
    return _PROMPT.read_text("utf-8").strip()
