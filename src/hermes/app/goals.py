"""Compose the goals of a profile: the judge's model, delivery and limits."""

from collections.abc import Sequence
from functools import partial

from hermes.app.build import App
from hermes.app.followup_router import FollowupRouter
from hermes.app.models import auxiliary_flags
from hermes.app.session_notices import SessionNotices
from hermes.gateway.followups import is_chat
from hermes.gateway.messages import CHAT_KEY_PREFIX, INBOX
from hermes.goals.judge import MAX_BYTES, MAX_MESSAGES, Judge, Judgment
from hermes.goals.service import GoalService
from hermes.models.catalog import price
from hermes.ports.model import Model
from hermes.ports.store import DropItems, RecordUsage, Store, Write
from hermes.schema.messages import Assistant, Trust
from hermes.schema.scope import OWNER, Scope
from hermes.schema.sessions import Session

_TIMEOUT = 60.0
_API = "api_server"
"""The source of sessions whose follow-ups the API server runs."""


def build_goal_service(app: App) -> GoalService:
    settings = app.config.goals
    return GoalService(
        store=app.store,
        clock=app.clock,
        judge=_build_judge(app),
        delivery=SessionGoals(store=app.store, followups=app.followups, notices=app.notices),
        profile=app.home.profile,
        max_turns=settings.max_turns,
        max_cost=settings.max_cost,
        tasks=app.tasks,
    )


async def judge_session(app: App, session: str, goal: str) -> Judgment:
    """Judge once whether the end of a session's transcript shows that a goal is met.

    Raises `ModelError`, also for an answer that cannot be used.
    """
    archive = app.store.archive_for(OWNER)
    found = await archive.get(session)
    tail = await archive.tail(session, MAX_MESSAGES, MAX_BYTES)
    return await _build_judge(app).judge(goal, found, [row.message for row in tail.rows])


def _build_judge(app: App) -> Judge:
    return Judge(
        model=partial(_judge_model, app),
        record=partial(_record_usage, app),
        redact=app.redactor.redact,
        timeout=app.config.auxiliary.goal_judge.timeout or _TIMEOUT,
    )


async def _judge_model(app: App, session: Session) -> Model:
    """The model of the slot `auxiliary.goal_judge`, or the session's own."""
    flags = auxiliary_flags(app.config, app.config.auxiliary.goal_judge)
    return await (app.models.model_for_flags(flags) if flags else app.models.model_for(session))


async def _record_usage(app: App, session: Session, answer: Assistant) -> None:
    model, provider, usage = answer.model, answer.provider, answer.usage
    cost = price(model, provider, usage)
    now = app.clock.now()
    await app.store.commit(RecordUsage(session.id, "", model, provider, usage, cost, now))


class SessionGoals:
    """Implements `hermes.goals.service.GoalDelivery` with follow-ups and notices."""

    def __init__(self, *, store: Store, followups: FollowupRouter, notices: SessionNotices) -> None:
        self._store = store
        self._followups = followups
        self._notices = notices

    def turn_rows(self, scope: Scope, key: str, text: str) -> Sequence[Write]:
        return self._followups.rows(scope, key, text, trust=Trust.PROGRAM)

    def drop_rows(self, prefix: str, request_ids: Sequence[str]) -> Sequence[Write]:
        return [DropItems(INBOX, prefix, tuple(request_ids))]

    def wake(self, scope: Scope) -> None:
        self._followups.wake(scope)

    async def is_busy(self, scope: Scope) -> bool:
        topic = scope.key if is_chat(scope) else scope.session
        if await self._store.leases.held(scope.session):
            return True
        return topic in await self._store.queues.topics(INBOX)

    async def current_scope(self, scope: Scope) -> Scope:
        return await self._followups.current_scope(scope)

    def continues_alone(self, scope: Scope) -> bool:
        return is_chat(scope) or scope.source == _API

    def can_continue(self, scope: Scope) -> bool:
        return is_chat(scope) or not scope.key.startswith(CHAT_KEY_PREFIX)

    def notice_rows(self, scope: Scope, key: str, text: str) -> Sequence[Write]:
        return self._notices.rows(key, scope.address if is_chat(scope) else None, text)

    def report_check(self, scope: Scope, text: str) -> None:
        if not is_chat(scope):
            self._notices.post_progress(scope.session, text)

    def notify(self, scope: Scope, text: str) -> None:
        self._notices.post(scope.session, scope.address if is_chat(scope) else None, text)
