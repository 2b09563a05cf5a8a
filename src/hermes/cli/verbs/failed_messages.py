"""`hermes send --failed`, `--retry` and `--discard`: messages that could not be delivered."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from hermes.app.storage import open_archive
from hermes.cli.context import CliContext
from hermes.cli.dates import relative_time
from hermes.config.home import Home
from hermes.gateway.messages import read_inbox_message, read_outbox_message
from hermes.gateway.targets import address_name
from hermes.kit.clock import SystemClock
from hermes.kit.terminal_text import single_line
from hermes.kit.text import one_line, plural
from hermes.ports.store import CompleteItem, ParkedItem, Store
from hermes.schema.errors import NotFound
from hermes.schema.messages import text_of

ALL = "all"
_MAX_LISTED = 1000
"""Messages listed per queue."""
_MAX_TEXT = 60
_REQUESTED = "requested with hermes send --retry"


class FailedMessage(Struct, frozen=True, kw_only=True):
    """`chat` is the destination of the message, or the origin of a received one."""

    id: str
    chat: str
    reason: str
    text: str = ""
    at: datetime | None = None


def run(args: Namespace, context: CliContext, wake: Callable[[Path], bool]) -> int:
    home = context.home()
    if wanted := args.retry or args.discard:
        count = anyio.run(_settle, home, wanted, bool(args.retry))
        if args.retry:
            wake(home.path)
        done = "will be tried again" if args.retry else "discarded"
        context.print(f"{plural(count, 'message')} {done}.")
        return 0
    messages = anyio.run(_list, home)
    if args.json:
        context.print_json(messages)
        return 0
    if not messages:
        context.note("There are no undelivered messages.")
        return 0
    now = SystemClock().now()
    for message in messages:
        when = f" ({relative_time(message.at, now)})" if message.at else ""
        text = f": {one_line(single_line(message.text), _MAX_TEXT)}" if message.text else ""
        context.print(f"{single_line(message.id)}\n  {single_line(message.chat)}{when}{text}")
        context.print(f"  {single_line(message.reason)}")
    context.note("Try again: hermes send --retry ID. Remove: hermes send --discard ID, or all")
    return 0


async def _list(home: Home) -> Sequence[FailedMessage]:
    if not home.has_sessions:
        return []
    async with open_archive(home, SystemClock()) as store:
        return [_describe(one) for one in await _given_up(store)]


async def _settle(home: Home, wanted: str, again: bool) -> int:
    """Try the message again, or complete it; returns how many there were."""
    clock = SystemClock()
    known = [message.id for message in await _list(home)]
    keys = known if wanted == ALL else [key for key in known if key == wanted]
    if not keys:
        raise NotFound(
            f"There is no undelivered message {wanted!r}."
            if wanted != ALL
            else "There are no undelivered messages.",
            hint="List them: hermes send --failed" if known else "",
        )
    async with open_archive(home, clock) as store:
        if not again:
            await store.commit(*map(CompleteItem, keys))
        for key in keys if again else ():
            await store.queues.retry(key, clock.now(), _REQUESTED)
    return len(keys)


async def _given_up(store: Store) -> Sequence[ParkedItem]:
    queues = [counts.queue for counts in await store.queues.counts() if counts.parked]
    return [one for queue in queues for one in await store.queues.parked(queue, _MAX_LISTED)]


def _describe(parked: ParkedItem) -> FailedMessage:
    item, reason = parked.item, parked.reason
    try:
        message = read_outbox_message(item)
    except msgspec.DecodeError:
        return _describe_received(parked)
    chat = address_name(message.address)
    return FailedMessage(id=item.key, chat=chat, reason=reason, text=message.text, at=message.at)


def _describe_received(parked: ParkedItem) -> FailedMessage:
    item, reason = parked.item, parked.reason
    try:
        message = read_inbox_message(item)
    except msgspec.DecodeError:
        return FailedMessage(id=item.key, chat=item.topic, reason=reason)
    chat = f"from {address_name(message.address)}"
    return FailedMessage(id=item.key, chat=chat, reason=reason, text=text_of(message.user))
