"""Parse a received mail, whose bytes anyone may have sent."""

import hashlib
import re
from collections.abc import Iterator
from email.headerregistry import Address as MailAddress
from email.headerregistry import AddressHeader
from email.message import EmailMessage, MIMEPart
from email.parser import BytesParser
from email.policy import EmailPolicy
from mimetypes import guess_extension
from typing import Any

from msgspec import Struct

from hermes.channels.email.automatic_mail import count_fields
from hermes.channels.email.quoted_text import SplitText, split_html, split_plain
from hermes.kit.text import one_line

MAX_ATTACHMENTS = 30
MAX_ID = 250
MAX_SUBJECT = 300
MAX_FIELD = 16_000
MAX_STRUCTURED_FIELD = 4_000
MAX_CONTENT = 1_000_000
"""Maximum characters of a text; much less is used."""
MAX_BOUNDARIES = 5_000
_MESSAGE_ID = re.compile(r"<([^<>\s]{1,998})>")
_REPLY_PREFIX = re.compile(
    r"\s*((re|aw|antw|sv|rép|res|fwd?|wg|tr)\s*(\[\d+\])?\s*:\s*)+", re.IGNORECASE
)
_NO_ATTACHMENTS = frozenset({"application/pgp-signature", "application/pkcs7-signature"})


class _BoundedPolicy(EmailPolicy):
    """Rejects large fields, which the standard library parses in quadratic time.

    A field whose parameters have an unknown encoding is read without them.
    """

    def header_fetch_parse(self, name: str, value: str) -> Any:
        is_structured = name.lower() == "from" or name.lower().startswith("content-")
        if len(value) > (MAX_STRUCTURED_FIELD if is_structured else MAX_FIELD):
            raise ValueError(f"the header {name} is too large")
        try:
            return super().header_fetch_parse(name, value)
        except UnicodeError:
            return super().header_fetch_parse(name, value.partition(";")[0])


_PARSER = BytesParser(policy=_BoundedPolicy(max_line_length=None))


class AttachedPart(Struct, frozen=True, kw_only=True):
    name: str
    media_type: str
    data: bytes


class ReceivedMail(Struct, frozen=True, kw_only=True):
    """`sender` is the address in `From`; `thread` the id of the first mail of its thread."""

    mail: EmailMessage
    sender: str
    sender_name: str
    message_id: str
    parent: str
    thread: str
    subject: str
    text: SplitText
    attachments: tuple[AttachedPart, ...]

    @property
    def is_reply(self) -> bool:
        return bool(self.parent)

    @property
    def key(self) -> str:
        """A key that stays the same when the mail arrives again; no other sender can produce it."""
        return _digest(f"{self.sender}\n{self.message_id}")[:40]

    @property
    def authentication_results(self) -> list[str]:
        return [str(header) for header in self.mail.get_all("Authentication-Results", [])]


def has_too_many_parts(data: bytes) -> bool:
    """Whether the parser would take too long; then the mail is not parsed."""
    return data.count(b"\n--") + data.count(b"\r--") > MAX_BOUNDARIES


def parse_mail(data: bytes) -> ReceivedMail | None:
    """Return the mail, or None if it has no single sender with a usable address."""
    mail = _PARSER.parsebytes(data)
    if not isinstance(mail, EmailMessage):
        raise TypeError("The policy makes other messages.")
    senders = _senders(mail) if count_fields(mail, "From") == 1 else []
    if len(senders) != 1 or not senders[0].username or not senders[0].domain:
        return None
    sender = senders[0].addr_spec.lower()
    if not sender.isprintable():
        # The address contains bytes that are not text, so it could not be answered.
        return None
    references = [
        *_MESSAGE_ID.findall(_header(mail, "References")),
        *_MESSAGE_ID.findall(_header(mail, "In-Reply-To")),
    ]
    match = _MESSAGE_ID.search(_header(mail, "Message-ID"))
    message_id = match[1] if match else f"{hashlib.sha256(data).hexdigest()[:40]}@no-message-id"
    return ReceivedMail(
        mail=mail,
        sender=sender,
        sender_name=one_line(senders[0].display_name, 80),
        message_id=message_id,
        parent=references[-1] if references else "",
        thread=thread_id([*references, message_id][0]),
        subject=one_line(_header(mail, "Subject"), MAX_SUBJECT),
        text=_text(mail),
        attachments=tuple(_attachments(mail)),
    )


def thread_id(message_id: str) -> str:
    """Return the id of a thread's first mail, or a hash if it is too long for a session's name."""
    if len(message_id) <= MAX_ID and message_id.isprintable():
        return message_id
    return _digest(message_id)


def bare_subject(subject: str) -> str:
    """Return the subject without `Re:` and similar prefixes."""
    return _REPLY_PREFIX.sub("", subject, count=1).strip()


def _digest(text: str) -> str:
    """Hash headers; they may contain surrogates for bytes that are not text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _header(mail: EmailMessage, name: str) -> str:
    value = mail.get(name)
    return "" if value is None else str(value)


def _senders(mail: EmailMessage) -> list[MailAddress]:
    """Return the addresses in `From`, as the standard library parses them."""
    headers = [header for header in mail.get_all("From", []) if isinstance(header, AddressHeader)]
    return [address for header in headers for address in header.addresses]


def _text(mail: EmailMessage) -> SplitText:
    body = mail.get_body(("plain", "html"))
    if body is None:
        return SplitText("", "")
    content = _content(body)
    if body.get_content_subtype() == "html":
        return split_html(content)
    html = mail.get_body(("html",))
    if not content.strip() and html is not None:
        return split_html(_content(html))
    return split_plain(content)


def _content(part: MIMEPart) -> str:
    data = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        return ""
    data = data[: 4 * MAX_CONTENT]
    try:
        text = data.decode(part.get_content_charset("utf-8"), "replace")
    except (LookupError, ValueError):
        # Unknown, or one that is not for texts, such as `idna`.
        text = data.decode("utf-8", "replace")
    return text[:MAX_CONTENT]


def _attachments(mail: EmailMessage) -> Iterator[AttachedPart]:
    bodies = [mail.get_body(("plain",)), mail.get_body(("html",))]
    found = 0
    for part in _leaves(mail):
        kind, name = part.get_content_type(), part.get_filename() or ""
        is_body = part.get_content_maintype() == "text" and not part.is_attachment() and not name
        if is_body or any(part is body for body in bodies) or kind in _NO_ATTACHMENTS:
            continue
        data = part.as_bytes() if kind == "message/rfc822" else part.get_payload(decode=True)
        if isinstance(data, bytes) and data and found < MAX_ATTACHMENTS:
            found += 1
            suffix = ".eml" if kind == "message/rfc822" else guess_extension(kind) or ""
            name = one_line(name, 120) or f"attachment-{found}{suffix}"
            yield AttachedPart(name=name, media_type=kind, data=data)


def _leaves(mail: EmailMessage) -> Iterator[MIMEPart]:
    """Yield the parts without subparts; an attached mail is one of them."""
    waiting: list[MIMEPart] = [mail]
    while waiting:
        part = waiting.pop()
        if part.is_multipart() and part.get_content_type() != "message/rfc822":
            waiting += reversed(list(part.iter_parts()))
        else:
            yield part
