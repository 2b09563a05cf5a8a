"""Build the services around a turn: compaction before it; titles, reviews and goals after it."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from anyio.abc import TaskGroup

from hermes.agent.history import CompactionLimits
from hermes.app.learning import Learning
from hermes.app.models import ModelSelector, auxiliary_flags, summary_flags
from hermes.app.plugins import FeatureServices
from hermes.compaction.service import CompactionService
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.model import Model
from hermes.ports.store import Store
from hermes.schema.errors import StoreError
from hermes.schema.events import Outcome, RunEnded
from hermes.schema.scope import Role
from hermes.session.recorder import PriceFunction
from hermes.session.runner import AfterTurn, Planner
from hermes.session.turn_request import TurnRequest
from hermes.tools.catalog import load_specs

if TYPE_CHECKING:
    from hermes.app.build import App
    from hermes.app.session_notices import SessionNotices
    from hermes.compaction.compactor import Compactor
    from hermes.learning.review.reviewer import ReviewedTurn
    from hermes.learning.review.scheduler import ReviewRules, ReviewScheduler

log = logging.getLogger(__name__)

TIMEOUT_FACTOR = 5
"""A review makes several requests: its timeout is this many times that of one."""


class BackgroundReviews:
    """Schedules reviews after turns; their code is loaded with the first turn that may need one."""

    def __init__(
        self,
        *,
        config: Config,
        store: Store,
        clock: Clock,
        notices: "SessionNotices",
        planner: Planner,
        price: PriceFunction,
        models: ModelSelector,
        learning: Learning,
        compaction: CompactionService | None,
        profile: str,
        tasks: TaskGroup,
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._notices = notices
        self._planner = planner
        self._price = price
        self._models = models
        self._learning = learning
        self._compaction = compaction
        self._profile = profile
        self._tasks = tasks
        self._reviews: ReviewScheduler | None = None

    def turn_ended(self, turn: TurnRequest, ended: RunEnded) -> None:
        if turn.role is not Role.OWNER:
            return  # only the owner's turns are reviewed
        memory = self._config.memory.nudge_interval
        skills = self._config.skills.creation_nudge_interval
        if turn.new and not (0 < memory <= 1 or 0 < skills <= ended.steps):
            return  # a review cannot be due, whatever the first turn of the session did
        if self._models.is_small(turn.session):
            return
        if self._reviews is None:
            self._reviews = self._build_scheduler()
        self._reviews.turn_ended(turn, ended)

    async def notify(self, turn: "ReviewedTurn", text: str) -> None:
        """Send a notice: to a chat through its outbox, or kept until a terminal asks for it."""
        rows = self._notices.rows(f"{new_id('rev')}:told", turn.address, text)
        await self._store.commit(*rows)
        self._notices.post(turn.session, turn.address, text)

    def _build_scheduler(self) -> "ReviewScheduler":
        from hermes.learning.review.reviewer import ReviewDeps, unchanged_messages  # noqa: PLC0415 - as above
        from hermes.learning.review.scheduler import ReviewScheduler  # noqa: PLC0415 - as above

        review = ReviewDeps(
            store=self._store,
            clock=self._clock,
            planner=self._planner,
            price=self._price,
            ledger=lambda: self._learning.ledger,
            profile=self._profile,
            visible_messages=self._compaction.visible_messages
            if self._compaction is not None
            else unchanged_messages,
            model=self._model,
        )
        return ReviewScheduler(review, review_rules(self._config), self.notify, self._tasks)

    async def _model(self) -> Model | None:
        """The model of the slot `auxiliary.background_review`, if one is set."""
        flags = auxiliary_flags(self._config, self._config.auxiliary.background_review)
        return await self._models.model_for_flags(flags) if flags else None


def review_rules(config: Config) -> "ReviewRules":
    from hermes.learning.review.scheduler import (  # noqa: PLC0415 - only when needed
        NotificationLevel,
        ReviewRules,
    )
    from hermes.learning.review.triggers import ReviewIntervals  # noqa: PLC0415 - as above

    memory, slot = config.memory, config.auxiliary.background_review
    setting = config.display.memory_notifications.strip().lower()
    level = {"false": "off", "true": "on"}.get(setting, setting)
    known = level in {one.value for one in NotificationLevel}
    return ReviewRules(
        intervals=ReviewIntervals(
            memory=memory.nudge_interval, skills=config.skills.creation_nudge_interval
        ),
        memory=memory.memory_enabled or memory.user_profile_enabled,
        timeout=(slot.timeout or 120) * TIMEOUT_FACTOR,
        notifications=NotificationLevel(level) if known else NotificationLevel.ON,
    )


def _derive_title(
    store: Store,
    redact: Callable[[str], str],
    tasks: TaskGroup,
    turn: TurnRequest,
    ended: RunEnded,
) -> None:
    """Name the sessions that a person starts at the terminal or on the web page."""
    session, message = turn.session, turn.message
    by_hand = turn.attended and session.source in {"cli", "web"}
    if turn.new and by_hand and message is not None and ended.outcome is Outcome.DONE:
        from hermes.session.titles import DerivedTitles  # noqa: PLC0415 - as below

        tasks.start_soon(DerivedTitles(store, redact).name, session, message)


def title_callbacks(
    config: Config,
    *,
    store: Store,
    clock: Clock,
    models: ModelSelector,
    price: PriceFunction,
    redact: Callable[[str], str],
    tasks: TaskGroup,
) -> Sequence[AfterTurn]:
    """What gives new sessions a title after their first turn, if enabled."""
    slot = config.auxiliary.title_generation
    if not slot.enabled:
        return ()
    flags = auxiliary_flags(config, slot) if slot.model else None
    if flags is None:
        return (partial(_derive_title, store, redact, tasks),)
    from hermes.session.titles import SessionTitles, TitleSettings  # noqa: PLC0415 - only when enabled

    async def model() -> Model:
        return await models.model_for_flags(flags)

    settings = TitleSettings(
        model=model, redact=redact, timeout=slot.timeout or 30.0, language=slot.language
    )
    titles = SessionTitles(store, clock, price, settings)

    def generate(turn: TurnRequest, ended: RunEnded) -> None:
        if turn.new and ended.outcome is Outcome.DONE and not turn.session.title:
            tasks.start_soon(titles.generate, turn.session)

    return (generate,)


def goal_callback(store: Store, features: FeatureServices, tasks: TaskGroup) -> AfterTurn:
    """Continue a session's goal after its turn; the goal code is only loaded if there is one."""

    async def go_on(turn: TurnRequest, ended: RunEnded) -> None:
        session = turn.session.id
        try:
            goal = await store.goals.get(session)
        except StoreError as error:
            log.warning("cannot read the goal of session %s: %s", session, error)
            return
        if goal is not None:
            features.get("goals").turn_ended(session, ended.outcome)

    return partial(tasks.start_soon, go_on)


def build_compaction(app: "App") -> CompactionService | None:
    """None if disabled."""
    config, settings = app.config, app.config.compression
    if not settings.enabled:
        return None
    slot = config.auxiliary.compression
    limits = CompactionLimits(
        threshold=settings.threshold,
        target=settings.target_ratio,
        keep_first=settings.protect_first_n,
        keep_last=settings.protect_last_n,
        max_messages=settings.hygiene_hard_message_limit,
        max_output=config.main_model.max_tokens or 0,
        codex_raise=settings.codex_gpt55_autoraise,
        abort=settings.abort_on_summary_failure,
        stateful=tuple(name for name, spec in load_specs().items() if spec.stateful),
    )

    async def summary_models(usual: Model) -> Sequence[Model]:
        """The configured summary model if there is one, then the turn's model."""
        flags = summary_flags(config)
        return [usual] if flags is None else [await app.models.model_for_flags(flags), usual]

    def build(limits: CompactionLimits) -> "Compactor":
        from hermes.compaction.compactor import Compactor, ViewStore  # noqa: PLC0415 - loaded on first use
        from hermes.compaction.summary import SummaryWriter  # noqa: PLC0415 - as above

        writer = SummaryWriter(
            models=summary_models,
            redact=app.redactor.redact,
            timeout=slot.timeout or 120.0,
            effort=slot.reasoning_effort or None,
        )
        view = ViewStore(app.store, app.clock)
        return Compactor(view, app.clock, app.price, limits, writer)

    return CompactionService(app.store, limits, build)
