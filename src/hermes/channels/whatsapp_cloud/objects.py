"""Objects of webhook calls and of the Graph API, with the fields that the channel reads."""

from msgspec import Raw, Struct, field


class MediaObject(Struct, frozen=True, kw_only=True):
    id: str = ""
    mime_type: str = ""
    caption: str = ""
    filename: str = ""
    voice: bool = False


class TextObject(Struct, frozen=True):
    body: str = ""


class Reply(Struct, frozen=True):
    """A pressed button or a chosen row."""

    id: str = ""
    title: str = ""


class Interactive(Struct, frozen=True, kw_only=True):
    button_reply: Reply | None = None
    list_reply: Reply | None = None


class TemplateButton(Struct, frozen=True, kw_only=True):
    """A button of a template, which someone else may have sent."""

    text: str = ""


class Reaction(Struct, frozen=True, kw_only=True):
    message_id: str
    emoji: str = ""


class Location(Struct, frozen=True, kw_only=True):
    latitude: float = 0.0
    longitude: float = 0.0
    name: str = ""
    address: str = ""


class Context(Struct, frozen=True, kw_only=True):
    """The message that this one replies to."""

    id: str = ""


class Message(Struct, frozen=True, kw_only=True):
    """A person's message; `type` names the field that is set."""

    id: str
    type: str
    from_: str = field(default="", name="from")
    timestamp: str = ""
    text: TextObject | None = None
    image: MediaObject | None = None
    audio: MediaObject | None = None
    video: MediaObject | None = None
    document: MediaObject | None = None
    sticker: MediaObject | None = None
    interactive: Interactive | None = None
    button: TemplateButton | None = None
    reaction: Reaction | None = None
    location: Location | None = None
    context: Context | None = None


class Profile(Struct, frozen=True):
    name: str = ""


class Contact(Struct, frozen=True, kw_only=True):
    wa_id: str = ""
    profile: Profile = Profile()


class Failure(Struct, frozen=True, kw_only=True):
    code: int = 0
    title: str = ""


class Status(Struct, frozen=True, kw_only=True):
    """The delivery status of a post: sent, delivered, read or failed."""

    id: str = ""
    status: str = ""
    recipient_id: str = ""
    errors: tuple[Failure, ...] = ()


class Metadata(Struct, frozen=True):
    phone_number_id: str = ""


class Value(Struct, frozen=True, kw_only=True):
    """Messages and statuses are decoded one by one: one may be unreadable."""

    metadata: Metadata = Metadata()
    contacts: tuple[Contact, ...] = ()
    messages: tuple[Raw, ...] = ()
    statuses: tuple[Raw, ...] = ()


class Change(Struct, frozen=True, kw_only=True):
    field: str = ""
    value: Value = Value()


class Entry(Struct, frozen=True):
    changes: tuple[Change, ...] = ()


class Notification(Struct, frozen=True):
    """The body of a webhook call."""

    entry: tuple[Entry, ...] = ()
