"""Slash commands that save and restore the files in the working directory."""

from collections.abc import Sequence
from functools import partial

from hermes.commands.command import Availability, Command, CommandContext, require_service
from hermes.kit.text import one_line, parse_count, plural
from hermes.ports.checkpoints import Checkpoint, Checkpoints, RestoreResult
from hermes.schema.errors import SessionBusy, UsageError
from hermes.schema.messages import User, text_of
from hermes.schema.sessions import StoredMessage
from hermes.schema.terminal import CommandReply, TextReply

_MAX_LISTED = 20


async def _snapshot(context: CommandContext, args: str) -> CommandReply:
    session = context.conversation.session
    checkpoint = await _checkpoints(context).take(session.cwd, session.id, args)
    return TextReply(f"Saved a checkpoint of {checkpoint.workspace}. /rollback 1 restores it.")


async def _rollback(context: CommandContext, args: str) -> CommandReply:
    checkpoints = _checkpoints(context)
    saved = await checkpoints.list(context.conversation.session.cwd)
    if not saved:
        raise UsageError(
            "This working directory has no checkpoints yet.",
            hint="One is saved before a turn first changes files; /snapshot saves one now.",
        )
    if not args:
        return TextReply(await _checkpoint_list(context, saved[:_MAX_LISTED]))
    number = parse_count(args)
    if number is None or number > len(saved):
        only = "There is only checkpoint 1."
        several = f"/rollback takes a number from 1 to {len(saved)}."
        raise UsageError(only if len(saved) == 1 else several, hint="/rollback lists them.")
    if context.control.activity().running:
        raise SessionBusy("A turn is running.", hint="Wait for it, or stop it with /stop.")
    return await _restore(context, checkpoints, saved[number - 1])


async def _restore(
    context: CommandContext, checkpoints: Checkpoints, chosen: Checkpoint
) -> TextReply:
    """Restore the files, which can be undone, then rewind the transcript to match."""
    conversation = context.conversation
    restored = await checkpoints.restore(chosen, conversation.session.id)
    sentences, turns = [_files_text(restored)], 0
    if chosen.session != conversation.session.id:
        sentences.append("It belongs to another session, so this conversation is unchanged.")
    else:
        first = _first_message_since(await conversation.messages(), chosen)
        turns = await conversation.rewind(first.seq) if first is not None else 0
        if turns:
            sentences.append(f"Undid {plural(turns, 'turn')}.")
    sentences.append("/rollback 1 undoes the change to the files.")
    failed = "".join(f"\n  {name}" for name in restored.failed)
    return TextReply(" ".join(sentences) + failed, undone=turns)


def _files_text(restored: RestoreResult) -> str:
    if not (restored.written or restored.removed or restored.failed):
        return "The files are already in that state."
    parts = [f"Restored {plural(restored.written, 'file')}"]
    if restored.removed:
        parts.append(f"removed {plural(restored.removed, 'newer file')}")
    if restored.failed:
        parts.append(f"{plural(len(restored.failed), 'file')} could not be restored")
    return ", ".join(parts) + "."


def _first_message_since(
    rows: Sequence[StoredMessage], checkpoint: Checkpoint
) -> StoredMessage | None:
    """The first message of the turn that changed the files, or the first after the checkpoint."""
    own = (row for row in rows if checkpoint.run and row.run == checkpoint.run)
    later = (row for row in rows if not checkpoint.run and row.at > checkpoint.at)
    return next(own, None) or next(later, None)


async def _checkpoint_list(context: CommandContext, saved: Sequence[Checkpoint]) -> str:
    rows = await context.conversation.messages()
    lines = [_checkpoint_line(number, each, rows) for number, each in enumerate(saved, start=1)]
    return "\n".join([*lines, "/rollback NUMBER restores files and conversation from before it."])


def _checkpoint_line(number: int, checkpoint: Checkpoint, rows: Sequence[StoredMessage]) -> str:
    messages = (row.message for row in rows if checkpoint.run and row.run == checkpoint.run)
    question = next((message for message in messages if isinstance(message, User)), None)
    about = f"before “{one_line(text_of(question), 50)}”" if question else checkpoint.reason
    if not about:
        about = "before a turn of another session" if checkpoint.run else "as it was then"
    time = f"{checkpoint.at.astimezone():%Y-%m-%d %H:%M}"
    return f"  {number:>2}  {time}  {one_line(about, 70)}".rstrip()


def _checkpoints(context: CommandContext) -> Checkpoints:
    return require_service(
        context.services.checkpoints,
        "Checkpoints are disabled.",
        hint="Enable them with: hermes config set checkpoints.enabled auto",
    )


_checkpoint_command = partial(
    Command,
    owner_only=True,
    is_available=lambda context: context.services.checkpoints is not None,
)

COMMANDS = (
    _checkpoint_command(
        name="rollback",
        usage="[number]",
        summary="List checkpoints, or restore files and conversation from one.",
        run=_rollback,
    ),
    _checkpoint_command(
        name="snapshot",
        aliases=("snap",),
        usage="[note]",
        summary="Save a checkpoint of the working directory.",
        availability=Availability.TERMINAL,
        run=_snapshot,
    ),
)
