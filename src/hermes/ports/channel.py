"""Interface between the gateway and a messaging platform."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from msgspec import Struct, structs

from hermes.config.sections import FreeTable
from hermes.config.sections.messaging import Platform
from hermes.kit.clock import Clock
from hermes.ports.store import Blobs
from hermes.schema.errors import HermesError
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address

T = TypeVar("T")


class NotSent(HermesError):
    """The platform certainly did not accept the message; other errors leave that open."""

    code = "not_sent"


class Offline(NotSent):
    """Not connected, so nothing was sent."""

    code = "offline"


class Throttled(NotSent):
    """Rate limited: wait `wait` seconds, for this chat or for all of them (`all_chats`).

    `one_kind`: only calls like this one are limited, and the channel itself rejects them meanwhile.
    Other calls to the chat, such as a new post instead of an edit, may succeed.
    """

    code = "throttled"

    def __init__(
        self,
        message: str,
        *,
        wait: float,
        hint: str = "",
        all_chats: bool = False,
        one_kind: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.wait = wait
        self.all_chats = all_chats
        self.one_kind = one_kind


class UnknownOutcome(HermesError):
    """The connection or the platform failed after the post may have been sent."""

    code = "unknown_outcome"


class MarkupRejected(NotSent):
    """The platform does not accept the markup; the gateway sends the text without it."""

    code = "markup_rejected"


class InboundRefused(HermesError):
    """The gateway cannot accept the message now; retry after `wait` seconds."""

    code = "not_taken"

    def __init__(self, message: str, *, wait: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.wait = wait


class TargetGone(NotSent):
    """The chat no longer exists or blocks the bot; retrying does not help."""

    code = "target_gone"


class InboundDetails(Struct, frozen=True, kw_only=True):
    """What the platform reports about the chat and the sender."""

    chat_type: str = "dm"
    chat_name: str = ""
    chat_topic: str = ""
    chat_alt: str = ""
    parent_chat: str = ""
    guild: str = ""
    user_name: str = ""
    user_alt: str = ""
    bot: bool = False
    mentions: bool = False  # the bot was mentioned
    roles: tuple[str, ...] = ()  # role ids of the sender
    relayed: bool = False  # a trusted relay has authenticated the sender


class NewMessage(Struct, frozen=True, tag="message"):
    """Someone wrote a message."""


class EditedMessage(Struct, frozen=True, tag="edit"):
    """The author changed the message; the update's parts are the new content."""


class DeletedMessage(Struct, frozen=True, tag="delete"):
    """The message was deleted."""


class ChangedReaction(Struct, frozen=True, tag="reaction"):
    """Someone reacted to the message, or removed the reaction."""

    emoji: str
    removed: bool = False


class PressedButton(Struct, frozen=True, tag="press"):
    """Someone pressed a button below the message; `value` is that of its `Choice`."""

    value: str


Update: TypeAlias = NewMessage | EditedMessage | DeletedMessage | ChangedReaction | PressedButton
"""What happened to a message."""


class Recording(Text, frozen=True, kw_only=True, tag="recording"):
    """Speech to transcribe once its sender is admitted; `text` is used if nothing transcribes.

    `spoken`: it is the sender's own speech rather than a file.
    """

    media: Media
    described: str
    spoken: bool = False


class Inbound(Struct, frozen=True):
    """One platform update."""

    key: str  # unique per update, even if the platform sends it again
    address: Address
    sender: str  # stable user id of the person who caused the update
    parts: tuple[Text | Media | Recording, ...]  # the content of a new or edited message
    reply_to: str | None = None
    message: str | None = None  # the platform's id of the message that the update is about
    about: InboundDetails = InboundDetails()
    answer_to: str = ""  # delivery targets that get the answer instead of `address`
    verbatim: bool = False  # deliver the text unchanged, without running a turn
    job: str = ""  # the scheduled job that it fires, instead of starting a turn
    update: Update = NewMessage()
    written_at: datetime | None = None  # when a message was written, if the platform says so


class Code(Struct, frozen=True, tag="code"):
    """A block of code, shown unchanged."""

    text: str
    language: str = ""


class Attachment(Struct, frozen=True, tag="attachment"):
    """A file to send; its bytes are in the blob store."""

    media: Media
    size: int
    caption: str = ""
    voice: bool = False  # show it as a voice message where the platform can


class Choice(Struct, frozen=True):
    """One button: its label, and the value that a press of it reports.

    `sign` is an emoji for platforms where people choose by a reaction instead.
    """

    label: str
    value: str
    sign: str = ""


class Choices(Struct, frozen=True, tag="choices"):
    """Buttons below the post's text, or a numbered list on platforms without buttons.

    `requester` is the platform's id of the person whose request is to be approved, if that person
    may do it.
    """

    choices: tuple[Choice, ...]
    in_text: bool = False  # the text already lists them
    requester: str = ""


Block: TypeAlias = Text | Code | Attachment | Choices
"""Content of a message. Text is Markdown until it is rendered for a channel."""


class LengthUnit(StrEnum):
    """What a platform counts when it limits the length of a text."""

    CHARACTERS = "characters"  # code points
    UTF16 = "utf16"
    BYTES = "bytes"  # of UTF-8
    GRAPHEMES = "graphemes"


class Markup(StrEnum):
    """The dialects a text can be rendered in."""

    PLAIN = "plain"
    MARKDOWN = "markdown"  # sent unchanged
    DISCORD = "discord"
    TELEGRAM = "telegram"  # the HTML subset of the Bot API
    SLACK = "slack"
    HTML = "html"  # as in Matrix
    IRC = "irc"
    WHATSAPP = "whatsapp"
    XMPP = "xmpp"  # Message Styling (XEP-0393)


class Outbound(Struct, frozen=True):
    """One post: rendered text, files or buttons.

    `plain` is the text without markup, for platforms that take both. `key` is the same each time
    the post is sent again, for platforms that recognize repetitions. `progress`: the post shows a
    running turn, and leaves the platform's capacity to answers.
    """

    blocks: tuple[Text | Attachment | Choices, ...]
    reply_to: str | None = None
    markup: Markup = Markup.PLAIN
    plain: str = ""
    key: str = ""
    progress: bool = False

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks if isinstance(block, Text))

    def without_markup(self) -> "Outbound":
        """The same post for a platform that rejected its markup."""
        text = (Text(self.plain),) if self.text else ()
        others = tuple(block for block in self.blocks if not isinstance(block, Text))
        return structs.replace(self, blocks=(*text, *others), markup=Markup.PLAIN)

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        return tuple(block for block in self.blocks if isinstance(block, Attachment))

    @property
    def choices(self) -> tuple[Choice, ...]:
        return tuple(
            choice
            for block in self.blocks
            if isinstance(block, Choices)
            for choice in block.choices
        )


class Receipt(Struct, frozen=True):
    """The platform's confirmation that a message was accepted."""

    address: Address
    id: str


class MediaLimits(Struct, frozen=True, kw_only=True):
    """The largest file of each kind in bytes; 0 if the kind is not supported."""

    image: int = 0
    audio: int = 0
    video: int = 0
    document: int = 0

    def limit_for(self, media_type: str) -> int:
        kind = media_type.partition("/")[0]
        own = {"image": self.image, "audio": self.audio, "video": self.video}.get(kind, 0)
        # A platform that cannot show a kind of media may still accept it as a file.
        return own or self.document


class ChannelCapabilities(Struct, frozen=True):
    """What a platform can do; a manifest declares it without loading the driver."""

    max_text: int  # length of one post, in `unit`
    direct: bool = True
    groups: bool = False
    async_delivery: bool = True  # can deliver messages after the turn has ended
    rate: float = 0.0  # messages per second in total; 0 is unlimited
    burst: float = 0.0  # messages that may be sent at once; 0: as many as in a second
    chat_rate: float = 0.0  # messages per second to one chat; 0 is unlimited
    group_rate: float = 0.0  # the same for groups, if they have another limit
    group_prefix: str = ""  # prefix of group ids; only needed for `group_rate`
    unit: LengthUnit = LengthUnit.CHARACTERS
    markup: Markup = Markup.MARKDOWN
    edit: bool = False
    typing: bool = False
    reactions: bool = False
    threads: bool = False
    buttons: int = 0  # maximum buttons below one post; 0: choices are numbered in the text
    button_label: int = 64  # characters of a button's label
    media_in: MediaLimits = MediaLimits()
    media_out: MediaLimits = MediaLimits()
    voice: bool = False  # shows audio as a voice message
    mention_required: bool = False  # in groups, unless the settings say otherwise
    native_commands: bool = False  # has its own list of commands
    idempotent: bool = False  # recognizes a repeated post by `Outbound.key`
    send_seconds: float = 0.0  # how long one post may take to send; 0 is the gateway's default


class Channel(Protocol):
    @property
    def caps(self) -> ChannelCapabilities: ...

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        """Listen until cancelled.

        `deliver` returns once the message is durable, without waiting for it to be handled
        (a slash command gets up to a second, so that it runs before the next message). If it
        raises, the message is not stored and must not be acknowledged. `InboundRefused` is
        raised only for platforms that authenticate their senders themselves, such as webhooks.
        """
        ...

    async def send(self, to: Address, post: Outbound) -> Receipt:
        """Raises `NotSent` when it is certain that nothing was sent."""
        ...


@runtime_checkable
class SupportsEdit(Protocol):
    async def edit(self, receipt: Receipt, post: Outbound) -> None: ...


@runtime_checkable
class SupportsTyping(Protocol):
    async def typing(self, to: Address, on: bool) -> None: ...


@runtime_checkable
class SupportsReactions(Protocol):
    async def react(self, to: Address, message: str, emoji: str) -> None: ...


@runtime_checkable
class SupportsLiveness(Protocol):
    def last_seen_at(self) -> datetime | None:
        """When the platform last showed a sign of life, such as the answer to a poll or a ping."""
        ...


class SharedResources(Protocol):
    """Resources shared by the channels of one process, such as a listening server."""

    async def get_or_open(self, name: str, make: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        """Return the resource of that name, opening it on first use; closed with the process."""
        ...


class ChannelDeps(Struct, frozen=True, kw_only=True):
    """Everything a channel is built from: one account's settings, and the profile's environment.

    `name` is the channel's own name in addresses: the platform, or `platform/account`.
    `current_env` reads the environment again, because a token may have been replaced.
    `admits` tells whether the sender of an update is admitted, before its files are fetched.
    """

    name: str
    profile: str
    home: Path
    settings: Platform
    env: Mapping[str, str]
    current_env: Callable[[], Mapping[str, str]]
    clock: Clock
    shared: SharedResources
    blobs: Blobs
    admits: Callable[[Inbound], Awaitable[bool]]
    max_file: int = 0  # bytes of a received file; 0: what the platform allows
    commands: tuple[tuple[str, str], ...] = ()  # names and summaries, for the platform's own menu
    account: str = ""  # empty for the account that the platform's own settings describe


ChannelFactory: TypeAlias = Callable[[ChannelDeps], AbstractAsyncContextManager[Channel]]
"""Opens a channel. Raises `ConfigError` when the settings are wrong."""


class AccountCheck(Struct, frozen=True, kw_only=True):
    """The result of checking a token: whose it is, and hints for the owner.

    `variables` are settings that were found and that setup stores.
    """

    account: str
    notes: tuple[str, ...] = ()
    variables: dict[str, str] = {}


CheckAccount: TypeAlias = Callable[[str, FreeTable, Mapping[str, str]], Awaitable[AccountCheck]]
"""Asks the platform about a token, with `extra` and the environment; raises `HermesError`."""


class SetupQuestion(Struct, frozen=True):
    """A variable that setup asks for; `{domain}` in the default is that of the first answer.

    The answer to a `secret` is not shown, and an `optional` one is skipped with `-`. Answers must
    match the regular expression `pattern`, which `expected` describes.
    """

    variable: str
    label: str
    default: str = ""
    optional: bool = False
    secret: bool = False
    pattern: str = ""
    expected: str = ""


class ChannelSetup(Struct, frozen=True, kw_only=True):
    """How `hermes gateway setup` connects a platform.

    `check` is "module:attribute" of a `CheckAccount`, `variable` that of the token; `steps`
    say how to get one, and `user_id` what a user id looks like and where to find it; it matches
    the regular expression `user_pattern`. `questions` are asked before the token, which people
    call `secret`; with `secret_optional`, there may be none.
    """

    check: str
    variable: str
    steps: tuple[str, ...]
    user_id: str
    user_pattern: str = r"\S+"
    secret: str = "Token"  # noqa: S105 - what it is called
    secret_optional: bool = False
    questions: tuple[SetupQuestion, ...] = ()


class ChannelManifest(Struct, frozen=True, kw_only=True):
    """Describes a channel without importing the platform SDK.

    `options` is the type of the platform's own settings, with their public names as fields;
    `variables` maps some of them to the environment variables that override them. Two channels
    must not have the same token, or the same `account_option` if there is one.
    """

    name: str
    factory: str  # "module:attribute" of a `ChannelFactory`
    caps: ChannelCapabilities
    label: str = ""
    # Setting any of these variables enables the channel; profiles must not share the first one.
    enabled_by: tuple[str, ...] = ()
    options: type[Struct] | None = None
    variables: Mapping[str, str] = {}
    # The option or options that name the account, if it is not the token.
    account_option: str | tuple[str, ...] = ""
    extra: str = ""  # the optional dependency that installs its packages
    setup: ChannelSetup | None = None
