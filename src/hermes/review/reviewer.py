"""One review: a turn on a copy of what was said, in which only memory and skills can be changed.

It is asked with the prompt, the tools and the messages of the session it looks back on, so that
the provider has read most of it already. What is said in it goes to a session of its own.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import anyio
from msgspec import Raw, Struct, structs

from hermes.agent.plan import Entrusted, Plan, no_steering
from hermes.agent.repair import History
from hermes.agent.sources import sources_for
from hermes.agent.turn import run_turn
from hermes.changes.change import Change, Proposal
from hermes.changes.ledger import Ledger
from hermes.changes.provenance import REVIEW
from hermes.kit.clock import Clock
from hermes.kit.holder import new_holder
from hermes.kit.ids import new_id, new_session_id
from hermes.kit.text import head_and_tail
from hermes.ports.model import Model
from hermes.ports.store import ChangeSession, OpenSession, Store
from hermes.ports.tool import Output, Sources, Tool, ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.events import Event
from hermes.schema.messages import Assistant, Message, Result, Text, Trust, User, text_of
from hermes.schema.scope import OWNER, Address, Scope
from hermes.schema.sessions import Session, SessionChange, going_on
from hermes.schema.tools import ToolSpec
from hermes.session.lease import Lease
from hermes.session.nudges import Due
from hermes.session.recorder import Accepted, Price, Recorder
from hermes.session.runner import Planner

ALLOWED = frozenset({"memory", "skills_list", "skill_view", "skill_manage"})
STEPS = 16
DIGEST = 24
"""Messages that another model than the session's own is shown."""
_LONGEST = 4_000


class Occasion(Struct, frozen=True, kw_only=True):
    """A turn that has ended: of which session, for whom, asked from where."""

    session: str
    principal: str = OWNER
    source: str = ""
    address: Address | None = None


class Findings(Struct, frozen=True, kw_only=True):
    """What a review changed, and what it proposes."""

    changes: Sequence[Change] = ()
    proposals: Sequence[Proposal] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.proposals)


async def as_it_is(session: Session, said: list[Message]) -> list[Message]:
    return said


async def the_sessions_own() -> Model | None:
    return None


class ReviewParts(Struct, frozen=True, kw_only=True):
    """`seen` is the transcript as the model sees it; `model` another one to look back with."""

    store: Store
    clock: Clock
    planner: Planner
    price: Price
    ledger: Callable[[], Ledger]
    profile: str
    seen: Callable[[Session, list[Message]], Awaitable[list[Message]]] = as_it_is
    model: Callable[[], Awaitable[Model | None]] = the_sessions_own
    steps: int = STEPS


class Reviewer:
    def __init__(self, parts: ReviewParts) -> None:
        self._parts = parts
        self._holder = new_holder()

    async def review(self, occasion: Occasion, due: Due) -> Findings:
        parts = self._parts
        archive = parts.store.seen_by(OWNER)
        before = await archive.get(occasion.session)
        whole = [row.message for row in await archive.messages(before.id)]
        said = await parts.seen(before, list(whole))
        session = self._session(before)
        plan = await parts.planner.plan(session, self._scope(session, occasion), History(said))
        if isinstance(plan, Entrusted) or ALLOWED.isdisjoint(plan.tools):
            return Findings()
        await self._run(session, *await self._confined(plan, said, whole, due))
        return await self._findings(session.id)

    def _session(self, before: Session) -> Session:
        now = self._parts.clock.now()
        fresh = Session(
            id=new_session_id(now), started_at=now, source=REVIEW, principal=before.principal
        )
        return going_on(fresh, before)

    def _scope(self, session: Session, occasion: Occasion) -> Scope:
        """As the turn had it, so that the same tools are offered."""
        return Scope(
            profile=self._parts.profile,
            session=session.id,
            run=new_id("run"),
            workspace=session.cwd,
            principal=session.principal,
            address=occasion.address,
            later=False,
            source=occasion.source,
        )

    async def _confined(
        self, plan: Plan, said: Sequence[Message], whole: Sequence[Message], due: Due
    ) -> tuple[Plan, User]:
        """With nothing that reaches further than memory and skills."""
        other = await self._parts.model()
        words, tools = instructions(due), _held(plan.tools, whole)
        if other is not None:
            # It has read nothing of this yet: it is told the end, and given what it may use.
            words = f"{digest(said)}\n\n{words}"
            tools = {name: tool for name, tool in tools.items() if name in ALLOWED}
        confined = structs.replace(
            plan,
            scope=structs.replace(plan.scope, source=REVIEW, address=None),
            model=other or plan.model,
            history=History(said if other is None else ()),
            tools=tools,
            steps=min(plan.steps, self._parts.steps),
            steer=no_steering,
            handed=(),
            counsel=None,
            compress=None,
            renew=None,
        )
        return confined, User(new_id("msg"), (Text(words),), Trust.HOUSE)

    async def _run(self, session: Session, plan: Plan, asked: User) -> None:
        store, clock = self._parts.store, self._parts.clock
        await store.commit(OpenSession(session))
        lease = Lease(store, session.id, self._holder)
        await lease.take()
        recorder = Recorder(store, clock, self._parts.price, plan.scope, lease)
        try:
            await run_turn(plan, [asked], recorder.sink(Accepted(), _nobody, own=True))
        finally:
            await lease.give_back()
            over = SessionChange(ended_at=clock.now(), end_reason=REVIEW)
            with anyio.CancelScope(shield=True):
                await store.commit(ChangeSession(session.id, over))

    async def _findings(self, session: str) -> Findings:
        ledger = self._parts.ledger()
        entries = await ledger.log(limit=200)
        return Findings(
            changes=[one.change for one in entries if one.change.origin.session == session],
            proposals=[one for one in await ledger.waiting() if one.origin.session == session],
        )


class _NotHere:
    """A tool that is told of, because it always was, and that does nothing."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        raise ToolError(
            f"{self.spec.name} is not used when looking back: only memory and skills are."
        )


class _Aware:
    """A tool that knows where all words come from that were ever said in the session."""

    def __init__(self, tool: Tool, whole: Sequence[Message], tools: Mapping[str, Tool]) -> None:
        self._tool = tool
        self._whole = whole
        self._tools = tools
        self.spec = tool.spec

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        def sources(text: str) -> Sources:
            return sources_for(text, self._whole, self._tools)

        return await self._tool.run(args, structs.replace(ctx, sources=sources))


def _held(tools: Mapping[str, Tool], whole: Sequence[Message]) -> dict[str, Tool]:
    return {
        name: _Aware(tool, whole, tools) if name in ALLOWED else _NotHere(tool.spec)
        for name, tool in tools.items()
    }


def instructions(due: Due) -> str:
    parts = [
        "look_back",
        *(["memory"] if due.memory else []),
        *(["skills"] if due.skills else []),
        "look_back_end",
    ]
    return "\n\n".join(_words(part) for part in parts)


def digest(said: Sequence[Message]) -> str:
    """The last messages as plain text."""
    lines = [_told(message) for message in said[-DIGEST:]]
    left = len(said) - DIGEST
    head = [f"[… {left:,} earlier messages are left out …]"] if left > 0 else []
    return "\n\n".join([*head, *filter(None, lines)])


def _told(message: Message) -> str:
    text = head_and_tail(text_of(message).strip(), _LONGEST)
    match message:
        case User(trust=trust):
            who = "The person" if trust is Trust.OWNER else f"Not the person ({trust})"
            return f"{who}: {text}"
        case Assistant(calls=calls):
            names = ", ".join(call.name for call in calls)
            return f"You: {text}{f' [called {names}]' if names else ''}"
        case Result():
            return f"A tool: {text}"


@cache
def _words(name: str) -> str:
    return (Path(__file__).parent / f"{name}.md").read_text("utf-8").strip()


async def _nobody(event: Event) -> None:
    """Nobody watches a review."""
