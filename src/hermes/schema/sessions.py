"""Sessions as they are listed, searched and changed."""

from collections.abc import Sequence
from datetime import date, datetime

from msgspec import UNSET, Struct, UnsetType, structs

from hermes.schema.messages import Message, Trust, Usage
from hermes.schema.scope import OWNER


class Session(Struct, frozen=True, kw_only=True):
    """`system` is the prompt exactly as first sent, so that later turns share its bytes.

    `effort` and `personality` are this session's own choice; if empty, the settings apply.
    """

    id: str
    started_at: datetime
    source: str = "cli"
    principal: str = OWNER
    key: str = ""
    title: str = ""
    model: str = ""
    provider: str = ""
    system: str = ""
    parent: str | None = None
    cwd: str = ""
    ended_at: datetime | None = None
    end_reason: str = ""
    effort: str = ""
    personality: str = ""


def continued_from(fresh: Session, old: Session) -> Session:
    """`fresh` with the model, prompt, working directory and options of `old`."""
    kept = ("model", "provider", "system", "cwd", "effort", "personality")
    return structs.replace(fresh, parent=old.id, **{name: getattr(old, name) for name in kept})


class SessionChange(Struct, frozen=True, kw_only=True):
    """The fields to set; UNSET ones are kept. A new `key` counts as activity."""

    key: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    system: str | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    ended_at: datetime | UnsetType | None = UNSET
    end_reason: str | UnsetType = UNSET
    effort: str | UnsetType = UNSET
    personality: str | UnsetType = UNSET


class SessionSummary(Struct, frozen=True, kw_only=True):
    """A session with totals of its messages. `cost` is None if a price is unknown."""

    session: Session
    messages: int
    tool_calls: int
    model_calls: int
    usage: Usage
    cost: float | None
    last_at: datetime
    preview: str = ""


class StoredMessage(Struct, frozen=True):
    """A stored message; `seq` is its order in the transcript."""

    seq: int
    at: datetime
    run: str
    message: Message


class TranscriptTail(Struct, frozen=True):
    """The end of a transcript; `more` is the number of earlier messages."""

    rows: tuple[StoredMessage, ...] = ()
    more: int = 0


class SearchHit(Struct, frozen=True, kw_only=True):
    """A search hit; `snippet` marks matches as >>>this<<<, `preview` is that of the session."""

    session: Session
    preview: str = ""
    seq: int
    at: datetime
    role: str
    snippet: str
    trust: Trust | None = None  # of a user message


class SearchFilter(Struct, frozen=True, kw_only=True):
    """Which sessions to search; every given field must match."""

    source: str | None = None
    started_after: datetime | None = None
    started_before: datetime | None = None


class SearchResult(Struct, frozen=True):
    """Hits, best first. `unindexed` messages are not yet in the index and were not searched."""

    hits: Sequence[SearchHit] = ()
    unindexed: int = 0

    @property
    def note(self) -> str:
        """A sentence about partial results; it does not reveal how much others have stored."""
        return (
            "These results are partial: messages are still being indexed." if self.unindexed else ""
        )


class ModelUsage(Struct, frozen=True, kw_only=True):
    """Usage of one model in a session. `cost` is None if its price is unknown."""

    model: str
    provider: str
    calls: int
    usage: Usage
    cost: float | None


class DailyUsage(ModelUsage, frozen=True, kw_only=True):
    """Usage of one model in a session on one day (UTC)."""

    day: date
    session: str
    principal: str
    source: str


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Which sessions to list; every given field must match.

    Sessions of reviews and subagents are included only with `reviews`, or if `source` names them.
    """

    source: str | None = None
    model: str | None = None
    title: str | None = None
    cwd: str | None = None
    parent: str | None = None
    started_before: datetime | None = None
    started_after: datetime | None = None
    min_messages: int | None = None
    max_messages: int | None = None
    reviews: bool = False
