"""Commands that change the talk itself: start anew, go back, ask again, branch, stop."""

from hermes.commands.command import Ask, Command, Context, Reply, Told, Where
from hermes.commands.numbers import counted
from hermes.commands.surface import Busy, set_aside
from hermes.kit.text import one_line, plural
from hermes.schema.attachments import own_parts, own_text
from hermes.schema.errors import UsageError
from hermes.schema.messages import Assistant, Message, Text, Trust
from hermes.schema.scope import Role
from hermes.schema.sessions import SessionChange


async def _start(context: Context, words: str) -> Reply:
    return Told("I am Hermes. Write what you want done; /help lists the commands.")


async def _new(context: Context, words: str) -> Reply:
    begun = await context.work.begin(words)
    return Told(f"New session {begun.session.id}.{begun.aside}")


async def _retry(context: Context, words: str) -> Reply:
    question = await context.conversation.again()
    if context.in_chat:
        own = Trust.OWNER if context.role is Role.OWNER else Trust.GUEST
        if question.trust is not own:
            # Asked again, it would be done in the name of whoever types this.
            raise UsageError("The last question was somebody else's.", hint="Write it yourself.")
        # What is said in a chat goes through its inbox, and so cannot take a place of its own.
        (question,) = await context.conversation.undo(1)
        return Ask(question.parts, undone=1)
    # What it refers to is read again: it may have changed since.
    return Ask(own_parts(question), undone=1)


async def _undo(context: Context, words: str) -> Reply:
    turns = counted(words or "1")
    if turns is None:
        raise UsageError("/undo takes a number of turns.", hint="For example: /undo 2")
    before = await context.conversation.messages()
    taken = await context.conversation.undo(turns)
    first = one_line(own_text(taken[0]), 60)
    count = len(taken)
    told = f"Took back {plural(count, 'turn')}, from “{first}” on."
    gone = {row.seq for row in before} - {row.seq for row in await context.conversation.messages()}
    if any(row.seq in gone and _wrote(row.message) for row in before):
        back = "; /rollback brings them back" if context.services.checkpoints else ""
        told += f" The files it wrote stay{back}."
    return Told(told, undone=count)


def _wrote(message: Message) -> bool:
    return isinstance(message, Assistant) and any(
        call.name in {"write_file", "patch"} for call in message.calls
    )


async def _title(context: Context, words: str) -> Reply:
    if not words:
        return Told(context.conversation.session.title or "This session has no title.")
    await context.conversation.change(SessionChange(title=words))
    return Told(f"This session is now called “{words}”.")


async def _branch(context: Context, words: str) -> Reply:
    old = context.conversation.session
    copy = await context.conversation.branch(words)
    name = f" “{copy.title}”" if copy.title else ""
    return Told(f"This is now session {copy.id}{name}, a copy of {old.id}.")


async def _stop(context: Context, words: str) -> Reply:
    stopped = await context.work.stop(words)
    ended = "" if words else await _end_background(context)
    aside = set_aside(stopped.waiting)
    if stopped.running and stopped.says_so:
        stopping = "Stopping; something that was started takes a moment to end."
        told = [stopping if stopped.lingers else "", f"{aside}, too." if stopped.waiting else ""]
        return Told(" ".join(filter(None, [*told, ended])))
    if stopped.waiting:
        return Told(f"Stopped. {aside}. {ended}".strip())
    if stopped.running:
        return Told(f"Stopped. {ended}".strip())
    return Told(ended or "Nothing is running.")


async def _end_background(context: Context) -> str:
    background = context.services.background
    count = await background.end(context.conversation.session) if background else 0
    return f"Ended {plural(count, 'background job')}." if count else ""


async def _queue(context: Context, words: str) -> Reply:
    if not words:
        raise UsageError("There is nothing to queue.", hint="For example: /queue and the tests")
    busy = context.work.activity().running
    return Ask((Text(words),), Busy.QUEUE, "Queued." if busy else "")


async def _steer(context: Context, words: str) -> Reply:
    if not words:
        raise UsageError("There is nothing to say.", hint="For example: /steer use the other")
    busy = context.work.activity().running
    return Ask((Text(words),), Busy.STEER, "Passed on." if busy else "")


COMMANDS = (
    Command(name="start", summary="Say hello.", where=Where.CHAT, run=_start),
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
        needs=lambda context: context.can_interject,
        run=_queue,
    ),
    Command(
        name="steer",
        usage="<text>",
        summary="Say something to the turn that is running.",
        needs=lambda context: context.can_interject,
        run=_steer,
    ),
)
