"""Calls beside a chat, for its title or tags: only their own words go to the model.

They have no session, no tools and no prompt of the agent, and nothing is learned from them.
What they cost is kept in a ledger of the day, which no list of sessions shows.
"""

import anyio
from aiohttp import web

from hermes.agent.answers import AnswerStream
from hermes.agent.history import History
from hermes.api.chat_objects import ChatRequest
from hermes.api.errors import invalid
from hermes.api.turn_input import TurnInput
from hermes.app.build import App
from hermes.ports.events import Emit
from hermes.ports.model import ModelRequest, OutputConstraints
from hermes.ports.store import OpenSession, RecordUsage
from hermes.schema.errors import HermesError, NotFound, PolicyRefused, StoreError
from hermes.schema.events import MessageAdded, Outcome, RunEnded, RunStarted
from hermes.schema.messages import Assistant, Stop
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session
from hermes.session.spend_guard import SpendCaps, SpendGuard

TASK_HEADER = "X-Hermes-Task"
COST_SOURCE = "api_task"
"""The source of the ledgers, which keeps them out of the list of sessions."""
MAX_OUTPUT_TOKENS = 1_000_000
_TASK_MARK, _HISTORY_MARK = "### Task:", "<chat_history>"
_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


def is_side_call(request: web.Request, body: ChatRequest, *, bound: bool) -> bool:
    """By its header, or by its shape; `bound` is one with a session or an Idempotency-Key.

    Raises `ApiError` for a header that goes against the rest of the request.
    """
    said = request.headers.get(TASK_HEADER, "").strip().lower()
    if not said:
        return not bound and _looks_like_side_call(body)
    if said not in _YES | _NO:
        raise invalid(f"{TASK_HEADER} is 1 or 0.", param=TASK_HEADER)
    if said in _YES and (bound or body.tools):
        told = f"A call with {TASK_HEADER} has no session, no tools and no Idempotency-Key."
        raise invalid(told, param=TASK_HEADER)
    return said in _YES


def _looks_like_side_call(body: ChatRequest) -> bool:
    # A chat with documents may begin in the same way: it is streamed and quotes no chat.
    if body.tools or body.stream or len(body.messages) != 1:
        return False
    only = body.messages[0]
    if only.role != "user" or not isinstance(only.content, str):
        return False
    return only.content.lstrip().startswith(_TASK_MARK) and _HISTORY_MARK in only.content


def has_own_model(app: App) -> bool:
    """Whether a model is asked here: turns may be run by a mind of its own, as a whole."""
    return not app.codex.on


def side_call_request(
    prompt: TurnInput, body: ChatRequest, calling: OutputConstraints
) -> ModelRequest:
    """The request as it goes to the model."""
    asked = [prompt.asked] if prompt.asked else []
    history = History([*prompt.past, *prompt.results, *asked]).valid()
    most = body.max_completion_tokens or body.max_tokens or 0
    limit = min(most, MAX_OUTPUT_TOKENS) if most > 0 else None
    return ModelRequest(
        prompt.instructions, history, max_output=limit, effort="none", calling=calling
    )


def cost_session(app: App) -> Session:
    """Where the costs of today are kept; it may not be there yet."""
    now = app.clock.now()
    return Session(id=f"{COST_SOURCE}-{now:%Y-%m-%d}", started_at=now, source=COST_SOURCE)


async def run_side_call(
    app: App, session: Session, request: ModelRequest, run: str, listen: Emit
) -> Outcome:
    """Told in the same events as a turn. Raises `ConfigError` when there is no model."""
    model = await app.models.model_for(session)
    await listen(RunStarted(run, ""))
    ended = RunEnded(run, Outcome.CANCELLED, "Interrupted.", "cancelled")
    try:
        await _check_spend(app, session)
        answer = await AnswerStream(model, listen).listen(request)
        with anyio.CancelScope(shield=True):
            await _record_usage(app, session, answer)
        await listen(MessageAdded(answer))
        ended = _run_end(run, answer)
    except HermesError as error:
        ended = RunEnded(run, Outcome.FAILED, error.sentence, error.code)
    finally:
        with anyio.CancelScope(shield=True):
            await listen(ended)
    return ended.outcome


async def _check_spend(app: App, session: Session) -> None:
    limits = app.config.limits
    caps = SpendCaps(day=limits.usd_per_day, principal=limits.usd_per_principal)
    allowed = SpendGuard(app.store, app.clock, caps).of(session, OWNER)
    if allowed is not None:
        await allowed()


async def _record_usage(app: App, session: Session, answer: Assistant) -> None:
    cost = app.price(answer.model, answer.provider, answer.usage)
    now = app.clock.now()
    meter = RecordUsage(session.id, "", answer.model, answer.provider, answer.usage, cost, now)
    try:
        await app.store.commit(meter)
    except NotFound:
        await _open_cost_session(app, session, meter)


async def _open_cost_session(app: App, session: Session, meter: RecordUsage) -> None:
    try:
        await app.store.commit(OpenSession(session), meter)
    except StoreError:
        # Another call of this day has begun it just now.
        await app.store.commit(meter)


def _run_end(run: str, answer: Assistant) -> RunEnded:
    match answer.stop:
        case Stop.LENGTH:
            told = "The answer has as many tokens as were asked for."
            return RunEnded(run, Outcome.EXHAUSTED, told, "truncated", answer.usage, 1)
        case Stop.REFUSED:
            error = PolicyRefused("The provider declined to answer this.")
            return RunEnded(run, Outcome.FAILED, error.sentence, error.code, answer.usage, 1)
        case _:
            return RunEnded(run, Outcome.DONE, usage=answer.usage, steps=1)
