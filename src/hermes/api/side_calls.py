"""Answer side calls, for example for chat titles or tags, directly from the model.

They have no session, tools or system prompt, and nothing is learned from them. Their cost is
recorded in one hidden session per day.
"""

import anyio
from aiohttp import web
from msgspec import Struct

from hermes.agent.answers import no_answer
from hermes.agent.history import History
from hermes.api.chat_objects import ChatRequest
from hermes.api.errors import invalid
from hermes.api.turn_input import TurnInput
from hermes.app.build import App
from hermes.ports.model import ModelRequest, OutputConstraints
from hermes.ports.store import OpenSession, RecordUsage
from hermes.schema.errors import HermesError, ModelError, NotFound, PolicyRefused, StoreError
from hermes.schema.events import MessageAdded, Outcome, RunEnded, RunStarted
from hermes.schema.messages import Assistant, Stop
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session
from hermes.session.recorder import Publish
from hermes.session.spend_guard import SpendCaps, SpendGuard

TASK_HEADER = "X-Hermes-Task"
COST_SOURCE = "api_task"
"""Source of the cost sessions, which hides them from session lists."""
MAX_OUTPUT_TOKENS = 1_000_000
_TASK_MARK, _HISTORY_MARK = "### Task:", "<chat_history>"
_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


def is_side_call(request: web.Request, body: ChatRequest, *, has_session_or_key: bool) -> bool:
    """Whether this is a side call, by header or shape.

    Raises `ApiError` if the header contradicts the request.
    """
    value = request.headers.get(TASK_HEADER, "").strip().lower()
    if not value:
        # Chats about documents may start the same way, but they are streamed or quote no history.
        if has_session_or_key or body.tools or body.stream or len(body.messages) != 1:
            return False
        only = body.messages[0]
        text = only.content if only.role == "user" and isinstance(only.content, str) else ""
        return text.lstrip().startswith(_TASK_MARK) and _HISTORY_MARK in text
    if value not in _YES | _NO:
        raise invalid(f"{TASK_HEADER} must be 1 or 0.", param=TASK_HEADER)
    if value in _YES and (has_session_or_key or body.tools):
        message = (
            f"A request with {TASK_HEADER} cannot have a session, tools or an Idempotency-Key."
        )
        raise invalid(message, param=TASK_HEADER)
    return value in _YES


def side_call_request(
    prompt: TurnInput, body: ChatRequest, constraints: OutputConstraints
) -> ModelRequest:
    """Build the model request."""
    question = [prompt.question] if prompt.question else []
    history = History([*prompt.history, *prompt.results, *question]).valid()
    requested = body.max_completion_tokens or body.max_tokens or 0
    limit = min(requested, MAX_OUTPUT_TOKENS) if requested > 0 else None
    return ModelRequest(
        prompt.instructions, history, max_output=limit, effort="none", constraints=constraints
    )


def cost_session(app: App) -> Session:
    """Return today's cost session, which may not be stored yet."""
    now = app.clock.now()
    return Session(id=f"{COST_SOURCE}-{now:%Y-%m-%d}", started_at=now, source=COST_SOURCE)


class SideCall(Struct, frozen=True):
    """A request to the model, and the session that its cost is recorded in."""

    session: Session
    request: ModelRequest
    run: str

    async def run_in(self, app: App, publish: Publish) -> None:
        """Answer it, and publish the events of a turn."""
        model, run = await app.models.model_for(self.session), self.run
        publish(RunStarted(run, ""))
        ended = RunEnded(run, Outcome.CANCELLED, "Interrupted.", "cancelled")
        try:
            await _check_spend(app, self.session)
            answer: Assistant | None = None
            async with model.stream(self.request) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, Assistant):
                        answer = chunk
                        break
                    publish(chunk)
            if answer is None:
                raise no_answer(model)
            with anyio.CancelScope(shield=True):
                await _record_usage(app, self.session, answer)
            publish(MessageAdded(answer))
            ended = _run_end(run, answer)
        except HermesError as error:
            wait = error.wait if isinstance(error, ModelError) else None
            ended = RunEnded(run, Outcome.FAILED, error.sentence, error.code, retry_after=wait)
        finally:
            publish(ended)


async def _check_spend(app: App, session: Session) -> None:
    limits = app.config.limits
    caps = SpendCaps(day=limits.usd_per_day, principal=limits.usd_per_principal)
    if check := SpendGuard(app.store, app.clock, caps).check_for(session, OWNER):
        await check()


async def _record_usage(app: App, session: Session, answer: Assistant) -> None:
    cost = app.price(answer.model, answer.provider, answer.usage)
    now = app.clock.now()
    usage = RecordUsage(session.id, "", answer.model, answer.provider, answer.usage, cost, now)
    try:
        await app.store.commit(usage)
    except NotFound:
        try:
            await app.store.commit(OpenSession(session), usage)
        except StoreError:
            # A concurrent call has just created it.
            await app.store.commit(usage)


def _run_end(run: str, answer: Assistant) -> RunEnded:
    match answer.stop:
        case Stop.LENGTH:
            message = "The answer reached the requested token limit."
            return RunEnded(run, Outcome.EXHAUSTED, message, "truncated", answer.usage, 1)
        case Stop.REFUSED:
            error = PolicyRefused("The provider declined to answer.")
            return RunEnded(run, Outcome.FAILED, error.sentence, error.code, answer.usage, 1)
        case _:
            return RunEnded(run, Outcome.DONE, usage=answer.usage, steps=1)
