"""Commands for the files of the workspace: keep them as they are, and bring them back."""

from collections.abc import Sequence

from hermes.commands.command import Availability, Command, CommandContext, CommandReply, TextReply
from hermes.kit.text import one_line, parse_count, plural
from hermes.ports.checkpoints import Checkpoint, Checkpoints, RestoreResult
from hermes.schema.errors import SessionBusy, UsageError
from hermes.schema.messages import User, text_of
from hermes.schema.sessions import StoredMessage

_MAX_LISTED = 20


async def _snapshot(context: CommandContext, words: str) -> CommandReply:
    session = context.conversation.session
    taken = await _checkpoints(context).take(session.cwd, session.id, words)
    return TextReply(f"Kept {taken.workspace} as it is. /rollback 1 comes back to it.")


async def _rollback(context: CommandContext, words: str) -> CommandReply:
    checkpoints = _checkpoints(context)
    kept = await checkpoints.list(context.conversation.session.cwd)
    if not kept:
        raise UsageError(
            "There is no checkpoint of this workspace yet.",
            hint="One is made before a turn first changes files; /snapshot makes one now.",
        )
    if not words:
        return TextReply(await _checkpoint_list(context, kept[:_MAX_LISTED]))
    number = parse_count(words)
    if number is None or number > len(kept):
        raise UsageError(
            f"/rollback takes a number from 1 to {len(kept)}.", hint="/rollback lists them."
        )
    if context.work.activity().running:
        raise SessionBusy("A turn is running.", hint="Wait for its end, or stop it with /stop.")
    return await _restore(context, checkpoints, kept[number - 1])


async def _restore(
    context: CommandContext, checkpoints: Checkpoints, chosen: Checkpoint
) -> TextReply:
    """Files first: that can be undone; then the talk, so that both tell of the same moment."""
    conversation = context.conversation
    restored = await checkpoints.restore(chosen, conversation.session.id)
    said, turns = [_files_text(restored)], 0
    if chosen.session != conversation.session.id:
        said.append("The checkpoint is another session's, so nothing was taken back here.")
    else:
        first = _first_message_since(await conversation.messages(), chosen)
        turns = await conversation.rewind(first.seq) if first is not None else 0
        if turns:
            said.append(f"Took back {plural(turns, 'turn')}.")
    said.append("/rollback 1 undoes this for the files.")
    failed = "".join(f"\n  {name}" for name in restored.failed)
    return TextReply(" ".join(said) + failed, undone=turns)


def _files_text(restored: RestoreResult) -> str:
    if not (restored.written or restored.removed or restored.failed):
        return "The files already were as they were then."
    parts = [f"Brought back {plural(restored.written, 'file')}"]
    if restored.removed:
        parts.append(f"removed {plural(restored.removed, 'file')} that came since")
    if restored.failed:
        parts.append(f"{plural(len(restored.failed), 'file')} could not be changed")
    return ", ".join(parts) + "."


def _first_message_since(rows: Sequence[StoredMessage], kept: Checkpoint) -> StoredMessage | None:
    """Where the turn begins that changed the files, or else what was said after them."""
    own = (row for row in rows if kept.run and row.run == kept.run)
    later = (row for row in rows if not kept.run and row.at > kept.at)
    return next(own, None) or next(later, None)


async def _checkpoint_list(context: CommandContext, kept: Sequence[Checkpoint]) -> str:
    rows = await context.conversation.messages()
    lines = [_checkpoint_line(number, one, rows) for number, one in enumerate(kept, start=1)]
    return "\n".join([*lines, "/rollback with a number brings files and talk back to before it."])


def _checkpoint_line(number: int, kept: Checkpoint, rows: Sequence[StoredMessage]) -> str:
    asked = (row.message for row in rows if kept.run and row.run == kept.run)
    question = next((message for message in asked if isinstance(message, User)), None)
    about = f"before “{one_line(text_of(question), 50)}”" if question else kept.reason
    if not about:
        about = "before a turn of another session" if kept.run else "as it was then"
    return f"  {number:>2}  {kept.at.astimezone():%Y-%m-%d %H:%M}  {one_line(about, 70)}".rstrip()


def _checkpoints(context: CommandContext) -> Checkpoints:
    checkpoints = context.services.checkpoints
    if checkpoints is None:
        raise UsageError(
            "Checkpoints are turned off.",
            hint="`hermes config set checkpoints.enabled true` turns them on.",
        )
    return checkpoints


def _has_checkpoints(context: CommandContext) -> bool:
    return context.services.checkpoints is not None


COMMANDS = (
    Command(
        name="rollback",
        usage="[number]",
        summary="List checkpoints of the files, or go back to one, with what was said since.",
        owners=True,
        needs=_has_checkpoints,
        run=_rollback,
    ),
    Command(
        name="snapshot",
        aliases=("snap",),
        usage="[note]",
        summary="Keep the files of the workspace as they are now.",
        where=Availability.TERMINAL,
        owners=True,
        needs=_has_checkpoints,
        run=_snapshot,
    ),
)
