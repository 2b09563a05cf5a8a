"""Looking back on turns, for a profile: what the settings say, and how the person hears of it."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from anyio.abc import TaskGroup
from msgspec import Struct

from hermes.app.learning import Learning
from hermes.app.models import ModelDesk
from hermes.app.side_models import wish_of
from hermes.config.schema import Config
from hermes.gateway.letters import Reply, post_reply
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.tasks import beside
from hermes.ports.model import Model
from hermes.ports.store import Store
from hermes.schema.events import Outcome
from hermes.schema.scope import Address
from hermes.session.accepting import Turn
from hermes.session.compressing import Compressing
from hermes.session.recorder import Price
from hermes.session.runner import Planner, Runner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes.review.reviewer import Occasion
    from hermes.review.reviews import ReviewRules, Reviews

SESSIONS = 256
PATIENCE = 5
"""A review is several requests: so many times what one of them may take."""


class Looking(Struct, frozen=True, kw_only=True):
    """What looking back needs. It is not `on` in a process that ends with its one answer."""

    config: Config
    store: Store
    clock: Clock
    planner: Planner
    price: Price
    models: ModelDesk
    learning: Learning
    compressing: Compressing | None
    profile: str
    on: bool


class LookingBack:
    """Hears of every turn that ended. Its code is loaded with the first of them."""

    def __init__(self, parts: Looking, group: TaskGroup) -> None:
        self._parts = parts
        self._group = group
        self._reviews: Reviews | None = None
        self._notices: OrderedDict[str, list[str]] = OrderedDict()
        self._posted: Callable[[Address], None] = _nobody_delivers

    def is_delivered_by(self, posted: Callable[[Address], None]) -> None:
        """Who brings to chats what lies in their outboxes."""
        self._posted = posted

    def ended(self, turn: Turn, outcome: Outcome) -> None:
        if self._parts.on and not self._parts.models.is_small(turn.session):
            self._looking_back().ended(turn, outcome)

    def has_notice(self, session: str) -> bool:
        return session in self._notices

    def notices(self, session: str) -> list[str]:
        """What a person at a terminal has not been told yet; given out once."""
        return self._notices.pop(session, [])

    async def tell(self, occasion: "Occasion", text: str) -> None:
        """To a chat through its outbox; to a terminal when somebody looks."""
        if occasion.address is None:
            self._notices.setdefault(occasion.session, []).append(text)
            while len(self._notices) > SESSIONS:
                self._notices.popitem(last=False)
            return
        reply = Reply(address=occasion.address, text=text, at=self._parts.clock.now())
        await self._parts.store.commit(post_reply(f"{new_id('rev')}:told", reply))
        self._posted(occasion.address)

    def _looking_back(self) -> "Reviews":
        if self._reviews is None:
            from hermes.review.reviewer import ReviewParts, as_it_is  # noqa: PLC0415 - as above
            from hermes.review.reviews import Reviews  # noqa: PLC0415 - as above

            parts = self._parts
            review = ReviewParts(
                store=parts.store,
                clock=parts.clock,
                planner=parts.planner,
                price=parts.price,
                ledger=lambda: parts.learning.ledger,
                profile=parts.profile,
                seen=parts.compressing.seen if parts.compressing is not None else as_it_is,
                model=self._model,
            )
            rules = review_rules(parts.config)
            self._reviews = Reviews(review, rules, self.tell, self._group)
        return self._reviews

    async def _model(self) -> Model | None:
        """The one of the slot `auxiliary.background_review`, where it names one."""
        config = self._parts.config
        wish = wish_of(config, config.auxiliary.background_review)
        return await self._parts.models.wished(wish) if wish else None


def review_rules(config: Config) -> "ReviewRules":
    from hermes.review.reviews import ReviewRules  # noqa: PLC0415 - as above
    from hermes.review.telling import Notifying  # noqa: PLC0415 - as above
    from hermes.session.nudges import Intervals  # noqa: PLC0415 - as above

    memory, slot = config.memory, config.auxiliary.background_review
    given = config.display.memory_notifications.strip().lower()
    wanted = {"false": "off", "true": "on"}.get(given, given)
    known = wanted in {one.value for one in Notifying}
    return ReviewRules(
        intervals=Intervals(
            memory=memory.nudge_interval, skills=config.skills.creation_nudge_interval
        ),
        memory=memory.memory_enabled or memory.user_profile_enabled,
        timeout=(slot.timeout or 120) * PATIENCE,
        notifying=Notifying(wanted) if known else Notifying.ON,
    )


@asynccontextmanager
async def open_looking_back(parts: Looking, runner: Runner) -> AsyncGenerator[LookingBack]:
    """For as long as the profile is open; leaving it ends what still looks back."""
    async with beside() as group:
        looking = LookingBack(parts, group)
        runner.then(looking.ended)
        yield looking


def _nobody_delivers(address: Address) -> None:
    """It lies in the outbox until somebody does."""
