"""Where leave is asked for and given: rules, then a model's opinion, then a person.

A question is a row before anybody hears of it. An answer finds whoever waits, here or after
the next start, and counts once.
"""

from collections.abc import Sequence
from datetime import timedelta

import anyio.to_thread
from msgspec import Struct, structs

from hermes.approvals import wording
from hermes.approvals.answering import (
    Answerer,
    Carrier,
    choice_for,
    chosen_in,
    digest_in,
    is_for,
    is_named,
    is_put_to,
    lacks_id,
    may_answer,
    meant_in,
    unnamed_in,
)
from hermes.approvals.policy import (
    Allowed,
    Doubtful,
    Refused,
    Rules,
    Standing,
    unreachable,
    verdict,
)
from hermes.approvals.rows import (
    ANSWERED,
    QuestionRow,
    Rows,
    digest_of,
    is_awaited,
    is_left,
)
from hermes.approvals.simple import Grant, can_last, grant_of, is_far
from hermes.approvals.smart import Judge, Opinion, opinion_on
from hermes.approvals.waiting import Carrying, Waiting
from hermes.kit.clock import Clock
from hermes.kit.holder import new_holder
from hermes.kit.ids import new_id
from hermes.ports.counsel import Left, Ruling, Wish
from hermes.ports.matters import PutMatter
from hermes.ports.sink import Emit
from hermes.ports.store import Store
from hermes.schema.questions import Asking, Choice, Question
from hermes.schema.scope import OWNER, Address, Role, Scope


class Limits(Struct, frozen=True, kw_only=True):
    """Seconds that a person has."""

    approval: float = 60.0
    clarify: float = 3600.0


class Heard(Struct, frozen=True):
    """What an answer came to: a sentence for who gave it, and how many questions it settled.

    `news` says that the words were for a question in words which is over: where one can speak,
    they are something to say.
    """

    told: str
    count: int = 0
    news: bool = False


class ApprovalDesk:
    """Implements `hermes.ports.counsel.Counsel` and `Questions`, and takes the answers."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        rules: Rules,
        limits: Limits | None = None,
        judge: Judge | None = None,
    ) -> None:
        self._holder = new_holder()
        self._rows = Rows(store, clock, self._holder)
        self._clock = clock
        self._rules = rules
        self._limits = limits or Limits()
        self._judge = judge
        self._carrying = Carrying(self._rows, clock, self._holder)
        self._waiting = Waiting(self._rows, clock, self._carrying)

    @property
    def rules(self) -> Rules:
        return self._rules

    def seconds(self, kind: Asking) -> float:
        return self._limits.approval if kind is Asking.APPROVAL else self._limits.clarify

    def carried_by(self, carrier: Carrier) -> None:
        """Who brings members' questions to where the owner is."""
        self._carrying.carried_by(carrier)

    def leave(self) -> None:
        """The house is closing: questions of turns that are cut off now stay for the next start.

        Turns that only wait for a person, and are taken up again then, end at once.
        """
        self._waiting.leave()

    async def left(self, session: str, *, resumed: bool) -> Left:
        return await self._waiting.left(session, resumed=resumed)

    async def over(self, session: str) -> None:
        await self._waiting.over(session)

    async def sweep(self) -> None:
        await self._rows.sweep()

    async def rule(self, scope: Scope, wish: Wish, tell: Emit) -> Ruling:
        ruling = await self._rule(scope, wish, tell)
        # It may need no question any more.
        await self._waiting.asked_no_more(scope.call)
        return ruling

    async def _rule(self, scope: Scope, wish: Wish, tell: Emit) -> Ruling:
        found, bound = verdict(self._rules, wish, scope, Standing()), wish
        if isinstance(found, Doubtful):
            bound = await self._bound(scope, wish)
            found = verdict(self._rules, bound, scope, await self._standing(scope))
        match found:
            case Allowed():
                return Ruling(allowed=True)
            case Refused(why=why):
                return Ruling(allowed=False, why=why)
            case Doubtful():
                ruling = await self._decide(scope, bound, found, tell)
        if ruling.allowed and await self._bound(scope, wish) != bound:
            return Ruling(allowed=False, why=wording.CHANGED)
        return ruling

    async def _bound(self, scope: Scope, wish: Wish) -> Wish:
        """Sealed with what is in the files that a command names: others may write them."""
        if not wish.shell or wish.kind or not (is_far(wish) or wish.foreign):
            return wish
        from hermes.approvals.binding import Where, bound  # noqa: PLC0415 - few ever need it

        where = Where(folder=wish.folder, workspace=scope.workspace, path=self._rules.path)
        return await anyio.to_thread.run_sync(bound, wish, where)

    async def inquire(
        self, scope: Scope, text: str, choices: Sequence[str], tell: Emit
    ) -> str | None:
        if not scope.attended:
            return None
        question = self._question(scope, Asking.CLARIFY, text, tuple(choices))
        digest = digest_of("clarify", text, *choices)
        asked = QuestionRow(question=question, digest=digest, principal="")
        row = await self._waiting.put(scope, asked, tell)
        return row.words if row is not None else None

    async def _standing(self, scope: Scope) -> Standing:
        grants = await self._rows.grants(scope.session)
        owner = scope.role is Role.OWNER
        own = [one for one in grants if (one.is_owners if owner else one.by == scope.principal)]
        return Standing(grants=own, yolo=await self._rows.yolo(scope.session))

    async def _decide(self, scope: Scope, wish: Wish, doubt: Doubtful, tell: Emit) -> Ruling:
        earlier = await self._waiting.earlier(scope.session, digest_in(scope, wish))
        if earlier is None and doubt.smart and self._judge is not None:
            match await opinion_on(self._judge, wish, doubt.why):
                case Opinion.APPROVE:
                    return Ruling(allowed=True)
                case Opinion.DENY:
                    why = f"Not done: it was judged harmful. {doubt.why} Find a safer way."
                    return Ruling(allowed=False, why=why)
                case Opinion.ESCALATE:
                    pass
        why = unreachable(scope, doubt)
        home = await self._carrying.home_of(scope, doubt) if why else None
        if why and home is None:
            return Ruling(allowed=False, why=why)
        return await self._ask(scope, self._request(scope, wish, doubt, home), tell)

    async def _ask(self, scope: Scope, asked: QuestionRow, tell: Emit) -> Ruling:
        if asked.wish is not None and (why := wording.unshowable(asked.wish)):
            return Ruling(allowed=False, why=why)
        if await self._rows.was_refused(scope.session, scope.run, asked.digest):
            return Ruling(allowed=False, why=wording.ONCE_IS_ENOUGH)
        if await self._rows.refusals(scope.session, scope.run) >= wording.MOST_REFUSALS:
            return Ruling(allowed=False, why=wording.TIRED)
        async with self._carrying.place_for(asked) as full:
            if full:
                return Ruling(allowed=False, why=full)
            row = await self._waiting.put(scope, asked, tell)
        return wording.ruling_of(row, self._limits.approval)

    def _request(
        self, scope: Scope, wish: Wish, doubt: Doubtful, home: Address | None
    ) -> QuestionRow:
        lasting = tuple(Choice) if can_last(wish) else (Choice.ONCE, Choice.DENY)
        text = wording.asks_for(wish, doubt.why)
        question = structs.replace(
            self._question(scope, Asking.APPROVAL, text, lasting),
            subject=wording.subject_of(wish),
            reason=wording.reason_of(wish),
            asked=OWNER if doubt.owner_only else scope.principal,
            elsewhere=home is not None,
        )
        return QuestionRow(
            question=question,
            digest=digest_in(scope, wish),
            principal=scope.principal,
            wish=wish,
            address=home,
        )

    def _question(
        self, scope: Scope, kind: Asking, text: str, choices: tuple[str, ...]
    ) -> Question:
        seconds = self.seconds(kind)
        return Question(
            id=new_id("ask"),
            kind=kind,
            session=scope.session,
            run=scope.run,
            text=text,
            origin=wording.origin_of(scope),
            choices=choices,
            asked=scope.principal,
            until=self._clock.now() + timedelta(seconds=seconds),
            seconds=seconds,
        )

    async def pending(self, who: Answerer) -> Sequence[QuestionRow]:
        """What waits for an answer there, oldest first."""
        return [
            row
            for row in await self._rows.open_everywhere()
            if is_put_to(who, row) and await self._is_waited_for(row, who)
        ]

    async def _is_waited_for(self, row: QuestionRow, who: Answerer) -> bool:
        if row.holder == self._holder:
            return self._waiting.has(row.question.id)
        if not is_left(row):
            return is_awaited(row, self._clock)
        # Another session may have taken its place meanwhile, and then the turn is over.
        same = row.question.elsewhere or row.question.session == who.session
        return same and await self._rows.comes_back(row)

    async def answer(
        self, who: Answerer, choice: Choice, *, question: str = "", words: str = "",
        everything: bool = False,
    ) -> Heard:  # fmt: skip
        """Answer the one request for approval that waits, the one named, or all of them.

        `question` is an id, or the last letters of one. Where several wait, it must be named,
        and so must what was brought here from somebody else's chat.
        """
        waiting = await self._approvals(who)
        chosen = [one for one in waiting if is_named(one.question, question)]
        if not chosen:
            latest = await self._latest(who, question, Asking.APPROVAL)
            other = [one for one in waiting if latest is None and may_answer(who, one)]
            late = wording.too_late(latest, self._clock)
            return Heard(wording.several(other) if other else late)
        own = [one for one in chosen if may_answer(who, one)]
        if not own:
            return Heard(wording.not_yours(chosen[0]))
        meant = unnamed_in(own, choice, everything=everything) if not question else own
        if not meant or (len(meant) > 1 and not everything):
            return Heard(wording.several(own))
        heard = await self._settle_all(meant, who, choice, words)
        left = [one for one in own if one not in meant]
        return Heard(f"{heard.told}\n{wording.several(left)}", heard.count) if left else heard

    async def _settle_all(
        self, chosen: Sequence[QuestionRow], who: Answerer, choice: Choice, words: str
    ) -> Heard:
        settled: list[QuestionRow] = []
        for row in chosen:
            # What cannot be remembered is allowed once.
            meant = choice if choice in row.question.choices else Choice.ONCE
            if not await self._settle(row, who, meant, words):
                latest = await self._rows.asked(row.question.id)
                return Heard(wording.too_late(latest, self._clock), len(settled))
            settled.append(row)
        lasts = all(choice in row.question.choices for row in settled)
        return Heard(wording.given(choice, settled, shortened=not lasts), len(settled))

    async def reply(self, who: Answerer, words: str, *, question: str = "") -> Heard | None:
        """Bare words: None when they are no answer to anything that is asked of whom says them.

        Where several questions could be meant, none is: yes and no go with the id of one.
        """
        if question:
            row = next((o for o in await self.pending(who) if o.question.id == question), None)
            said = None if row is None else await self._reply_to(row, who, words)
            return said or _late(await self._rows.asked(question), self._clock)
        meant = await self._meant(who, words)
        if not meant:
            return None
        approvals = [one for one in meant if one.question.kind is Asking.APPROVAL]
        if approvals and (len(meant) > 1 or lacks_id(meant[0].question, words)):
            return Heard(wording.several(approvals))
        return await self._reply_to(meant[-1], who, words)

    async def _reply_to(self, row: QuestionRow, who: Answerer, words: str) -> Heard | None:
        if row.question.kind is Asking.APPROVAL:
            choice = choice_for(row.question, words)
            if choice is None:
                return Heard(wording.unclear(row.question, words))
            return await self.answer(who, choice, question=row.question.id)
        if row.question.asked != who.principal or not words.strip():
            return None
        if await self._settle(row, who, None, chosen_in(row.question, words)):
            return Heard("", 1)
        return _late(await self._rows.asked(row.question.id), self._clock)

    async def _meant(self, who: Answerer, words: str) -> list[QuestionRow]:
        """The questions that bare words may answer, oldest first."""
        waiting = [one for one in await self.pending(who) if is_for(who, one)]
        return meant_in(waiting, words)

    async def waits(self) -> bool:
        """Whether anything is asked of anybody."""
        return bool(await self._rows.open_everywhere())

    async def asks(self, who: Answerer, name: str) -> bool:
        """Whether a request of that name waits there."""
        return any(is_named(one.question, name) for one in await self._approvals(who))

    async def takes(self, who: Answerer, words: str, *, question: str = "") -> bool:
        """Whether `reply` would take the words for an answer.

        Said to a `question` that is over, or for somebody else to answer, yes and no are told so;
        other words are news.
        """
        if not words.strip():
            return False
        if not question:
            return bool(await self._meant(who, words))
        row = await self._rows.asked(question)
        if row is None:
            return False
        waiting = [one for one in await self.pending(who) if is_for(who, one)]
        if any(one.question.id == question for one in waiting):
            return True
        approval = row.question.kind is Asking.APPROVAL
        return approval and choice_for(row.question, words) is not None

    async def grants(self) -> Sequence[Grant]:
        return await self._rows.grants()

    async def revoke(self, identity: str) -> Grant:
        """Raises `NotFound`."""
        return await self._rows.revoke(identity)

    async def yolo(self, session: str) -> bool:
        return await self._rows.yolo(session)

    async def set_yolo(self, session: str, *, on: bool) -> None:
        await self._rows.set_yolo(session, on=on)

    async def forget_old(self) -> None:
        await self._rows.forget_old()

    async def _approvals(self, who: Answerer) -> list[QuestionRow]:
        return [one for one in await self.pending(who) if one.question.kind is Asking.APPROVAL]

    async def _latest(self, who: Answerer, question: str, kind: Asking) -> QuestionRow | None:
        rows = await self._rows.of_session(who.session) if who.session else ()
        asked = [one for one in rows if one.question.kind is kind]
        named = [one for one in asked if is_named(one.question, question)]
        if named or not question:
            return named[-1] if named else None
        return await self._rows.asked(question)

    async def _settle(
        self, row: QuestionRow, who: Answerer, choice: Choice | None, words: str
    ) -> bool:
        answer = "" if choice is None else choice.value
        after = structs.replace(row, state=ANSWERED, answer=answer, words=words, by=who.principal)
        done = await self._rows.change(row, after, *self._granting(row, who, choice))
        if done:
            self._waiting.wake(row.question.id)
        return done

    def _granting(self, row: QuestionRow, who: Answerer, choice: Choice | None) -> list[PutMatter]:
        lasting = choice in {Choice.SESSION, Choice.ALWAYS} and choice in row.question.choices
        if not lasting or row.wish is None:
            return []
        session = row.question.session if choice is Choice.SESSION else ""
        grant = grant_of(
            row.wish, new_id("grant"), session=session, by=row.principal, answered_by=who.principal
        )
        return [self._rows.granting(grant)]


def _late(latest: QuestionRow | None, clock: Clock) -> Heard:
    news = latest is not None and latest.question.kind is Asking.CLARIFY
    return Heard(wording.too_late(latest, clock), news=news)
