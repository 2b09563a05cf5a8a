"""One turn as a run of the far gateway: begun once, followed over a link that may break."""

import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.tasks import beside
from hermes.ports.blobs import Blobs
from hermes.ports.counsel import Counsel, PutOff, Reaching, Wish
from hermes.ports.runtime import Ending, Errand, Tell
from hermes.runtimes.proxy.afterwards import Afterwards
from hermes.runtimes.proxy.capabilities import UNKNOWN, Abilities
from hermes.runtimes.proxy.errors import (
    cut_off,
    forgotten,
    interrupted,
    knows_no_roles,
    shown,
    too_slow,
)
from hermes.runtimes.proxy.line import RUNS, Cut, Line, Patience, Refused
from hermes.runtimes.proxy.luggage import Packer
from hermes.runtimes.proxy.runs_wire import (
    COMPLETED,
    Begun,
    Decision,
    Leave,
    RunHearing,
    State,
    Steered,
    Told,
    Words,
    begin_of,
    item_of,
    name_of,
)
from hermes.runtimes.proxy.runtime import Far
from hermes.runtimes.proxy.wire import TooLong, far_session, is_note
from hermes.schema.errors import ModelError
from hermes.schema.events import Answered, Asked, Event, Notice, Outcome, Said
from hermes.schema.messages import Stop, User
from hermes.schema.questions import Choice
from hermes.schema.scope import Role

log = logging.getLogger(__name__)

LOOK = 0.25
"""Seconds between two looks at what people said meanwhile."""
INTERRUPTED = "interrupted"
FAR = "the far gateway"
MOST_OPEN = 8
"""Questions of the far side that are before people at once; whatever it asks else is refused."""
Read = TypeVar("Read", Begun, State)


class NotOurs(Exception):
    """Who said that it takes runs knows nothing of them: somebody else may be there now."""

    def __init__(self, refusal: ModelError) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


class Parts(Struct, frozen=True, kw_only=True):
    """What all turns share. `counsel` asks people what the far side wants to know."""

    far: Far
    clock: Clock
    blobs: Blobs
    counsel: Counsel | None = None
    afterwards: Afterwards | None = None


class FarTurn:
    def __init__(self, parts: Parts, able: Abilities, errand: Errand, tell: Tell) -> None:
        self._parts = parts
        self._far = parts.far
        self._able = able
        self._errand = errand
        self._tell = tell
        self._line = Line(parts.far, parts.clock)
        self._hearing = RunHearing()
        self._steered = Steered()
        self._body = b""
        self._name = ""
        self._run = ""
        self._asking: dict[str, anyio.CancelScope] = {}
        self._in_doubt = False
        """Whether a run may go on there: it was asked for, and not refused."""

    async def run(self) -> Ending:
        async with self._line:
            try:
                await self._in_time()
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._stop()
                    await self._keep_what_was_heard()
                raise
        return await self._ending()

    async def _in_time(self) -> None:
        with anyio.move_on_after(self._far.total or None) as limit:
            await self._begin()
            await self._accompany()
        if limit.cancelled_caught:
            raise too_slow(self._far.total)

    async def _begin(self) -> None:
        packer = Packer(self._parts.blobs, files=self._able.files)
        begin, behind = await begin_of(self._errand, packer, later=self._is_followed)
        if begin.role is not Role.OWNER and not self._able.roles:
            raise knows_no_roles()
        for name in behind:
            await self._tell(Notice(f"{name} cannot be passed on to the far gateway."))
        self._body = msgspec.json.encode(begin)
        names = self._names()
        for number, name in enumerate(names, 1):
            self._name = name
            self._run = await self._post()
            last = number == len(names)
            if last or (await self._state()).status != "cancelled":
                break
        if self._is_followed and (afterwards := self._parts.afterwards) is not None:
            scope = self._errand.scope
            known = afterwards.knows(far_session(scope))
            await afterwards.begun(scope, 0.0 if known else (await self._state()).created_at)

    @property
    def _is_followed(self) -> bool:
        return self._able.sessions and self._parts.afterwards is not None

    def _names(self) -> Sequence[str]:
        """The one name of the question; after it those for each time that it was taken up again.

        A run that was stopped when this gateway was, is not waited for: the next name begins
        another one, and finds it again, should this gateway be killed once more.
        """
        name = name_of(self._errand, self._body)
        names = [name]
        for message in reversed(self._errand.messages):
            if not is_note(message):
                break
            names.insert(1, f"{name}-{message.id}")
        return names

    async def _post(self) -> str:
        """Asking twice by one name is asking once."""
        self._in_doubt = True
        try:
            given = await self._line.insist(
                "POST",
                RUNS,
                self._body,
                Idempotency_Key=self._name,
                X_Hermes_Session_Id=far_session(self._errand.scope),
            )
        except ModelError as error:
            if isinstance(error.__cause__, Refused):
                self._in_doubt = False
                if error.__cause__.status in UNKNOWN:
                    raise NotOurs(error) from error
            raise
        return _read(given, Begun).run_id

    async def _state(self) -> State:
        return _read(await self._line.insist("GET", f"{RUNS}/{self._run}"), State)

    async def _accompany(self) -> None:
        """Listen to the end, and pass on meanwhile what people say."""
        async with beside() as group:
            if self._able.steers:
                group.start_soon(self._pass_words_on)
            await self._follow(group)

    async def _follow(self, group: TaskGroup) -> None:
        patience = Patience(self._far, self._parts.clock)
        told = False
        while self._hearing.end is None:
            try:
                await self._listen(patience, group)
                if self._hearing.end is None:
                    await self._look_for_the_end(patience)
            except Refused as error:
                if error.status == 404:
                    raise forgotten() from error
                await patience.wait(error)
            except Cut as error:
                if not told:
                    told = True
                    await self._tell(Notice("The line to the far gateway broke; it is taken up."))
                await patience.wait(error)

    async def _listen(self, patience: Patience, group: TaskGroup) -> None:
        """Until the far side closes, or the link breaks."""
        hearing = self._hearing
        async with aclosing(self._line.events(self._run, hearing.last)) as events:
            async for event in events:
                if not event.id.isdecimal():
                    continue
                try:
                    heard = hearing.feed(int(event.id), event.data)
                except (msgspec.DecodeError, RecursionError, TooLong) as error:
                    raise cut_off(f"the far gateway sent a broken stream: {error}") from error
                patience.calm()
                for one in heard:
                    await self._tell(one)
                self._steered.applied(hearing.applied)
                hearing.applied.clear()
                self._pass_questions_on(group)
                if hearing.end is not None:
                    return

    async def _look_for_the_end(self, patience: Patience) -> None:
        """The stream was closed without one: its events may be gone, not what it came to."""
        state = await self._state()
        if state.end:
            for one in self._hearing.close(state):
                await self._tell(one)
        else:
            await patience.wait(Cut(ConnectionError("the far gateway closed the stream")))

    async def _pass_words_on(self) -> None:
        while True:
            await self._parts.clock.sleep(LOOK)
            said = await self._errand.meanwhile()
            # Whatever becomes of it now, it is answered: by this run or by the next.
            for message in said:
                self._steered.gave(message)
            for message in said:
                await self._steer(message)

    async def _steer(self, message: User) -> None:
        packed = await Packer(self._parts.blobs, files=self._able.files).pack(message)
        body = msgspec.json.encode({"input": [item_of(packed)]})
        path = f"{RUNS}/{self._run}/steer"
        try:
            await self._line.insist("POST", path, body, Idempotency_Key=message.id)
        except ModelError as error:
            log.info("the far gateway was not told what was said meanwhile: %s", error)

    def _pass_questions_on(self, group: TaskGroup) -> None:
        """What is answered there, or was before we came back, is asked of nobody here."""
        hearing, counsel = self._hearing, self._parts.counsel
        for leave in hearing.leave:
            if counsel is None or leave.question in self._asking:
                continue
            if len(self._asking) >= MOST_OPEN:
                group.start_soon(self._refuse, leave)
                continue
            scope = self._asking[leave.question] = anyio.CancelScope()
            group.start_soon(self._ask_people, counsel, leave, scope)
        for question in hearing.settled:
            if question in self._asking:
                self._asking[question].cancel()
        hearing.leave.clear()
        hearing.settled.clear()

    async def _ask_people(self, counsel: Counsel, leave: Leave, scope: anyio.CancelScope) -> None:
        """Whoever does not answer leaves it to the far side, which does not wait for ever."""
        answer: Decision | Words | None = None
        try:
            with scope:
                answer = await self._answer_to(counsel, leave)
        except PutOff:
            log.info("a question of the far gateway is asked again after the next start")
        finally:
            del self._asking[leave.question]
        if answer is not None:
            await self._give(leave, answer)

    async def _refuse(self, leave: Leave) -> None:
        """What is asked beyond the bound; words that nobody was asked for are not made up."""
        told = f"{MOST_OPEN} questions of the far gateway wait already; one more was refused."
        await self._tell(Notice(told))
        if not leave.open:
            await self._give(leave, Decision(Choice.DENY.value, leave.question))

    async def _give(self, leave: Leave, answer: Decision | Words) -> None:
        path = "clarify" if leave.open else "approval"
        body = msgspec.json.encode(answer)
        try:
            await self._line.insist("POST", f"{RUNS}/{self._run}/{path}", body)
        except ModelError as error:
            # It may be in good order: an answer whose receipt was lost was heard all the same.
            log.info("an answer was not taken by the far gateway: %s", error)

    async def _answer_to(self, counsel: Counsel, leave: Leave) -> Decision | Words | None:
        """Leave is asked for at our own door: who may give it here is for our rules to say."""
        # Found again at the far gateway, it is asked again.
        asked = structs.replace(self._errand.scope, call=leave.question)
        if leave.open:
            words = await counsel.inquire(asked, leave.text, leave.choices, self._show)
            return Words(words, leave.question) if words else None
        wish = Wish(tool=FAR, action=leave.action, reaching=Reaching.BEYOND, reason=leave.reason)
        ruling = await counsel.rule(asked, wish, self._show)
        choice = Choice.ONCE if ruling.allowed else Choice.DENY
        return Decision(choice.value, leave.question)

    async def _show(self, event: Event) -> None:
        if isinstance(event, Asked | Answered):
            await self._tell(event)

    async def _stop(self) -> None:
        """Nobody waits for it any more; where it is not known whether it began, it is found out."""
        if self._hearing.end is not None or not self._in_doubt:
            return
        with anyio.move_on_after(self._far.grace) as limit:
            try:
                self._run = self._run or await self._post()
                await self._line.insist("POST", f"{RUNS}/{self._run}/stop")
            except ModelError as error:
                log.warning("the far gateway could not be told to stop: %s", error)
        if limit.cancelled_caught:
            log.warning("the far gateway could not be told to stop in time")

    async def _keep_what_was_heard(self) -> None:
        for message in self._steered.heard:
            await self._tell(Said(message))
        if self._hearing.text.strip():
            await self._tell(Said(self._hearing.said(Stop.CANCELLED)))

    async def _ending(self) -> Ending:
        end, hearing = self._hearing.end, self._hearing
        if end is None or end.event != COMPLETED:
            await self._keep_what_was_heard()
            return _no_answer(end, self._far.key)
        if not hearing.text.strip():
            raise ModelError("⚠️ Proxy error: the answer is empty.", hint="Ask again.")
        # All at once and not before: a turn that is taken up again must find its question last.
        for message in self._steered.heard:
            await self._tell(Said(message))
        await self._tell(Said(hearing.said(Stop.END)))
        if end.partial or end.error:
            reason = end.error if isinstance(end.error, str) else "The answer ends here."
            return Ending(Outcome.EXHAUSTED, shown(reason, self._far.key), end.error_code)
        return Ending(Outcome.DONE, unheard=self._steered.unheard)


def _no_answer(end: Told | None, key: str) -> Ending:
    if end is None or end.event != "run.failed":
        # For whoever asked it is a failure: nobody here wanted it stopped.
        sentence = (
            "⚠️ Proxy error: the turn was stopped at the far gateway. Ask again to begin anew."
        )
        return Ending(Outcome.FAILED, sentence, "cancelled")
    if end.error_code == INTERRUPTED:
        error = interrupted()
        return Ending(Outcome.FAILED, error.sentence, end.error_code)
    why = shown(end.error, key) if isinstance(end.error, str) else ""
    sentence = f"⚠️ Proxy error: {why or 'the turn failed without a word why'}"
    return Ending(Outcome.FAILED, sentence, end.error_code or ModelError.code)


def _read(data: bytes, kind: type[Read]) -> Read:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise cut_off(f"the far gateway answered with something else: {error}") from error
