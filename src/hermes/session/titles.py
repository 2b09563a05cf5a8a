"""Name a session in the background after the first answer, by a model or from its first message."""

import logging
import re
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct

from hermes.agent.answers import ask_model
from hermes.agent.prompts import prompt_text
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.model import Model, ModelRequest
from hermes.ports.store import ChangeSession, RecordUsage, Store
from hermes.schema.errors import HermesError, StoreError
from hermes.schema.messages import Assistant, Text, Trust, User, text_of, typed_text
from hermes.schema.sessions import Session, SessionChange
from hermes.session.recorder import PriceFunction

log = logging.getLogger(__name__)

MAX_TITLE = 80
_MAX_SHOWN = 1_500
_MAX_TOKENS = 60


_COURTESY = re.compile(
    r"(?:(?:hi|hello|hey|ok|okay|so|please|now|thanks|well)\b[\s,!.:]*"
    r"|(?:can|could|would|will) you (?:please )?"
    r"|i(?:'d| would) like (?:you )?to |i want (?:you )?to )",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?;:](?:\s|$)|\n")
_MAX_DERIVED = 60
_MIN_WORDS = 2


def derive_title(text: str) -> str:
    """A title from a person's first message, without a model; empty if it says too little."""
    text = text.strip()
    while found := _COURTESY.match(text):
        text = text[found.end() :]
    first = _SENTENCE_END.split(text, maxsplit=1)[0]
    words = " ".join(first.split()).strip("\"'“”`*_#>-… ")
    if len(words) > _MAX_DERIVED:
        words = words[:_MAX_DERIVED].rpartition(" ")[0].rstrip(",;:") + "…"
    return words[:1].upper() + words[1:] if len(words.split()) >= _MIN_WORDS else ""


class DerivedTitles:
    """Names a person's terminal sessions if no model is configured for titles."""

    def __init__(self, store: Store, redact: Callable[[str], str]) -> None:
        self._store = store
        self._redact = redact

    async def name(self, session: Session, message: User) -> None:
        """Set a title if there is none; failures are only logged."""
        title = derive_title(self._redact(typed_text(message)))
        try:
            archive = self._store.archive_for(session.principal)
            if title and not (await archive.get(session.id)).title:
                await set_title(self._store, session, title)
        except HermesError as error:
            log.warning("no title for session %s: %s", session.id, error)


async def set_title(store: Store, session: Session, title: str) -> None:
    try:
        await store.commit(ChangeSession(session.id, SessionChange(title=title)))
    except StoreError:
        # Another session already has this title.
        unique = f"{title} ({session.id[-6:]})"
        await store.commit(ChangeSession(session.id, SessionChange(title=unique)))


class TitleSettings(Struct, frozen=True, kw_only=True):
    model: Callable[[], Awaitable[Model]]
    redact: Callable[[str], str]
    timeout: float = 30.0  # seconds
    language: str = ""  # empty: that of the conversation


class SessionTitles:
    def __init__(
        self, store: Store, clock: Clock, price: PriceFunction, settings: TitleSettings
    ) -> None:
        self._store = store
        self._clock = clock
        self._price = price
        self._settings = settings

    async def generate(self, session: Session) -> None:
        """Set a title if there is none; failures are only logged."""
        try:
            await self._generate(session)
        except (HermesError, TimeoutError) as error:
            log.warning("no title for session %s: %s", session.id, error)
        except Exception:
            # Runs in the task group of the whole profile, which must not fail because of a title.
            log.exception("generating a title for session %s failed", session.id)

    async def _generate(self, session: Session) -> None:
        archive = self._store.archive_for(session.principal)
        rows = await archive.messages(session.id)
        beginning = "\n\n".join(
            f"{'PERSON' if isinstance(row.message, User) else 'ASSISTANT'}: "
            f"{text_of(row.message)[:_MAX_SHOWN]}"
            for row in rows[:8]
            if isinstance(row.message, User | Assistant) and text_of(row.message).strip()
        )
        answer = await self._ask(self._settings.redact(beginning))
        title = one_line(answer.text.strip().strip("\"'“”.").replace("\0", ""), MAX_TITLE)
        spent = answer.model, answer.provider, answer.usage
        cost, now = self._price(*spent), self._clock.now()
        await self._store.commit(RecordUsage(session.id, "", *spent, cost, now))
        if not title or (await archive.get(session.id)).title:
            return
        await set_title(self._store, session, title)

    async def _ask(self, beginning: str) -> Assistant:
        settings = self._settings
        text = f"{beginning}\n\n(Title in: {settings.language})" if settings.language else beginning
        question = User(new_id("msg"), (Text(text),), Trust.PROGRAM)
        request = ModelRequest(
            prompt_text("title"), [question], max_output=_MAX_TOKENS, effort="none"
        )
        with anyio.fail_after(settings.timeout):
            return await ask_model(await settings.model(), request)
