"""Render a session's transcript as pages of entries, and its state at a position of the feed."""

from collections.abc import Sequence

from anyio.to_thread import run_sync
from msgspec import Struct, structs

from hermes.approvals.service import Answerer
from hermes.kit.text import one_line
from hermes.schema.messages import Result, User, text_of
from hermes.schema.questions import Question
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session, StoredMessage, TranscriptTail
from hermes.web import entries
from hermes.web.context import ProfileWeb, SessionState
from hermes.web.html import Child, Html, h
from hermes.web.markdown import PARSERS
from hermes.web.texts import text

PAGE_SIZE = 100
"""Messages of a page; a browser keeps three of them."""
PAGE_BYTES = 1_000_000
MAX_WORDS = 80
MAX_READS = 5


class TranscriptView(Struct, frozen=True, kw_only=True):
    """Everything a browser needs to show a session; `html` is the last page."""

    html: str
    position: str
    running: bool
    here: bool
    source: str
    queue: Sequence[str]
    title: str
    model: str


class _Stored(Struct, frozen=True, kw_only=True):
    """The stored state of a session at a position of the feed.

    `held`: some process runs a turn of it.
    """

    position: str
    session: Session
    tail: TranscriptTail
    held: bool
    questions: Sequence[Question]


async def transcript_view(profile: ProfileWeb, session: Session | None) -> TranscriptView:
    """The end of a session at one position of the feed: later events continue exactly there."""
    if session is None:
        return _new_chat_view(profile)
    profile.feed.expect(session.id)
    stored = await _read_stored(profile, session.id)
    session, tail, held = stored.session, stored.tail, stored.held
    live = profile.live.get(session.id)
    state = SessionState(
        last=tail.rows[-1].seq if tail.rows else 0,
        running=held and live is None,
        title=session.title,
        questions=tuple(question.id for question in stored.questions),
        own=profile.live.facts.get(session.id, 0),
    )
    profile.note_loaded(session.id, state)
    # Everything that changes is read before the next await, at the position of the feed.
    progress = dict(live.progress) if live else {} if held else None
    open_questions = set(live.questions) if live else set[str]()
    rest = [
        entries.question_entry(question)
        for question in stored.questions
        if question.id not in open_questions
    ]
    rest += live.entries() if live else []
    here = profile.conversations.is_running(session.id)
    queue = profile.conversations.queued(session.id)
    # A long history takes seconds, in which turns go on.
    shown = await run_sync(entries.transcript, tail.rows, progress, limiter=PARSERS)
    return TranscriptView(
        html=_page([*shown, *rest], tail),
        position=stored.position,
        running=held or live is not None,
        here=here or not (held or live),
        source=live.source if live else "",
        queue=queue,
        title=session.title or first_words(tail.rows) or text("untitled"),
        model=profile.app.models.current(session),
    )


def _new_chat_view(profile: ProfileWeb) -> TranscriptView:
    return TranscriptView(
        html=welcome(),
        position=profile.feed.position,
        running=False,
        here=True,
        source="",
        queue=(),
        title=text("new_chat"),
        model=profile.app.models.current(),
    )


async def earlier_page(profile: ProfileWeb, session: str, before: int) -> Html:
    """The page of entries that ends before a message."""
    tail = await _read_page(profile, session, before)
    shown = await run_sync(entries.transcript, tail.rows, limiter=PARSERS)
    return _page(shown, tail, before)


def _page(shown: Sequence[Child], tail: TranscriptTail, before: int | None = None) -> Html:
    """Entries with the seq of the first one, and of the message after the last one."""
    start = tail.rows[0].seq if tail.rows and tail.more else None
    return h("div", *shown, class_="page", data_start=start, data_before=before)


async def _read_page(
    profile: ProfileWeb, session: str, before: int | None = None
) -> TranscriptTail:
    """A page that begins with a question or an answer: results belong to the calls before them."""
    archive = profile.app.store.archive_for(OWNER)
    size = PAGE_SIZE
    while True:
        tail = await archive.tail(session, size, PAGE_BYTES * size // PAGE_SIZE, before)
        kept = [row for row in tail.rows if not isinstance(row.message, Result)][:1]
        if kept or not tail.more:
            break
        size *= 2
    rows = tuple(row for row in tail.rows if not kept or row.seq >= kept[0].seq)
    return TranscriptTail(rows, tail.more + len(tail.rows) - len(rows))


async def _read_stored(profile: ProfileWeb, session: str) -> _Stored:
    """Read again if a message was added meanwhile, so that it is not shown twice or missed."""
    app = profile.app
    reads = 0
    while True:
        reads += 1
        facts, position = profile.live.facts.get(session, 0), profile.feed.position
        stored = _Stored(
            position=position,
            session=await app.store.archive_for(OWNER).get(session),
            tail=await _read_page(profile, session),
            held=await app.store.leases.held(session),
            questions=[
                one.question for one in await app.approvals.pending(Answerer(session=session))
            ],
        )
        if facts == profile.live.facts.get(session, 0):
            return structs.replace(stored, position=profile.feed.position)
        if reads >= MAX_READS:
            # The page receives events from before this read, and replaces what it already has.
            return stored


def first_words(rows: Sequence[StoredMessage]) -> str:
    """Return a name for a session without a title."""
    first = next((row.message for row in rows if isinstance(row.message, User)), None)
    return one_line(text_of(first), MAX_WORDS) if first else ""


def welcome() -> Html:
    hints = [text("hint_slash"), text("hint_files"), text("hint_palette")]
    return h(
        "div",
        h("h2", text("welcome")),
        h("ul", *(h("li", hint) for hint in hints)),
        class_="welcome",
    )
