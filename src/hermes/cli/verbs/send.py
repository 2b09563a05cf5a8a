"""`hermes send`: send a message to a chat."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TextIO

import anyio
import msgspec
from msgspec import Struct

from hermes.app.chat_directory import SendTargets, load_send_targets, resolve_names
from hermes.app.service.status import GatewayStatus, gateway_status
from hermes.app.storage import open_archive
from hermes.cli.context import CliContext
from hermes.cli.dates import relative_time
from hermes.cli.output import Printer
from hermes.cli.verbs.chat import decode_argument
from hermes.config.home import Home, ensure_home
from hermes.gateway.messages import (
    OutboxMessage,
    outbox_post,
    read_inbox_message,
    read_outbox_message,
)
from hermes.gateway.targets import (
    ResolvedTargets,
    UnresolvedReason,
    UnresolvedTarget,
    address_name,
    parse_targets,
    resolve_targets,
    target_name,
)
from hermes.ipc.socket_client import wake_gateway
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.files import read_regular_file, write_atomic
from hermes.kit.ids import new_id
from hermes.kit.terminal_text import single_line
from hermes.kit.text import one_line, plural
from hermes.ports.store import CompleteItem, EnqueueItem, ItemStatus, ParkedItem, Store
from hermes.schema.errors import ConfigError, NotFound, UsageError
from hermes.schema.messages import text_of
from hermes.schema.scope import Address

MAX_TEXT_BYTES = 1024 * 1024
"""Bytes of one message; it is split for platforms with smaller limits."""
_POLL_INTERVALS = (0.02, 0.5)
"""Seconds between checks of the outbox: initial and maximum."""

_CHAT_TYPES = {"dm": "direct message"}

WakeGateway = Callable[[Path], bool]
"""Notifies the gateway of a home about new outbox items; False if none is listening."""
ALL = "all"
_MAX_LISTED = 1000
"""Messages listed per queue."""
_MAX_TEXT = 60
_REQUESTED = "requested with hermes send --retry"


class SendOutcome(StrEnum):
    """`ACCEPTED` means that it is in the outbox and a gateway will deliver it."""

    DELIVERED = "delivered"
    ACCEPTED = "accepted"
    WRITTEN = "written"
    FAILED = "failed"


class TargetResult(Struct, frozen=True):
    target: str
    outcome: SendOutcome
    about: str = ""
    key: str = ""


def run(args: Namespace, context: CliContext) -> int:
    if args.failed or args.retry or args.discard:
        return _failed_messages(args, context, wake_gateway)
    return _list_targets(args, context) if args.list else send(args, context, wake_gateway)


def _list_targets(args: Namespace, context: CliContext) -> int:
    home = context.home()
    gateway = gateway_status(home)
    online = list(gateway.platforms) if gateway.record else []
    targets = load_send_targets(home, context.env, online)
    rows = [
        (address_name(address), f"home channel {targets.home_names.get(name, '')}".rstrip())
        for name, address in targets.homes.items()
    ]
    for chat in targets.chats:
        about = " ".join(filter(None, [_CHAT_TYPES.get(chat.type, chat.type), chat.name]))
        rows.append((f"{chat.platform}:{chat.id}", about))
    found = bool(rows)
    rows.append(("local", "a file in the home"))
    if args.json:
        context.print_json([{"target": target, "about": about} for target, about in rows])
        return 0
    if not found:
        context.note(
            "No home channel and no known chats yet. Send `/sethome` in a chat with the agent, or "
            "use platform:chat."
        )
    shown = [(single_line(target), single_line(about)) for target, about in rows]
    Printer(context).table([("TARGET", "ABOUT"), *shown])
    return 0


def text_to_send(args: Namespace, context: CliContext) -> str:
    """The text from the argument, a file or stdin. Raises `UsageError` if there is none or two."""
    if args.more:
        is_target = args.to == "origin" and ":" in args.message
        hint = f"Did you mean --to {args.message}?" if is_target else "Quote the message."
        raise UsageError(f"Unrecognized arguments: {' '.join(args.more)}.", hint=hint)
    if args.message is not None and args.file is not None:
        raise UsageError("Pass the message as an argument or with --file, not both.")
    if args.message is not None:
        text = decode_argument(args.message)
    elif args.file not in (None, "-"):
        text = _read_file(Path(args.file))
    elif args.file == "-" or not context.stdin.isatty():
        text = _read_stdin(context.stdin)
    else:
        raise _no_text_error("No message given.")
    if not text.strip():
        raise _no_text_error("The message is empty.")
    subject = " ".join(decode_argument(args.subject or "").split())
    return f"{subject}\n\n{text}" if subject else text


def _read_file(path: Path) -> str:
    try:
        return _decode(read_regular_file(path, MAX_TEXT_BYTES), str(path))
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}.") from error


def _read_stdin(stream: TextIO) -> str:
    binary = hasattr(stream, "buffer")
    data = stream.buffer.read(MAX_TEXT_BYTES + 1) if binary else stream.read().encode()
    if len(data) > MAX_TEXT_BYTES:
        raise UsageError(f"The message is longer than {MAX_TEXT_BYTES:,} bytes.")
    return _decode(data, "The piped input")


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode().rstrip("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text.", hint="Only text can be sent.") from error


def _no_text_error(what: str) -> UsageError:
    return UsageError(
        what,
        hint="For example: echo done | hermes send -t local (hermes send --list shows the targets)",
    )


def _print_results(lines: Sequence[TargetResult], args: Namespace, context: CliContext) -> int:
    failed = any(line.outcome is SendOutcome.FAILED for line in lines)
    if args.json:
        context.print_json({"ok": not failed, "results": lines})
        return int(failed)
    for line in lines:
        text = f"{single_line(line.target)}: {line.outcome.value}"
        text += f" ({single_line(line.about)})" if line.about else ""
        if line.outcome is SendOutcome.FAILED:
            context.note(f"hermes: {text}")
        elif not args.quiet:
            context.print(text)
    return int(failed)


class _QueuedText(Struct, frozen=True):
    key: str
    address: Address


def send(args: Namespace, context: CliContext, wake: WakeGateway) -> int:
    text = text_to_send(args, context)
    home, clock = context.home(), SystemClock()
    gateway = gateway_status(home)
    known = load_send_targets(home, context.env, _online_platforms(gateway) or ())
    targets = _resolve(args.to, known)
    ensure_home(home)
    lines = [
        TargetResult(target_name(one.target), SendOutcome.FAILED, _unresolved_text(one))
        for one in targets.unresolved
    ]
    if targets.local:
        path = _write_local(home, text, clock)
        lines.append(TargetResult("local", SendOutcome.WRITTEN, str(path)))
    if targets.addresses:
        sender = _Sender(home, gateway, clock, wake)
        wait_seconds = 0.0 if args.no_wait else args.timeout
        lines += anyio.run(sender.send, targets.addresses, text, wait_seconds)
    return _print_results(lines, args, context)


class _Sender:
    def __init__(self, home: Home, gateway: GatewayStatus, clock: Clock, wake: WakeGateway) -> None:
        self._home = home
        self._gateway = gateway
        self._clock = clock
        self._wake = wake

    async def send(
        self, addresses: Sequence[Address], text: str, seconds: float
    ) -> list[TargetResult]:
        rows = [_QueuedText(new_id("send"), address) for address in addresses]
        now = self._clock.now()
        async with open_archive(self._home, self._clock) as store:
            await store.commit(*(_post(row, text, now) for row in rows))
            woken = await anyio.to_thread.run_sync(self._wake_gateway)
            if self._gateway.record is not None and seconds > 0:
                await self._wait_settled(store, [row for row in rows if self._serves(row)], seconds)
            return [await self._target_result(store, row, woken=woken) for row in rows]

    def _wake_gateway(self) -> bool:
        record = self._gateway.record
        if record is None:
            return False
        folders = dict.fromkeys([self._home.path, Path(record.home or self._home.path)])
        return any(self._wake(folder) for folder in folders)

    def _serves(self, row: _QueuedText) -> bool:
        online = _online_platforms(self._gateway)
        return online is None or row.address.channel in online

    async def _wait_settled(
        self, store: Store, rows: Sequence[_QueuedText], seconds: float
    ) -> None:
        until = self._clock.monotonic() + seconds
        pause, longest = _POLL_INTERVALS
        open_keys = {row.key for row in rows}
        while open_keys:
            for key in list(open_keys):
                status, _ = await store.queues.status(key)
                if status is not ItemStatus.WAITING:
                    open_keys.discard(key)
            left = until - self._clock.monotonic()
            if left <= 0 or not open_keys:
                return
            await self._clock.sleep(min(pause, left))
            pause = min(pause * 1.5, longest)

    async def _target_result(self, store: Store, row: _QueuedText, *, woken: bool) -> TargetResult:
        status, reason = await store.queues.status(row.key)
        target = address_name(row.address)
        match status:
            case ItemStatus.DONE:
                return TargetResult(target, SendOutcome.DELIVERED, "", row.key)
            case ItemStatus.PARKED:
                return TargetResult(target, SendOutcome.FAILED, reason, row.key)
            case ItemStatus.WAITING:
                return TargetResult(
                    target, SendOutcome.ACCEPTED, self._delay(row, reason, woken), row.key
                )

    def _delay(self, row: _QueuedText, reason: str, woken: bool) -> str:
        flag = "" if self._home.profile == "default" else f" -p {self._home.profile}"
        if self._gateway.record is None:
            return f"no gateway is running; to deliver it: hermes{flag} gateway start"
        if not self._serves(row):
            return f"the running gateway does not serve {row.address.channel} yet"
        if reason:
            return f"not delivered yet: {reason}"
        unnotified = "the gateway could not be notified; it sends this with its next message"
        return "" if woken else unnotified


def _online_platforms(gateway: GatewayStatus) -> list[str] | None:
    """The platforms that the running gateway serves; None if unknown."""
    if gateway.record is None or gateway.state is None:
        return None
    return [name for name, platform in gateway.platforms.items() if platform.state != "fatal"]


def _resolve(text: str, known: SendTargets) -> ResolvedTargets:
    targets = resolve_names(parse_targets(text), known.chats)
    resolved = resolve_targets(targets, known.homes, origin=known.origin, platforms=known.platforms)
    if resolved.unresolved and len(resolved.unresolved) == len(targets):
        raise UsageError(
            "; ".join(_unresolved_text(one) for one in resolved.unresolved) + ".",
            hint="List the targets: hermes send --list",
        )
    return resolved


def _post(row: _QueuedText, text: str, at: datetime) -> EnqueueItem:
    return outbox_post(
        row.key, OutboxMessage(address=row.address, text=text, at=at, cross_post=True)
    )


def _unresolved_text(unreached: UnresolvedTarget) -> str:
    name = target_name(unreached.target)
    match unreached.reason:
        case UnresolvedReason.NO_ORIGIN:
            return "This was not started from a chat, and no home channel is set"
        case UnresolvedReason.NO_HOME:
            return f"{name} has no home channel"
        case UnresolvedReason.NO_HOME_ANYWHERE:
            return "No platform has a home channel"
        case UnresolvedReason.UNKNOWN_PLATFORM:
            return f"The platform {name.partition(':')[0]} is not set up"


def _write_local(home: Home, text: str, clock: Clock) -> Path:
    folder = home.cron / "output" / "send"
    path = folder / f"{clock.now():%Y-%m-%d_%H-%M-%S}_{new_id('text')[-6:].lower()}.md"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, text.encode(errors="surrogateescape") + b"\n", mode=0o600)
    except OSError as error:
        raise ConfigError(f"Cannot write {path}: {error.strerror}.") from error
    return path


class FailedMessage(Struct, frozen=True, kw_only=True):
    """`chat` is the destination of the message, or the origin of a received one."""

    id: str
    chat: str
    reason: str
    text: str = ""
    at: datetime | None = None


def _failed_messages(args: Namespace, context: CliContext, wake: WakeGateway) -> int:
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
        message = read_outbox_message(item.body)
    except msgspec.DecodeError:
        return _describe_received(parked)
    chat = address_name(message.address)
    return FailedMessage(id=item.key, chat=chat, reason=reason, text=message.text, at=message.at)


def _describe_received(parked: ParkedItem) -> FailedMessage:
    item, reason = parked.item, parked.reason
    try:
        message = read_inbox_message(item.body)
    except msgspec.DecodeError:
        return FailedMessage(id=item.key, chat=item.topic, reason=reason)
    chat = f"from {address_name(message.address)}"
    return FailedMessage(id=item.key, chat=chat, reason=reason, text=text_of(message.user))
