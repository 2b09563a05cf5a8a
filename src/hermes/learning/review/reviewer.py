"""Run one review: a turn on a copy of the conversation that can only change memory and skills.

It uses the prompt, tools and messages of the reviewed session, so that the provider's cache
applies. Its messages go to a separate session.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import anyio
from msgspec import Raw, Struct, structs

from hermes.agent.history import History
from hermes.agent.plan import Plan, RuntimePlan, no_steering
from hermes.agent.provenance import find_sources
from hermes.agent.turn import run_turn
from hermes.kit.clock import Clock
from hermes.kit.ids import new_holder_id, new_id, new_session_id
from hermes.kit.text import head_and_tail
from hermes.learning.ledger import Ledger
from hermes.learning.provenance import REVIEW_SOURCE
from hermes.learning.review.triggers import DueReviews
from hermes.ports.ledger import Change, Proposal
from hermes.ports.model import Model
from hermes.ports.store import ChangeSession, Fence, OpenSession, Store
from hermes.ports.tool import TextSources, Tool, ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.events import Event
from hermes.schema.messages import Assistant, Message, Result, Text, Trust, User, text_of
from hermes.schema.scope import OWNER, Address, Scope
from hermes.schema.sessions import Session, SessionChange, continued_from
from hermes.schema.tools import ToolSpec
from hermes.session.lease import Lease
from hermes.session.recorder import PriceFunction, Recorder
from hermes.session.runner import Planner

ALLOWED_TOOLS = frozenset({"memory", "skills_list", "skill_view", "skill_manage"})
MAX_STEPS = 16
DIGEST_MESSAGES = 24
"""How many messages a model other than the session's own is shown."""
_MAX_MESSAGE = 4_000


class ReviewedTurn(Struct, frozen=True, kw_only=True):
    """A finished turn: its session, principal and origin."""

    session: str
    principal: str = OWNER
    source: str = ""
    address: Address | None = None


class ReviewResult(Struct, frozen=True, kw_only=True):
    changes: Sequence[Change] = ()
    proposals: Sequence[Proposal] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.proposals)


async def unchanged_messages(session: Session, messages: list[Message]) -> list[Message]:
    return messages


async def no_other_model() -> Model | None:
    return None


class ReviewDeps(Struct, frozen=True, kw_only=True):
    """`visible_messages` returns what the model sees; `model` another model for reviews."""

    store: Store
    clock: Clock
    planner: Planner
    price: PriceFunction
    ledger: Callable[[], Ledger]
    profile: str
    visible_messages: Callable[[Session, list[Message]], Awaitable[list[Message]]] = (
        unchanged_messages
    )
    model: Callable[[], Awaitable[Model | None]] = no_other_model
    steps: int = MAX_STEPS


class Reviewer:
    def __init__(self, deps: ReviewDeps) -> None:
        self._deps = deps
        self._holder = new_holder_id(deps.store.workers.own)

    async def review(self, turn: ReviewedTurn, due: DueReviews) -> ReviewResult:
        parts = self._deps
        archive = parts.store.archive_for(OWNER)
        before = await archive.get(turn.session)
        transcript = [row.message for row in await archive.messages(before.id)]
        messages = await parts.visible_messages(before, list(transcript))
        session = self._session(before)
        plan = await parts.planner.plan(session, self._scope(session, turn), History(messages))
        if isinstance(plan, RuntimePlan) or ALLOWED_TOOLS.isdisjoint(plan.tools):
            return ReviewResult()
        await self._run(session, *await self._review_plan(plan, messages, transcript, due))
        return await self._findings(session.id)

    def _session(self, before: Session) -> Session:
        now = self._deps.clock.now()
        fresh = Session(
            id=new_session_id(now), started_at=now, source=REVIEW_SOURCE, principal=before.principal
        )
        return continued_from(fresh, before)

    def _scope(self, session: Session, turn: ReviewedTurn) -> Scope:
        """The scope of the turn, so that the same tools are offered."""
        return Scope(
            profile=self._deps.profile,
            session=session.id,
            run=new_id("run"),
            workspace=session.cwd,
            principal=session.principal,
            address=turn.address,
            later=False,
            source=turn.source,
        )

    async def _review_plan(
        self,
        plan: Plan,
        messages: Sequence[Message],
        transcript: Sequence[Message],
        due: DueReviews,
    ) -> tuple[Plan, User]:
        other = await self._deps.model()
        prompt, tools = review_prompt(due), _review_tools(plan.tools, transcript)
        if other is not None:
            # It has no context yet: show it the end of the conversation and only the usable tools.
            prompt = f"{conversation_digest(messages)}\n\n{prompt}"
            tools = {name: tool for name, tool in tools.items() if name in ALLOWED_TOOLS}
        review_plan = structs.replace(
            plan,
            scope=structs.replace(plan.scope, source=REVIEW_SOURCE, address=None),
            model=other or plan.model,
            history=History(messages if other is None else ()),
            tools=tools,
            steps=min(plan.steps, self._deps.steps),
            steer=no_steering,
            client_tools=(),
            approvals=None,
            compact=None,
            rebuild_prompt=None,
        )
        return review_plan, User(new_id("msg"), (Text(prompt),), Trust.PROGRAM)

    async def _run(self, session: Session, plan: Plan, question: User) -> None:
        store, clock = self._deps.store, self._deps.clock
        await store.commit(OpenSession(session))
        lease = Lease(store, self._holder, Fence(session.id, 0))
        await lease.acquire()
        recorder = Recorder(
            store=store,
            clock=clock,
            price=self._deps.price,
            scope=plan.scope,
            lease=lease,
            partial=None,
            publish=_ignore_event,
            own=True,
        )
        try:
            await run_turn(plan, [question], recorder.emit)
        finally:
            if lease.held:
                await lease.release()
            ended = SessionChange(ended_at=clock.now(), end_reason=REVIEW_SOURCE)
            with anyio.CancelScope(shield=True):
                await store.commit(ChangeSession(session.id, ended))

    async def _findings(self, session: str) -> ReviewResult:
        ledger = self._deps.ledger()
        entries = await ledger.log(limit=200)
        return ReviewResult(
            changes=[entry.change for entry in entries if entry.change.origin.session == session],
            proposals=[
                proposal
                for proposal in await ledger.waiting()
                if proposal.origin.session == session
            ],
        )


def _ignore_event(event: Event) -> None:
    """The result of a review is what it stored."""


class _DisabledTool:
    """A tool that stays listed, as in the session, but does nothing."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        raise ToolError(
            f"{self.spec.name} is not available in a review: only memory and skills are."
        )


class _ProvenanceTool:
    """A tool that knows the sources of all text in the session."""

    def __init__(
        self, tool: Tool, transcript: Sequence[Message], tools: Mapping[str, Tool]
    ) -> None:
        self._tool = tool
        self._transcript = transcript
        self._tools = tools
        self.spec = tool.spec

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        def sources(text: str) -> TextSources:
            return find_sources(text, self._transcript, self._tools)

        return await self._tool.run(args, structs.replace(ctx, sources=sources))


def _review_tools(tools: Mapping[str, Tool], transcript: Sequence[Message]) -> dict[str, Tool]:
    return {
        name: _ProvenanceTool(tool, transcript, tools)
        if name in ALLOWED_TOOLS
        else _DisabledTool(tool.spec)
        for name, tool in tools.items()
    }


def review_prompt(due: DueReviews) -> str:
    subjects = ["memory"] * due.memory + ["skills"] * due.skills
    return "\n\n".join(map(_prompt_part, ["look_back", *subjects, "look_back_end"]))


def conversation_digest(messages: Sequence[Message]) -> str:
    lines = [_message_line(message) for message in messages[-DIGEST_MESSAGES:]]
    omitted = len(messages) - DIGEST_MESSAGES
    head = [f"[… {omitted:,} earlier messages omitted …]"] if omitted > 0 else []
    return "\n\n".join([*head, *filter(None, lines)])


def _message_line(message: Message) -> str:
    text = head_and_tail(text_of(message).strip(), _MAX_MESSAGE)
    match message:
        case User(trust=trust):
            speaker = "The person" if trust is Trust.OWNER else f"Not the person ({trust})"
            return f"{speaker}: {text}"
        case Assistant(calls=calls):
            names = ", ".join(call.name for call in calls)
            return f"You: {text}{f' [called {names}]' if names else ''}"
        case Result():
            return f"A tool: {text}"


@cache
def _prompt_part(name: str) -> str:
    return (Path(__file__).parent / f"{name}.md").read_text("utf-8").strip()
