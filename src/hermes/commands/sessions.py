"""Commands that change the talk itself: start anew, go back, ask again, branch, stop."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from hermes.commands.command import (
    Availability,
    Command,
    CommandContext,
    CommandReply,
    ResumedReply,
    SubmitReply,
    TextReply,
)
from hermes.commands.surface import BusyMode, set_aside_text
from hermes.kit.text import one_line, parse_count, plural
from hermes.schema.attachments import typed_parts, typed_text
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.messages import Assistant, Message, Text, Trust
from hermes.schema.scope import Role
from hermes.schema.sessions import Session, SessionChange, SessionFilter, SessionSummary
from hermes.session.recap import MAX_BYTES, MAX_ROWS, recap


async def _start(context: CommandContext, words: str) -> CommandReply:
    return TextReply("I am Hermes. Write what you want done; /help lists the commands.")


async def _new(context: CommandContext, words: str) -> CommandReply:
    begun = await context.work.begin(words)
    return TextReply(f"New session {begun.session.id}.{begun.aside}")


async def _retry(context: CommandContext, words: str) -> CommandReply:
    question = await context.conversation.again()
    if context.in_chat:
        own = Trust.OWNER if context.role is Role.OWNER else Trust.GUEST
        if question.trust is not own:
            # Asked again, it would be done in the name of whoever types this.
            raise UsageError("The last question was somebody else's.", hint="Write it yourself.")
        # What is said in a chat goes through its inbox, and so cannot take a place of its own.
        (question,) = await context.conversation.undo(1)
        return SubmitReply(question.parts, undone=1)
    # What it refers to is read again: it may have changed since.
    return SubmitReply(typed_parts(question), undone=1)


async def _undo(context: CommandContext, words: str) -> CommandReply:
    turns = parse_count(words or "1")
    if turns is None:
        raise UsageError("/undo takes a number of turns.", hint="For example: /undo 2")
    before = await context.conversation.messages()
    taken = await context.conversation.undo(turns)
    first = one_line(typed_text(taken[0]), 60)
    count = len(taken)
    told = f"Took back {plural(count, 'turn')}, from “{first}” on."
    gone = {row.seq for row in before} - {row.seq for row in await context.conversation.messages()}
    if any(row.seq in gone and _wrote_files(row.message) for row in before):
        back = "; /rollback brings them back" if context.services.checkpoints else ""
        told += f" The files it wrote stay{back}."
    return TextReply(told, undone=count)


def _wrote_files(message: Message) -> bool:
    return isinstance(message, Assistant) and any(
        call.name in {"write_file", "patch"} for call in message.calls
    )


async def _title(context: CommandContext, words: str) -> CommandReply:
    if not words:
        return TextReply(context.conversation.session.title or "This session has no title.")
    await context.conversation.change(SessionChange(title=words))
    return TextReply(f"This session is now called “{words}”.")


async def _branch(context: CommandContext, words: str) -> CommandReply:
    old = context.conversation.session
    copy = await context.conversation.branch(words)
    name = f" “{copy.title}”" if copy.title else ""
    return TextReply(f"This is now session {copy.id}{name}, a copy of {old.id}.")


async def _stop(context: CommandContext, words: str) -> CommandReply:
    stopped = await context.work.stop(words)
    ended = "" if words else await _end_background(context)
    aside = set_aside_text(stopped.waiting)
    if stopped.running and stopped.says_so:
        stopping = "Stopping; something that was started takes a moment to end."
        told = [stopping if stopped.lingers else "", f"{aside}, too." if stopped.waiting else ""]
        return TextReply(" ".join(filter(None, [*told, ended])))
    if stopped.waiting:
        return TextReply(f"Stopped. {aside}. {ended}".strip())
    if stopped.running:
        return TextReply(f"Stopped. {ended}".strip())
    return TextReply(ended or "Nothing is running.")


async def _end_background(context: CommandContext) -> str:
    background = context.services.background
    count = await background.end(context.conversation.session) if background else 0
    return f"Ended {plural(count, 'background job')}." if count else ""


async def _queue(context: CommandContext, words: str) -> CommandReply:
    if not words:
        raise UsageError("There is nothing to queue.", hint="For example: /queue and the tests")
    busy = context.work.activity().running
    return SubmitReply((Text(words),), BusyMode.QUEUE, "Queued." if busy else "")


async def _steer(context: CommandContext, words: str) -> CommandReply:
    if not words:
        raise UsageError("There is nothing to say.", hint="For example: /steer use the other")
    busy = context.work.activity().running
    return SubmitReply((Text(words),), BusyMode.STEER, "Passed on." if busy else "")


COMMANDS = (
    Command(name="start", summary="Say hello.", where=Availability.CHAT, run=_start),
    Command(name="new", aliases=("reset",), usage="[title]", summary="Start anew.", run=_new),
    Command(name="retry", summary="Take the last question back and ask it again.", run=_retry),
    Command(name="undo", usage="[turns]", summary="Take back the last turns.", run=_undo),
    Command(name="title", usage="[text]", summary="Show or set this session's title.", run=_title),
    Command(
        name="branch",
        aliases=("fork",),
        usage="[title]",
        summary="Go on in a copy of this session.",
        run=_branch,
    ),
    Command(name="stop", summary="End the turn and what was left running.", run=_stop),
    Command(
        name="queue",
        aliases=("q",),
        usage="<text>",
        summary="Say something for after the turn that is running.",
        needs=lambda context: context.accepts_input_while_busy,
        run=_queue,
    ),
    Command(
        name="steer",
        usage="<text>",
        summary="Say something to the turn that is running.",
        needs=lambda context: context.accepts_input_while_busy,
        run=_steer,
    ),
)


_MAX_LISTED = 10
_MAX_SEARCHED = 1000
_MAX_NAMED = 4
_CHAT_EXCHANGES = 10
"""Exchanges that `/history` shows in a chat, where a long text is many messages."""


async def _resume(context: CommandContext, words: str) -> CommandReply:
    if not words:
        return TextReply(
            await _session_list(
                context, "/resume with a number, id or words of it goes on with one."
            )
        )
    session = await _find_session(context, words)
    if session.id == context.conversation.session.id:
        raise UsageError("This is that session.")
    entered = await context.work.enter(session)
    tail = await context.archive.tail(session.id, MAX_ROWS, MAX_BYTES)
    talk = context.conversation
    going_on, ends = await talk.going_on(session.id), await talk.ends(session.id)
    last = recap(tail.rows, 3, going_on=going_on, midway=tail.more > 0, ends=ends)
    name = f" “{session.title}”" if session.title else ""
    count = plural(len(tail.rows) + tail.more, "message")
    told = f"Back in session {session.id}{name}, {count}.{entered.aside}"
    return ResumedReply(told, "\n".join(_recap_lines(last, 300)))


async def _handoff(context: CommandContext, words: str) -> CommandReply:
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
    where = await handing.hand_off(old, words.lower())
    begun = await context.work.begin("")
    return TextReply(
        f"It went to {where}. Here a new session begins; /resume {old.id} comes back to that one."
        f"{begun.aside}"
    )


async def _sessions(context: CommandContext, words: str) -> CommandReply:
    return TextReply(await _session_list(context, "/resume with a number goes on with one."))


async def _find_session(context: CommandContext, words: str) -> Session:
    place = parse_count(words)
    if place is not None and place <= _MAX_LISTED:
        others = await _recent_sessions(context)
        if place <= len(others):
            return others[place - 1].session
    try:
        return await context.archive.find(words)
    except NotFound as error:
        if not str(error).startswith("There is no"):
            raise
        # A number means a place in the list, never words that happen to have it.
        if not words.isdigit() and (found := await _find_by_words(context, words)):
            return found
        raise NotFound(str(error), hint="/sessions lists them.") from error


async def _find_by_words(context: CommandContext, words: str) -> Session | None:
    """Another one with these words in its title, or in how it began as the list shows it."""
    wanted = words.strip("“”\"' ").rstrip("…").casefold()
    if not wanted:
        return None
    some = await context.archive.list(SessionFilter(min_messages=1), limit=_MAX_SEARCHED)
    fits = [one for one in some if wanted in f"{one.session.title}\n{one.preview}".casefold()]
    here = context.conversation.session.id
    found = [one for one in fits if one.session.id != here] or fits
    if len(found) < 2:
        return found[0].session if found else None
    names = [f"{one_line(_subject(one), 40)} ({one.session.id})" for one in found[:_MAX_NAMED]]
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    raise NotFound(
        f"{len(found)} sessions are about {words!r}: {', '.join(names)}{more}.",
        hint="/resume with an id goes on with one.",
    )


async def _recent_sessions(context: CommandContext) -> list[SessionSummary]:
    """The sessions that were active last, without the present one."""
    some = await context.archive.list(SessionFilter(min_messages=1), limit=_MAX_LISTED + 1)
    here = context.conversation.session.id
    return [digest for digest in some if digest.session.id != here][:_MAX_LISTED]


async def _session_list(context: CommandContext, hint: str) -> str:
    others = await _recent_sessions(context)
    if not others:
        raise NotFound("There is no other session yet.", hint="Just start talking.")
    now = context.conversation.now()
    lines = [_session_line(place, digest, now) for place, digest in enumerate(others, start=1)]
    return "\n".join([*lines, hint])


def _session_line(place: int, digest: SessionSummary, now: datetime) -> str:
    session = digest.session
    when = _short_time(digest.last_at, now)
    count = plural(digest.messages, "message")
    return f"  {place:>2}  {one_line(_subject(digest), 60)}  ({session.id}, {count}, {when})"


def _subject(digest: SessionSummary) -> str:
    title = digest.session.title
    return f"“{title}”" if title else digest.preview or "(no words)"


def _short_time(at: datetime, now: datetime) -> str:
    local = at.astimezone()
    return f"{local:%H:%M}" if now - at < timedelta(hours=20) else f"{local:%Y-%m-%d}"


async def _history(context: CommandContext, words: str) -> CommandReply:
    exchanges = parse_count(words)
    if words and exchanges is None:
        raise UsageError("/history takes a number of exchanges.", hint="For example: /history 5")
    rows = await context.conversation.messages()
    exchanges = exchanges or (_CHAT_EXCHANGES if context.in_chat else len(rows))
    going_on, ends = await context.conversation.going_on(), await context.conversation.ends()
    lines = _recap_lines(recap(rows, exchanges, going_on=going_on, ends=ends), 500)
    return TextReply("\n".join(lines) or "Nothing has been said yet.")


def _recap_lines(told: Sequence[tuple[str, str]], width: int) -> list[str]:
    """What nobody said stands for itself."""
    return [
        f"{who}: {one_line(said, width)}" if who else f"  {one_line(said, width)}"
        for who, said in told
    ]


SESSION_COMMANDS = (
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
        where=Availability.TERMINAL,
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
