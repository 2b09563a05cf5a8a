"""Commands for what was said before: list sessions, go back to one, read this one again."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from hermes.commands.command import Back, Command, Context, Reply, Told, Where
from hermes.commands.numbers import counted
from hermes.kit.text import one_line, plural
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.sessions import Digest, Session, SessionFilter
from hermes.session.recap import ROWS, SIZE, recap

_LISTED = 10
_SEARCHED = 1000
_NAMED = 4
_IN_CHAT = 10
"""Exchanges that `/history` shows in a chat, where a long text is many messages."""


async def _resume(context: Context, words: str) -> Reply:
    if not words:
        return Told(
            await _listed(context, "/resume with a number, id or words of it goes on with one.")
        )
    session = await _named(context, words)
    if session.id == context.conversation.session.id:
        raise UsageError("This is that session.")
    entered = await context.work.enter(session)
    tail = await context.archive.tail(session.id, ROWS, SIZE)
    talk = context.conversation
    going_on, ends = await talk.going_on(session.id), await talk.ends(session.id)
    last = recap(tail.rows, 3, going_on=going_on, midway=tail.more > 0, ends=ends)
    name = f" “{session.title}”" if session.title else ""
    count = plural(len(tail.rows) + tail.more, "message")
    told = f"Back in session {session.id}{name}, {count}.{entered.aside}"
    return Back(told, "\n".join(_lines(last, 300)))


async def _handoff(context: Context, words: str) -> Reply:
    if len(words.split()) != 1:
        raise UsageError(
            "/handoff takes the name of a platform.", hint="For example: /handoff telegram"
        )
    handing, talk = context.services.handing, context.conversation
    if handing is None:
        raise UsageError("There are no chats to hand this session to.")
    if not talk.started:
        raise UsageError("Nothing has been said yet.")
    old = talk.session
    where = await handing.hand_over(old, words.lower())
    begun = await context.work.begin("")
    return Told(
        f"It went to {where}. Here a new session begins; /resume {old.id} comes back to that one."
        f"{begun.aside}"
    )


async def _sessions(context: Context, words: str) -> Reply:
    return Told(await _listed(context, "/resume with a number goes on with one."))


async def _named(context: Context, words: str) -> Session:
    place = counted(words)
    if place is not None and place <= _LISTED:
        others = await _others(context)
        if place <= len(others):
            return others[place - 1].session
    try:
        return await context.archive.find(words)
    except NotFound as error:
        if not str(error).startswith("There is no"):
            raise
        # A number means a place in the list, never words that happen to have it.
        if not words.isdigit() and (found := await _about(context, words)):
            return found
        raise NotFound(str(error), hint="/sessions lists them.") from error


async def _about(context: Context, words: str) -> Session | None:
    """Another one with these words in its title, or in how it began as the list shows it."""
    wanted = words.strip("“”\"' ").rstrip("…").casefold()
    if not wanted:
        return None
    some = await context.archive.list(SessionFilter(min_messages=1), limit=_SEARCHED)
    fits = [one for one in some if wanted in f"{one.session.title}\n{one.preview}".casefold()]
    here = context.conversation.session.id
    found = [one for one in fits if one.session.id != here] or fits
    if len(found) < 2:
        return found[0].session if found else None
    names = [f"{one_line(_subject(one), 40)} ({one.session.id})" for one in found[:_NAMED]]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    raise NotFound(
        f"{len(found)} sessions are about {words!r}: {', '.join(names)}{more}.",
        hint="/resume with an id goes on with one.",
    )


async def _others(context: Context) -> list[Digest]:
    """The sessions that were active last, without the present one."""
    some = await context.archive.list(SessionFilter(min_messages=1), limit=_LISTED + 1)
    here = context.conversation.session.id
    return [digest for digest in some if digest.session.id != here][:_LISTED]


async def _listed(context: Context, hint: str) -> str:
    others = await _others(context)
    if not others:
        raise NotFound("There is no other session yet.", hint="Just start talking.")
    now = context.conversation.now()
    lines = [_line(place, digest, now) for place, digest in enumerate(others, start=1)]
    return "\n".join([*lines, hint])


def _line(place: int, digest: Digest, now: datetime) -> str:
    session = digest.session
    when = _day(digest.last_at, now)
    count = plural(digest.messages, "message")
    return f"  {place:>2}  {one_line(_subject(digest), 60)}  ({session.id}, {count}, {when})"


def _subject(digest: Digest) -> str:
    title = digest.session.title
    return f"“{title}”" if title else digest.preview or "(no words)"


def _day(at: datetime, now: datetime) -> str:
    local = at.astimezone()
    return f"{local:%H:%M}" if now - at < timedelta(hours=20) else f"{local:%Y-%m-%d}"


async def _history(context: Context, words: str) -> Reply:
    exchanges = counted(words)
    if words and exchanges is None:
        raise UsageError("/history takes a number of exchanges.", hint="For example: /history 5")
    rows = await context.conversation.messages()
    exchanges = exchanges or (_IN_CHAT if context.in_chat else len(rows))
    going_on, ends = await context.conversation.going_on(), await context.conversation.ends()
    lines = _lines(recap(rows, exchanges, going_on=going_on, ends=ends), 500)
    return Told("\n".join(lines) or "Nothing has been said yet.")


def _lines(told: Sequence[tuple[str, str]], width: int) -> list[str]:
    """What nobody said stands for itself."""
    return [
        f"{who}: {one_line(said, width)}" if who else f"  {one_line(said, width)}"
        for who, said in told
    ]


COMMANDS = (
    Command(
        name="resume",
        usage="[number, id or words of it]",
        summary="List the last sessions, or go back to one.",
        run=_resume,
    ),
    Command(name="sessions", summary="List the last sessions.", run=_sessions),
    Command(
        name="handoff",
        usage="<platform>",
        summary="Go on with this session in the home chat of a platform.",
        where=Where.TERMINAL,
        owners=True,
        needs=lambda context: context.services.handing is not None,
        run=_handoff,
    ),
    Command(
        name="history",
        usage="[exchanges]",
        summary="Show what was said in this session.",
        run=_history,
    ),
)
