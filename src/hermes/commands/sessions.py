"""Slash commands that start, stop, rewind, branch and resume sessions, also in the background."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from hermes.commands.command import Availability, Command, CommandContext, require_service
from hermes.commands.services import BackgroundTask, HandoffCaller
from hermes.commands.surface import dropped_text
from hermes.kit.text import one_line, parse_count, plural
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.messages import Assistant, Message, Text, Trust, typed_parts, typed_text
from hermes.schema.scope import Requester, Role, Scope
from hermes.schema.sessions import Session, SessionChange, SessionFilter, SessionSummary
from hermes.schema.terminal import BusyMode, CommandReply, ResumedReply, SubmitReply, TextReply
from hermes.session.recap import MAX_BYTES, MAX_ROWS, recap

_NO_BACKGROUND = "Background tasks are not available here."
_MAX_LISTED = 10
_MAX_SEARCHED = 1000
_MAX_NAMED = 4
_CHAT_TURNS = 10
"""Turns that `/history` shows in a chat by default."""


async def _start(context: CommandContext, args: str) -> CommandReply:
    return TextReply("I am Hermes. Tell me what to do; /help lists the commands.")


async def _new(context: CommandContext, args: str) -> CommandReply:
    switched = await context.control.start_session(args)
    return TextReply(f"New session {switched.session.id}.{switched.dropped_note}")


async def _retry(context: CommandContext, args: str) -> CommandReply:
    question = await context.conversation.replace_last()
    if context.in_chat:
        own = Trust.OWNER if context.role is Role.OWNER else Trust.GUEST
        if question.trust is not own:
            # Repeated, it would run with the permissions of the user who typed /retry.
            raise UsageError("The last message is from another user.", hint="Send it yourself.")
        # In a chat the message goes through the inbox, so the old one is removed first.
        (question,) = await context.conversation.undo(1)
        return SubmitReply(question.parts, undone=1)
    # References are read again, because the files may have changed.
    return SubmitReply(typed_parts(question), undone=1)


async def _undo(context: CommandContext, args: str) -> CommandReply:
    turns = parse_count(args or "1")
    if turns is None:
        raise UsageError("/undo takes a number of turns.", hint="For example: /undo 2")
    before = await context.conversation.messages()
    undone = await context.conversation.undo(turns)
    first, count = one_line(typed_text(undone[0]), 60), len(undone)
    text = f"Undid {plural(count, 'turn')}, starting with “{first}”."
    removed = {row.seq for row in before} - {
        row.seq for row in await context.conversation.messages()
    }
    if any(row.seq in removed and _wrote_files(row.message) for row in before):
        back = "; /rollback restores them" if context.services.checkpoints else ""
        text += f" Files it wrote are unchanged{back}."
    return TextReply(text, undone=count)


def _wrote_files(message: Message) -> bool:
    return isinstance(message, Assistant) and any(
        call.name in {"write_file", "patch"} for call in message.calls
    )


async def _title(context: CommandContext, args: str) -> CommandReply:
    if not args:
        session = context.conversation.session
        if context.conversation.started:
            # A background task may have set the title meanwhile.
            session = await context.conversation.archive.get(session.id)
        return TextReply(session.title or "This session has no title.")
    await context.conversation.change(SessionChange(title=args))
    return TextReply(f"Session title: “{args}”.")


async def _branch(context: CommandContext, args: str) -> CommandReply:
    old = context.conversation.session
    copy = await context.conversation.branch(args)
    name = f" “{copy.title}”" if copy.title else ""
    return TextReply(f"Now in session {copy.id}{name}, a copy of {old.id}.")


async def _stop(context: CommandContext, args: str) -> CommandReply:
    stopped = await context.control.stop(args)
    background = None if args else context.services.background
    count = await background.end_all(context.conversation.session) if background else 0
    ended = f"Ended {plural(count, 'background task')}." if count else ""
    dropped = f"{dropped_text(stopped.dropped)}." if stopped.dropped else ""
    if stopped.running and stopped.reports_itself:
        note = "Stopping; a process takes a moment to end." if stopped.is_slow else ""
    elif stopped.running or stopped.dropped:
        note = "Stopped."
    else:
        return TextReply(ended or "Nothing is running.")
    return TextReply(" ".join(filter(None, [note, dropped, ended])))


async def _queue(context: CommandContext, args: str) -> CommandReply:
    if not args:
        raise UsageError("/queue needs a message.", hint="For example: /queue and the tests")
    busy = context.control.activity().running
    return SubmitReply((Text(args),), BusyMode.QUEUE, "Queued." if busy else "")


async def _steer(context: CommandContext, args: str) -> CommandReply:
    if not args:
        raise UsageError("/steer needs a message.", hint="For example: /steer use the other")
    busy = context.control.activity().running
    return SubmitReply((Text(args),), BusyMode.STEER, "Sent to the running turn." if busy else "")


async def _resume(context: CommandContext, args: str) -> CommandReply:
    if not args:
        hint = "Resume one with: /resume NUMBER, an id, or words from its title"
        return TextReply(await _session_list(context, hint))
    session = await _find_session(context, args)
    if session.id == context.conversation.session.id:
        raise UsageError("You are already in that session.")
    switched = await context.control.resume_session(session)
    tail = await context.archive.tail(session.id, MAX_ROWS, MAX_BYTES)
    running = await context.conversation.is_running(session.id)
    failures = await context.conversation.failure_reasons(session.id)
    last = recap(tail.rows, 3, running=running, partial=tail.more > 0, failures=failures)
    name = f" “{session.title}”" if session.title else ""
    count = plural(len(tail.rows) + tail.more, "message")
    text = f"Resumed session {session.id}{name}, {count}.{switched.dropped_note}"
    return ResumedReply(text, "\n".join(_recap_lines(last, 300)))


async def _handoff(context: CommandContext, args: str) -> CommandReply:
    if len(args.split()) != 1:
        raise UsageError(
            "/handoff takes the name of a platform.", hint="For example: /handoff telegram"
        )
    handoff = require_service(context.services.handoff, "Handoff is not available here.")
    conversation = context.conversation
    if not conversation.started:
        raise UsageError("The conversation is empty.")
    old, caller = conversation.session, None
    if context.in_chat:
        if not context.is_owner and old.principal != context.caller.principal:
            raise UsageError("This session is not yours.")
        caller = HandoffCaller(
            account=context.caller.account, role=context.role, platform=context.caller.platform
        )
    chat = await handoff.hand_off(old, args.lower(), caller)
    switched = await context.control.start_session("")
    return TextReply(
        f"Handed off to {chat}. This is a new session; /resume {old.id} returns to the old one."
        f"{switched.dropped_note}"
    )


async def _sessions(context: CommandContext, args: str) -> CommandReply:
    return TextReply(await _session_list(context, "Resume one with: /resume NUMBER"))


async def _find_session(context: CommandContext, args: str) -> Session:
    number = parse_count(args)
    if number is not None and number <= _MAX_LISTED:
        others = await _recent_sessions(context)
        if number <= len(others):
            return others[number - 1].session
    try:
        return await context.archive.find(args)
    except NotFound as error:
        if not str(error).startswith("There is no"):
            raise
        # A number is an index in the list, never a word to search for.
        if not args.isdigit() and (found := await _find_by_words(context, args)):
            return found
        raise NotFound(str(error), hint="/sessions lists them.") from error


async def _find_by_words(context: CommandContext, args: str) -> Session | None:
    """Find another session with this text in its title or its preview."""
    wanted = args.strip("“”\"' ").rstrip("…").casefold()
    if not wanted:
        return None
    listed = await context.archive.list(SessionFilter(min_messages=1), limit=_MAX_SEARCHED)
    matching = [
        summary
        for summary in listed
        if wanted in f"{summary.session.title}\n{summary.preview}".casefold()
    ]
    here = context.conversation.session.id
    found = [summary for summary in matching if summary.session.id != here] or matching
    if len(found) < 2:
        return found[0].session if found else None
    names = [
        f"{one_line(_subject(summary), 40)} ({summary.session.id})"
        for summary in found[:_MAX_NAMED]
    ]
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    raise NotFound(
        f"{len(found)} sessions match {args!r}: {', '.join(names)}{more}.",
        hint="Resume one with: /resume ID",
    )


async def _recent_sessions(context: CommandContext) -> list[SessionSummary]:
    """The most recently active sessions, without the current one."""
    listed = await context.archive.list(SessionFilter(min_messages=1), limit=_MAX_LISTED + 1)
    here = context.conversation.session.id
    return [summary for summary in listed if summary.session.id != here][:_MAX_LISTED]


async def _session_list(context: CommandContext, hint: str) -> str:
    others = await _recent_sessions(context)
    if not others:
        raise NotFound("There are no other sessions yet.", hint="Just start writing.")
    now = context.conversation.now()
    lines = [_session_line(number, summary, now) for number, summary in enumerate(others, start=1)]
    return "\n".join([*lines, hint])


def _session_line(number: int, summary: SessionSummary, now: datetime) -> str:
    local, is_recent = summary.last_at.astimezone(), now - summary.last_at < timedelta(hours=20)
    when = f"{local:%H:%M}" if is_recent else f"{local:%Y-%m-%d}"
    about = f"{summary.session.id}, {plural(summary.messages, 'message')}, {when}"
    return f"  {number:>2}  {one_line(_subject(summary), 60)}  ({about})"


def _subject(summary: SessionSummary) -> str:
    title = summary.session.title
    return f"“{title}”" if title else summary.preview or "(no text)"


async def _history(context: CommandContext, args: str) -> CommandReply:
    turns = parse_count(args)
    if args and turns is None:
        raise UsageError("/history takes a number of turns.", hint="For example: /history 5")
    rows = await context.conversation.messages()
    turns = turns or (_CHAT_TURNS if context.in_chat else len(rows))
    running = await context.conversation.is_running()
    failures = await context.conversation.failure_reasons()
    lines = _recap_lines(recap(rows, turns, running=running, failures=failures), 500)
    return TextReply("\n".join(lines) or "The conversation is empty.")


def _recap_lines(text: Sequence[tuple[str, str]], width: int) -> list[str]:
    """One line per entry; entries without a speaker are indented."""
    return [
        f"{speaker}: {one_line(content, width)}" if speaker else f"  {one_line(content, width)}"
        for speaker, content in text
    ]


async def _background(context: CommandContext, args: str) -> CommandReply:
    background = require_service(context.services.background, _NO_BACKGROUND)
    if not args:
        raise UsageError(
            "/background needs a prompt.", hint="For example: /background read my new emails"
        )
    session, caller = context.conversation.session, context.caller
    program = context.services.program
    scope = Scope(
        profile=program.profile if program is not None else "",
        session=session.id,
        run="",
        workspace=session.cwd,
        principal=caller.principal,
        address=caller.address,
        role=context.role,
        source=session.source,
        key=session.key,
        asker=Requester(user=caller.person.id, name=caller.person.name),
    )
    if not session.key:
        # The report goes to this session, even if nothing else is ever sent in it. That of a chat
        # is found by its key.
        await context.conversation.store_session()
    name = await background.start(scope, args)
    return TextReply(f"Started {name}. It reports when it is done; /agents shows its progress.")


async def _agents(context: CommandContext, args: str) -> CommandReply:
    background = require_service(context.services.background, _NO_BACKGROUND)
    tasks = await background.list_tasks(context.conversation.session)
    running = [task for task in tasks if not task.state]
    ended = [task for task in tasks if task.state]
    lines = ["No background tasks are running."]
    if running:
        lines = [f"{plural(len(running), 'background task')} running; /stop ends all:"]
        lines += [line for task in running for line in _task_lines(task)]
    if ended:
        lines += ["Ended:", *(line for task in ended for line in _task_lines(task))]
    return TextReply("\n".join(lines))


def _task_lines(task: BackgroundTask) -> list[str]:
    state = f"{task.state}, " if task.state else ""
    line = f"  {task.name}  {state}{task.seconds:.0f} s  {one_line(task.command, 60)}"
    return [line, f"    {one_line(task.activity, 72)}"] if task.activity else [line]


_background_command = partial(
    Command, is_available=lambda context: context.services.background is not None
)
_busy_command = partial(Command, is_available=lambda context: context.accepts_input_while_busy)

COMMANDS = (
    Command(name="start", summary="Show a greeting.", availability=Availability.CHAT, run=_start),
    Command(
        name="new", aliases=("reset",), usage="[title]", summary="Start a new session.", run=_new
    ),
    Command(name="retry", summary="Undo the last turn and send its message again.", run=_retry),
    Command(name="undo", usage="[turns]", summary="Undo the last turns.", run=_undo),
    Command(name="title", usage="[text]", summary="Show or set this session's title.", run=_title),
    Command(
        name="branch",
        aliases=("fork",),
        usage="[title]",
        summary="Continue in a copy of this session.",
        run=_branch,
    ),
    Command(name="stop", summary="Stop the running turn and background tasks.", run=_stop),
    _busy_command(
        name="queue",
        aliases=("q",),
        usage="<text>",
        summary="Queue a message for after the running turn.",
        run=_queue,
    ),
    _busy_command(
        name="steer", usage="<text>", summary="Send a message to the running turn.", run=_steer
    ),
    Command(
        name="resume",
        usage="[number | id | text]",
        summary="List recent sessions, or resume one.",
        run=_resume,
    ),
    Command(name="sessions", summary="List recent sessions.", run=_sessions),
    Command(
        name="handoff",
        usage="<platform>",
        summary="Continue this session in your chat on another platform.",
        is_available=lambda context: context.services.handoff is not None,
        run=_handoff,
    ),
    Command(
        name="history",
        usage="[turns]",
        summary="Show this session's conversation.",
        run=_history,
    ),
    _background_command(
        name="background",
        aliases=("bg", "btw"),
        usage="<prompt>",
        summary="Run a prompt in the background and report the result.",
        # The rate limit of other users counts messages only.
        owner_only=True,
        run=_background,
    ),
    _background_command(
        name="agents",
        aliases=("tasks", "ps"),
        summary="List this session's background tasks.",
        run=_agents,
    ),
)
