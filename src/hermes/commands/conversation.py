"""Commands that change the talk itself: start anew, go back, ask again, end."""

from hermes.commands.command import Ask, Command, Context, Leave, Reply, Told
from hermes.kit.text import one_line, plural
from hermes.schema.errors import UsageError
from hermes.schema.messages import text_of
from hermes.schema.sessions import SessionChange
from hermes.session.conversation import recap


async def _new(context: Context, words: str) -> Reply:
    context.conversation.start_new()
    if words:
        await context.conversation.change(SessionChange(title=words))
    return Told(f"New session {context.conversation.session.id}.")


async def _resume(context: Context, words: str) -> Reply:
    conversation = context.conversation
    if words:
        await conversation.resume(words)
    else:
        await conversation.resume_latest()
    session = conversation.session
    rows = await conversation.messages()
    lines = [f"{who}: {one_line(said, 300)}" for who, said in recap(rows, 3)]
    name = f" “{session.title}”" if session.title else ""
    head = f"Back in session {session.id}{name}, {plural(len(rows), 'message')}."
    return Told("\n".join([head, *lines]))


async def _retry(context: Context, words: str) -> Reply:
    question = await context.conversation.again()
    return Ask(question.parts)


async def _undo(context: Context, words: str) -> Reply:
    if words and not (words.isascii() and words.isdigit() and int(words)):
        raise UsageError("/undo takes a number of turns.", hint="For example: /undo 2")
    taken = await context.conversation.undo(int(words or 1))
    first = one_line(text_of(taken[0]), 60)
    return Told(f"Took back {plural(len(taken), 'turn')}, from “{first}” on.")


async def _title(context: Context, words: str) -> Reply:
    if not words:
        return Told(context.conversation.session.title or "This session has no title.")
    await context.conversation.change(SessionChange(title=words))
    return Told(f"This session is now called “{words}”.")


async def _stop(context: Context, words: str) -> Reply:
    stopped = context.conversation.interrupt()
    return Told("Stopped." if stopped else "Nothing is running.")


async def _quit(context: Context, words: str) -> Reply:
    return Leave()


COMMANDS = (
    Command(name="new", aliases=("reset",), usage="[title]", summary="Start anew.", run=_new),
    Command(
        name="resume",
        usage="[id or title]",
        summary="Go back to a session, the last one if none is named.",
        run=_resume,
    ),
    Command(name="retry", summary="Take the last question back and ask it again.", run=_retry),
    Command(name="undo", usage="[turns]", summary="Take back the last turns.", run=_undo),
    Command(name="title", usage="[text]", summary="Show or set this session's title.", run=_title),
    Command(name="stop", summary="End the turn that is running.", run=_stop),
    Command(name="quit", aliases=("exit",), summary="Leave.", run=_quit),
)
