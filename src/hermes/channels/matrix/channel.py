"""The Matrix channel: follows an account by /sync, sends and edits posts."""

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import anyio
from msgspec import Struct, structs

from hermes.channels.account import account_options, check_address
from hermes.channels.connection import LastSeen, Retries, first_error
from hermes.channels.http_client import open_http_client
from hermes.channels.matrix import MANIFEST, MOST_TEXT, MatrixOptions
from hermes.channels.matrix.choices import ChoicePosts, offered_choices
from hermes.channels.matrix.client_api import ClientApi, LoggedOut
from hermes.channels.matrix.device import Credentials, Device, OpenDevice
from hermes.channels.matrix.inbound import InboundBuilder
from hermes.channels.matrix.invitations import InvitationRules, invitation_rules
from hermes.channels.matrix.media import MediaReader, file_content
from hermes.channels.matrix.objects import Related
from hermes.channels.matrix.outbound import (
    Content,
    edit_content,
    event_id,
    reaction_content,
    text_content,
    transaction,
    with_relation,
)
from hermes.channels.matrix.position import Position
from hermes.channels.matrix.receiver import Receiver
from hermes.channels.matrix.room_sender import RoomSender
from hermes.channels.matrix.rooms import RoomDirectory
from hermes.channels.matrix.threads import Threads
from hermes.channels.matrix.unreadable import UnreadableEvents
from hermes.channels.matrix.verification import Verifications
from hermes.channels.proxies import ProxySettings
from hermes.channels.received_files import received_files
from hermes.channels.unreadable_updates import UnreadableUpdates, unreadable_updates
from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelDeps,
    Inbound,
    NotSent,
    Outbound,
    Receipt,
    UnknownOutcome,
)
from hermes.ports.store import Blobs
from hermes.schema.errors import ConfigError, HermesError
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

HandleInbound = Callable[[Inbound], Awaitable[None]]
MAX_REMEMBERED = 5_000
LOGIN_PAUSE = 0.5
_OWN = (
    *("homeserver", "user_id", "password", "device_id", "recovery_key", "recovery_key_output_file"),
    *("allowed_users", "allow_all_users"),
)
"""Options whose variables apply to the first account only."""


class _Reaction(Struct, frozen=True):
    """Our reaction to a message, and its event id."""

    emoji: str
    event: str


class MatrixChannel:
    """Implements `Channel` with editing, typing, reactions and liveness; never retries a post."""

    def __init__(
        self,
        *,
        name: str,
        api: ClientApi,
        device: Device,
        options: MatrixOptions,
        rooms: RoomDirectory,
        sender: RoomSender,
        threads: Threads,
        media: MediaReader,
        position: Position,
        invitations: InvitationRules,
        blobs: Blobs,
        clock: Clock,
        commands: Sequence[tuple[str, str]],
        skipped: UnreadableUpdates,
    ) -> None:
        self.caps: ChannelCapabilities = _capabilities(options)
        self._name = name
        self._api = api
        self._device = device
        self._options = options
        self._rooms = rooms
        self._sender = sender
        self._threads = threads
        self._media = media
        self._position = position
        self._invitations = invitations
        self._skipped = skipped
        self._blobs = blobs
        self._clock = clock
        self._commands = frozenset(name for name, _ in commands)
        self._seen = LastSeen(clock)
        self._reactions: LruMap[str, _Reaction] = LruMap(MAX_REMEMBERED)
        self._choices = ChoicePosts(for_requester=options.approval_require_sender)
        self._targets: LruMap[str, str] = LruMap(MAX_REMEMBERED)
        """Rooms by the alias that a post was addressed to."""

    async def run(self, deliver: HandleInbound) -> None:
        retries = Retries(self._clock, pause=LOGIN_PAUSE)
        while True:
            try:
                opened = await self._device.ready()
                await self._follow(opened, deliver)
            except LoggedOut as error:
                log.warning("%s: %s Logging in again.", self._name, error)
                await self._device.renew(error)
                await retries.failed(error)

    async def send(self, to: Address, post: Outbound) -> Receipt:
        room = await self._room(to)
        content = await self._content(room, post)
        thread = to.thread or self._threads.thread_of(post.reply_to)
        content = with_relation(content, thread, post.reply_to)
        key = transaction(post.key)
        sent = await self._sender.send(room, "m.room.message", content, key, optional=post.progress)
        if thread:
            self._threads.join(room, thread)
        await self._offer(room, sent, post)
        return Receipt(to, sent)

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        room, message = await self._room(receipt.address), event_id(receipt.id)
        content = text_content(post, (await self._rooms.facts(room)).people)
        # Edits do not notify anyone again.
        content["m.mentions"] = {}
        content = edit_content(content, message)
        key = transaction("")
        await self._sender.send(room, "m.room.message", content, key, optional=post.progress)

    async def typing(self, to: Address, on: bool) -> None:
        room, opened = await self._room(to), await self._device.ready()
        try:
            await self._api.typing(room, opened.user, on=on)
        except UnknownOutcome as error:
            # A lost indicator does not matter.
            log.info("typing could not be shown: %s", error)

    async def react(self, to: Address, message: str, emoji: str) -> None:
        """Show our reaction to a message; it replaces the previous one."""
        room, message = await self._room(to), event_id(message)
        before = self._reactions.get(message) or await self._shown_reaction(room, message)
        if before is not None and before.emoji == emoji:
            return
        if emoji:
            content = reaction_content(message, emoji)
            key = transaction("")
            sent = await self._api.send_event(room, "m.reaction", key, content, optional=True)
            self._reactions.put(message, _Reaction(emoji, sent))
        else:
            self._reactions.drop(message)
        if before is not None:
            await self._api.redact(room, before.event)

    async def _offer(self, room: str, event: str, post: Outbound) -> None:
        """React to our own post with what people can choose from."""
        self._choices.remember(room, event, post)
        for one in offered_choices(post):
            key = transaction(f"{post.key}:{one.sign}" if post.key else "")
            content = reaction_content(event, one.sign)
            try:
                await self._api.send_event(room, "m.reaction", key, content, optional=True)
            except HermesError as error:
                # The post says what the reactions mean, so people can add them.
                log.info("the choices of %s are not all offered: %s", event, error)
                return

    def last_seen_at(self) -> datetime | None:
        return self._seen.at

    async def _follow(self, opened: OpenDevice, deliver: HandleInbound) -> None:
        await self._position.load(opened.user, opened.login.device_id)
        try:
            async with anyio.create_task_group() as group:
                unreadable = None
                if opened.encryption is not None:
                    unreadable = UnreadableEvents(
                        group=group,
                        api=self._api,
                        encryption=opened.encryption,
                        rooms=self._rooms,
                        sender=self._sender,
                        position=self._position,
                        clock=self._clock,
                    )
                receiver = Receiver(
                    group=group,
                    api=self._api,
                    device=opened,
                    builder=self._builder(opened),
                    verifications=self._verifications(opened),
                    rooms=self._rooms,
                    unreadable=unreadable,
                    position=self._position,
                    invitations=self._invitations,
                    clock=self._clock,
                    skipped=self._skipped,
                    deliver=deliver,
                    on_data=self._seen.mark,
                )
                await receiver.run()
        except ExceptionGroup as failures:
            raise first_error(failures) from None

    def _builder(self, opened: OpenDevice) -> InboundBuilder:
        return InboundBuilder(
            name=self._name,
            user=opened.user,
            api=self._api,
            encryption=opened.encryption,
            rooms=self._rooms,
            threads=self._threads,
            media=self._media,
            choices=self._choices,
            options=self._options,
            commands=self._commands,
        )

    def _verifications(self, opened: OpenDevice) -> Verifications | None:
        if opened.encryption is None:
            return None
        return Verifications(
            login=opened.login,
            api=self._api,
            sender=self._sender,
            encryption=opened.encryption,
            is_trusted=partial(self._may_verify, opened.user),
            more_keys=opened.account_keys,
        )

    def _may_verify(self, own: str, user: str) -> bool:
        """Whether a user may verify the device: the account itself, and listed people."""
        return user == own or self._invitations.is_listed(user)

    async def _content(self, room: str, post: Outbound) -> Content:
        if not post.attachments:
            return text_content(post, (await self._rooms.facts(room)).people)
        (attachment,) = post.attachments
        data = await self._blobs.read(attachment.media.digest)
        await self._device.ready()
        encrypted = await self._sender.is_encrypted(room)
        return await file_content(self._api, attachment, data, encrypted=encrypted)

    async def _shown_reaction(self, room: str, message: str) -> _Reaction | None:
        """Return the reaction that an earlier process set."""
        opened = await self._device.ready()
        try:
            found = await self._api.reactions(room, message)
        except (NotSent, UnknownOutcome) as error:
            log.info("the reactions to %s cannot be read: %s", message, error)
            return None
        own = [reaction for reaction in found if reaction.sender == opened.user]
        relation = own[0].read(Related).relates_to if own else None
        return _Reaction(relation.key, own[0].event_id) if relation is not None else None

    async def _room(self, to: Address) -> str:
        """Return the room of an address, which may name a person or an alias instead."""
        check_address(to, self._name)
        await self._device.ready()
        if to.chat.startswith("@"):
            room = await self._direct_room(to.chat)
        elif to.chat.startswith("#"):
            room = self._targets.get(to.chat) or await self._api.resolve_alias(to.chat)
            self._targets.put(to.chat, room)
        else:
            room = to.chat
        if not room.startswith("!"):
            raise NotSent(f"{to.chat!r} is not a room.", hint="A room's id begins with “!”.")
        return room

    async def _direct_room(self, user: str) -> str:
        opened = await self._device.ready()
        room = await self._rooms.direct_room(opened.user, user)
        if not room:
            raise NotSent(
                f"There is no direct chat with {user}.",
                hint="Ask them to write to the agent first, or send to a room.",
            )
        return room


def _capabilities(options: MatrixOptions) -> ChannelCapabilities:
    length = max(min(options.max_message_length, MOST_TEXT), 100)
    # Choices are reactions, which are never encrypted.
    buttons = MANIFEST.caps.buttons if options.mode != "required" else 0
    return structs.replace(MANIFEST.caps, max_text=length, buttons=buttons)


def checked_options(deps: ChannelDeps) -> MatrixOptions:
    """Read the options. Raises `ConfigError` if they cannot be used."""
    options = account_options(MatrixOptions, deps, MANIFEST, own=_OWN)
    for pattern in options.ignore_user_patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"Matrix's pattern {pattern!r} is invalid: {error}.") from error
    return options


def credentials(deps: ChannelDeps) -> Credentials:
    """Return the account's current login. Raises `ConfigError` if something is missing."""
    options = checked_options(deps)
    variable = "" if deps.account else deps.current_env().get(MANIFEST.enabled_by[0], "")
    token = (variable or deps.settings.token).strip()
    homeserver = options.homeserver.strip().rstrip("/")
    if homeserver and "://" not in homeserver:
        homeserver = f"https://{homeserver}"
    output = options.recovery_key_output_file.strip()
    missing = "" if homeserver else "homeserver (MATRIX_HOMESERVER)"
    if not token and not (options.user_id and options.password):
        missing = "access token (MATRIX_ACCESS_TOKEN) or user id and password"
    if missing:
        raise ConfigError(
            f"{deps.name} has no {missing}.", hint="Set it with: hermes gateway setup matrix"
        )
    return Credentials(
        homeserver=homeserver,
        token=token,
        user=options.user_id.strip(),
        password=options.password,
        device=options.device_id.strip(),
        recovery_key=options.recovery_key,
        recovery_key_file=deps.home / Path(output).expanduser() if output else None,
    )


@asynccontextmanager
async def open_channel(deps: ChannelDeps) -> AsyncGenerator[MatrixChannel]:
    options, login = checked_options(deps), credentials(deps)
    folder = deps.home / "platforms" / deps.name.replace("/", "-")
    skipped = unreadable_updates(deps)
    settings = ProxySettings(options.proxy_url, "MATRIX_PROXY", deps.current_env())
    async with open_http_client("The homeserver", settings, unreadable=skipped) as http:
        api = ClientApi(http, login.homeserver, deps.clock)
        device = Device(
            api=api,
            credentials=partial(credentials, deps),
            folder=folder,
            encrypts=options.mode != "off",
        )
        position = Position(folder / "position.json")
        rooms = RoomDirectory(api, deps.clock, position, ttl=options.room_identity_ttl_seconds)
        received = received_files(deps, options.max_media_bytes)
        media = MediaReader(api, received, max_bytes=options.max_media_bytes)
        try:
            yield MatrixChannel(
                name=deps.name,
                api=api,
                device=device,
                options=options,
                rooms=rooms,
                sender=RoomSender(api=api, device=device, rooms=rooms, mode=options.mode),
                threads=Threads(api),
                media=media,
                position=position,
                invitations=invitation_rules(options, deps.env),
                blobs=deps.blobs,
                clock=deps.clock,
                commands=deps.commands,
                skipped=skipped,
            )
        finally:
            device.close()
