"""Apply edits, deletions and reactions to messages that wait or are being answered."""

from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec import Raw, Struct, structs

from hermes.commands.surface import BusyMode
from hermes.gateway.chat_runs import QueuedMessage, same_conversation
from hermes.gateway.messages import InboxKind, InboxMessage
from hermes.ports.store import AmendItem, CompleteItem, Write
from hermes.schema.messages import Media, Text

MAX_CONTEXT = 20
"""How many reactions wait for the next message; older ones are dropped."""

EDITED = "(I edited the message you are answering. It now reads:)\n"
DELETED = "(I deleted the message you are answering. Stop, unless something else remains to do.)"


def reaction_note(emoji: str, *, removed: bool) -> Text:
    if removed:
        return Text(f"(I took back my reaction {emoji} to one of the messages above.)")
    return Text(f"(I reacted with {emoji} to one of the messages above.)")


class AppliedChanges(Struct, frozen=True):
    """The messages that still wait, and what to write before they are answered."""

    waiting: Sequence[QueuedMessage]
    writes: Sequence[Write] = ()


def apply_changes(
    queued: Sequence[QueuedMessage], started: Iterable[QueuedMessage], fresh: Collection[str]
) -> AppliedChanges:
    """Change or remove waiting messages; a change to a `started` one becomes a message to its run.

    Messages that are not in `fresh` count as started: an earlier process may have begun to answer
    them.
    """
    waiting: list[QueuedMessage] = []
    writes: list[Write] = []
    in_progress = [*started, *(message for message in queued if message.key not in fresh)]
    for message in queued:
        match message.message.kind:
            case InboxKind.MESSAGE | InboxKind.CONTEXT:
                waiting.append(message)
                continue
            case InboxKind.EDIT | InboxKind.DELETE:
                pass
        if _target(message.message, in_progress) is not None:
            waiting.append(structs.replace(message, message=_steering(message.message)))
            if message.message.kind is InboxKind.EDIT:
                # If the run ends first, the new text is answered in a turn of its own.
                writes.append(_amended(waiting[-1]))
        elif target := _target(message.message, waiting):
            waiting, more = _changed(waiting, target, message)
            writes += more
        else:
            writes.append(CompleteItem(message.key))
    return _without_old_context(AppliedChanges(waiting, writes))


def _target(change: InboxMessage, messages: Sequence[QueuedMessage]) -> QueuedMessage | None:
    return next(
        (
            message
            for message in messages
            if message.message.kind is InboxKind.MESSAGE
            and message.message.message == change.message is not None
            and same_conversation(message.message, change)
        ),
        None,
    )


def _changed(
    waiting: Sequence[QueuedMessage], target: QueuedMessage, change: QueuedMessage
) -> tuple[list[QueuedMessage], list[Write]]:
    done = CompleteItem(change.key)
    if change.message.kind is InboxKind.DELETE:
        return [message for message in waiting if message is not target], [
            CompleteItem(target.key),
            done,
        ]
    user = structs.replace(target.message.user, parts=change.message.user.parts)
    edited = structs.replace(target, message=structs.replace(target.message, user=user))
    return [edited if message is target else message for message in waiting], [
        _amended(edited),
        done,
    ]


def _steering(message: InboxMessage) -> InboxMessage:
    deleted = message.kind is InboxKind.DELETE
    parts: tuple[Text | Media, ...] = (
        (Text(DELETED),) if deleted else (Text(EDITED), *message.user.parts)
    )
    user = structs.replace(message.user, parts=parts)
    return structs.replace(message, user=user, kind=InboxKind.MESSAGE, busy_mode=BusyMode.STEER)


def _amended(queued: QueuedMessage) -> AmendItem:
    return AmendItem(queued.key, Raw(msgspec.json.encode(queued.message)))


def _without_old_context(applied: AppliedChanges) -> AppliedChanges:
    context = [message for message in applied.waiting if message.message.kind is InboxKind.CONTEXT]
    old = context[:-MAX_CONTEXT]
    if not old:
        return applied
    kept = [message for message in applied.waiting if message not in old]
    return AppliedChanges(kept, [*applied.writes, *(CompleteItem(message.key) for message in old)])
