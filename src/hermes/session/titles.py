"""A title for a session, once its first question was answered; nobody waits for it."""

import logging
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct

from hermes.agent.prompts import prompt_text
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.model import Model, ModelRequest
from hermes.ports.store import ChangeSession, RecordUsage, Store
from hermes.schema.errors import HermesError, ModelError, StoreError
from hermes.schema.messages import Assistant, Text, Trust, User, text_of
from hermes.schema.sessions import Session, SessionChange
from hermes.session.recorder import PriceFunction

log = logging.getLogger(__name__)

MAX_TITLE = 80
_MAX_SHOWN = 1_500
_MAX_TOKENS = 60


class TitleSettings(Struct, frozen=True, kw_only=True):
    """Who is asked, for how many seconds, and in which language if not that of the talk."""

    model: Callable[[], Awaitable[Model]]
    redact: Callable[[str], str]
    timeout: float = 30.0
    language: str = ""


class SessionTitles:
    def __init__(
        self, store: Store, clock: Clock, price: PriceFunction, naming: TitleSettings
    ) -> None:
        self._store = store
        self._clock = clock
        self._price = price
        self._naming = naming

    async def give(self, session: Session) -> None:
        """Name it, if it has no name; what goes wrong is logged and nothing else."""
        try:
            await self._give(session)
        except (HermesError, TimeoutError) as error:
            log.warning("session %s got no title: %s", session.id, error)
        except Exception:
            # It runs in a group of the whole profile, which must not go down with a title.
            log.exception("giving session %s a title broke", session.id)

    async def _give(self, session: Session) -> None:
        archive = self._store.archive_for(session.principal)
        rows = await archive.messages(session.id)
        begun = "\n\n".join(
            f"{'PERSON' if isinstance(row.message, User) else 'ASSISTANT'}: "
            f"{text_of(row.message)[:_MAX_SHOWN]}"
            for row in rows[:8]
            if isinstance(row.message, User | Assistant) and text_of(row.message).strip()
        )
        answer = await self._asked(self._naming.redact(begun))
        title = one_line(answer.text.strip().strip("\"'“”.").replace("\0", ""), MAX_TITLE)
        meter = self._meter(session, answer)
        if not title or (await archive.get(session.id)).title:
            await self._store.commit(meter)
            return
        await self._store.commit(meter)
        try:
            await self._name(session, title)
        except StoreError:
            # Another session has that name already.
            await self._name(session, f"{title} ({session.id[-6:]})")

    async def _name(self, session: Session, title: str) -> None:
        await self._store.commit(ChangeSession(session.id, SessionChange(title=title)))

    async def _asked(self, begun: str) -> Assistant:
        naming = self._naming
        said = f"{begun}\n\n(Title in: {naming.language})" if naming.language else begun
        asked = User(new_id("msg"), (Text(said),), Trust.PROGRAM)
        request = ModelRequest(prompt_text("title"), [asked], max_output=_MAX_TOKENS, effort="none")
        with anyio.fail_after(naming.timeout):
            model = await naming.model()
            async with model.stream(request) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, Assistant):
                        return chunk
        raise ModelError("There was no answer.")

    def _meter(self, session: Session, answer: Assistant) -> RecordUsage:
        cost = self._price(answer.model, answer.provider, answer.usage)
        now = self._clock.now()
        return RecordUsage(session.id, "", answer.model, answer.provider, answer.usage, cost, now)
