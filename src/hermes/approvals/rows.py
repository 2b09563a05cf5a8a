"""Questions, grants and /yolo as rows: what was asked and allowed outlives whoever asked."""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Raw, Struct, structs

from hermes.approvals.simple import Grant
from hermes.kit.clock import Clock
from hermes.ports.counsel import Wish
from hermes.ports.matters import Matter, PutMatter
from hermes.ports.store import Store
from hermes.schema.errors import NotFound, Overtaken
from hermes.schema.questions import Asking, Choice, Question
from hermes.schema.scope import Address

QUESTION = "question"
GRANT = "grant"
YOLO = "yolo"

OPEN = "open"
ANSWERED = "answered"
USED = "used"
LAPSED = "lapsed"

FRESH = timedelta(minutes=15)
"""For how long an answer counts that nobody was there to hear."""
KEPT = timedelta(days=30)


class Asked(Struct, frozen=True, kw_only=True):
    """One question and what became of it; `words` are a reason, or the answer to a clarification.

    `digest` tells the same wish again, `principal` is who wished it, and `wish` is missing for
    a clarification.
    """

    question: Question
    digest: str
    principal: str
    state: str = OPEN
    wish: Wish | None = None
    address: Address | None = None
    answer: str = ""
    words: str = ""
    by: str = ""
    at: datetime | None = None


def digest_of(*parts: str) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


class Rows:
    """Every change is made only from the state that was read; the loser of a race is told."""

    def __init__(self, store: Store, clock: Clock, holder: str) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder

    async def asked(self, identity: str) -> Asked | None:
        found = await self._store.matters.get(QUESTION, identity)
        return found and _read(found)

    async def of_session(self, session: str, *, only_open: bool = False) -> Sequence[Asked]:
        found = await self._store.matters.find(
            QUESTION, session=session, only_open=only_open, limit=100
        )
        return [_read(one) for one in found]

    async def refusals(self, session: str, run: str) -> int:
        """How many wishes of a turn nobody allowed."""
        asked = [
            one
            for one in await self.of_session(session)
            if one.question.run == run and one.question.kind is Asking.APPROVAL
        ]
        return sum(one.state == LAPSED or one.answer == Choice.DENY for one in asked)

    async def open_everywhere(self) -> Sequence[tuple[Asked, str]]:
        """With who waits for the answer."""
        found = await self._store.matters.find(QUESTION, only_open=True)
        return [(_read(one), one.holder) for one in found]

    async def change(self, before: Asked | None, after: Asked, *more: PutMatter) -> bool:
        """False when somebody was quicker."""
        after = structs.replace(after, at=self._clock.now())
        matter = Matter(
            kind=QUESTION,
            id=after.question.id,
            session=after.question.session,
            state=after.state,
            at=self._clock.now(),
            body=Raw(msgspec.json.encode(after)),
            open=after.state == OPEN,
            holder=self._holder,
        )
        try:
            await self._store.commit(PutMatter(matter, was=before.state if before else ""), *more)
        except Overtaken:
            return False
        return True

    def granting(self, grant: Grant) -> PutMatter:
        return PutMatter(self._grant(grant, "given"), was="")

    def _grant(self, grant: Grant, state: str) -> Matter:
        return Matter(
            kind=GRANT,
            id=grant.id,
            session=grant.session,
            state=state,
            at=self._clock.now(),
            body=Raw(msgspec.json.encode(grant)),
            open=state == "given",
        )

    async def grants(self, session: str | None = None) -> Sequence[Grant]:
        """All, or those that count in a session."""
        found = await self._store.matters.find(GRANT, only_open=True)
        grants = [msgspec.json.decode(one.body, type=Grant) for one in found]
        return [one for one in grants if session is None or one.session in {"", session}]

    async def revoke(self, identity: str) -> Grant:
        """By id, or by the last letters of one. Raises `NotFound`."""
        found = [one for one in await self.grants() if one.id.endswith(identity) and identity]
        if len(found) != 1:
            what = "several grants" if found else "no grant"
            raise NotFound(f"There is {what} {identity!r}.", hint="/approvals lists them.")
        await self._store.commit(PutMatter(self._grant(found[0], "revoked"), was="given"))
        return found[0]

    async def yolo(self, session: str) -> bool:
        found = await self._store.matters.get(YOLO, session)
        return found is not None and found.open

    async def set_yolo(self, session: str, *, on: bool) -> None:
        matter = Matter(
            kind=YOLO,
            id=session,
            session=session,
            state="on" if on else "off",
            at=self._clock.now(),
            body=Raw(b"{}"),
            open=on,
        )
        await self._store.commit(PutMatter(matter))

    async def forget_old(self) -> None:
        """What is over goes after a while; what nobody came back for is over."""
        for matter in await self._store.matters.abandoned(QUESTION):
            row = _read(matter)
            if self._clock.now() - row.question.until > FRESH:
                await self.change(row, structs.replace(row, state=LAPSED))
        before = self._clock.now() - KEPT
        for kind in (QUESTION, GRANT, YOLO):
            await self._store.matters.forget(kind, before)


def _read(matter: Matter) -> Asked:
    return structs.replace(msgspec.json.decode(matter.body, type=Asked), state=matter.state)
