"""Matrix: a user account on a homeserver, with end-to-end encryption."""

from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.config.sections import Seconds
from hermes.ports.channel import (
    ChannelCapabilities,
    ChannelManifest,
    ChannelSetup,
    LengthUnit,
    Markup,
    MediaLimits,
    SetupQuestion,
)

MEDIA_LIMIT = 100 * 1024 * 1024
MAX_TEXT = 16_000
MOST_TEXT = 65_535
"""The largest `max_message_length`; an event is limited to 65,536 bytes (specification, 'Size
limits')."""

EncryptionMode: TypeAlias = Literal["", "off", "optional", "required"]
SessionScope: TypeAlias = Literal["auto", "room", "thread"]


class MatrixOptions(Struct, frozen=True, kw_only=True):
    """The platform's own settings.

    `e2ee_mode` serves encrypted rooms too (`optional`), only those (`required`) or none of them
    (`off`); without it, `encryption` chooses `optional` or `off`. Here, the lists of people and
    rooms decide which invitations are accepted; the gateway applies them to messages.
    `session_scope` is `auto` (a thread is a session of its own), `room` (threads belong to the
    room's session) or `thread` (each message begins a thread). The gateway applies
    `approval_timeout_seconds`.
    """

    homeserver: str = ""
    user_id: str = ""
    password: str = ""
    device_id: str = ""
    recovery_key: str = ""
    recovery_key_output_file: str = ""
    encryption: bool = True
    e2ee_mode: EncryptionMode = ""
    proxy_url: str = ""
    thread_require_mention: bool = False
    free_response_rooms: tuple[str, ...] = ()
    allowed_rooms: tuple[str, ...] = ()
    allowed_users: tuple[str, ...] = ()
    allow_from: tuple[str, ...] = ()
    group_allow_from: tuple[str, ...] = ()
    deny_from: tuple[str, ...] = ()
    allow_all_users: bool = False
    unauthorized_dm_behavior: str = ""
    allow_public_rooms: bool = False
    allow_room_mentions: bool = False
    auto_thread: bool = True
    dm_auto_thread: bool = False
    dm_mention_threads: bool = False
    session_scope: SessionScope = "auto"
    ignore_user_patterns: tuple[str, ...] = ()
    process_notices: bool = False
    max_media_bytes: int = MEDIA_LIMIT
    max_message_length: int = MAX_TEXT
    room_identity_ttl_seconds: float = 60.0
    approval_timeout_seconds: Seconds | None = None
    approval_require_sender: bool = True

    @property
    def mode(self) -> Literal["off", "optional", "required"]:
        if self.e2ee_mode:
            return self.e2ee_mode
        return "optional" if self.encryption else "off"


_VARIABLES = (
    "homeserver",
    "user_id",
    "password",
    "device_id",
    "recovery_key",
    "recovery_key_output_file",
    "encryption",
    "e2ee_mode",
    "thread_require_mention",
    "free_response_rooms",
    "allowed_rooms",
    "allowed_users",
    "allow_all_users",
    "allow_public_rooms",
    "allow_room_mentions",
    "auto_thread",
    "dm_auto_thread",
    "dm_mention_threads",
    "session_scope",
    "ignore_user_patterns",
    "process_notices",
    "max_media_bytes",
    "max_message_length",
    "room_identity_ttl_seconds",
    "approval_timeout_seconds",
    "approval_require_sender",
)

MANIFEST = ChannelManifest(
    name="matrix",
    label="Matrix",
    factory="hermes.channels.matrix.channel:open_channel",
    caps=ChannelCapabilities(
        max_text=MAX_TEXT,
        send_seconds=320.0,  # longer than an upload may take
        groups=True,
        rate=10.0,
        chat_rate=2.0,
        # An event contains both text and HTML and is limited in bytes.
        unit=LengthUnit.BYTES,
        markup=Markup.HTML,
        edit=True,
        typing=True,
        reactions=True,
        threads=True,
        media_in=MediaLimits(
            image=MEDIA_LIMIT, audio=MEDIA_LIMIT, video=MEDIA_LIMIT, document=MEDIA_LIMIT
        ),
        media_out=MediaLimits(
            image=MEDIA_LIMIT, audio=MEDIA_LIMIT, video=MEDIA_LIMIT, document=MEDIA_LIMIT
        ),
        voice=True,
        mention_required=True,
        buttons=5,  # reactions to the post; each one is an event, which homeservers limit
        # Matrix has no command list, but `!help` is a command only if the channel knows it.
        native_commands=True,
        idempotent=True,
    ),
    enabled_by=("MATRIX_ACCESS_TOKEN", "MATRIX_PASSWORD"),
    options=MatrixOptions,
    variables={
        **{name: f"MATRIX_{name.upper()}" for name in _VARIABLES},
        "proxy_url": "MATRIX_PROXY",
    },
    extra="matrix",
    setup=ChannelSetup(
        check="hermes.channels.matrix.setup:check_account",
        variable="MATRIX_PASSWORD",
        secret="Password",  # noqa: S106 - what it is called
        questions=(
            SetupQuestion(
                "MATRIX_USER_ID", "The agent's full Matrix id, such as @agent:example.org"
            ),
            SetupQuestion("MATRIX_HOMESERVER", "Homeserver", default="https://{domain}"),
        ),
        steps=(
            "Register an account for the agent at a homeserver; it must not be your own.",
            "Have its full id (@agent:example.org) and its password ready.",
            "If it has no password, set MATRIX_ACCESS_TOKEN instead (docs/channels/matrix.md).",
        ),
        user_pattern=r"@[^:\s]+:\S+",
        user_id="a full Matrix id, such as @ann:example.org",
    ),
)
