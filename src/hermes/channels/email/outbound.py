"""Turn posts into mails, whose ids are the same when a post is sent again."""

import hashlib
import re
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from hermes.channels.email.automatic_mail import LOOP_HEADER
from hermes.channels.email.sender_check import domain_of
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.channel import Markup, NotSent, Outbound
from hermes.schema.scope import Address

MAX_TITLE = 70
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Servers refuse mails with some of these, and a subject may come from a received mail."""
PAGE = (
    '<!DOCTYPE html>\n<html><head><meta charset="utf-8"></head>'
    '<body style="font-family: sans-serif">\n{}\n</body></html>\n'
)


class MailComposer:
    """Composes mails from the address `own`."""

    def __init__(self, own: str, clock: Clock) -> None:
        self._own = own
        self._clock = clock

    def compose(self, to: Address, post: Outbound, subject: str) -> EmailMessage:
        """Compose a mail without files; `subject` is that of the thread, if there is one."""
        mail = EmailMessage(policy=SMTP)
        mail["From"] = self._own
        mail["To"] = _recipient(to)
        title = one_line(_without_controls(subject), 190)
        mail["Subject"] = _subject(to, post, title)
        mail["Date"] = format_datetime(self._clock.now())
        mail["Message-ID"] = f"<{self._message_id(post.key)}>"
        if to.thread:
            parent = post.reply_to or to.thread
            mail["In-Reply-To"] = f"<{parent}>"
            mail["References"] = " ".join(
                f"<{message}>" for message in dict.fromkeys((to.thread, parent))
            )
        elif post.reply_to:
            mail["In-Reply-To"] = mail["References"] = f"<{post.reply_to}>"
        mail["Auto-Submitted"] = "auto-replied" if to.thread else "auto-generated"
        mail[LOOP_HEADER] = self._own
        is_html = post.markup is Markup.HTML
        plain = (post.plain if is_html else post.text) or post.plain
        mail.set_content(_without_controls(plain), cte=None)
        if is_html and post.text:
            mail.add_alternative(PAGE.format(post.text), subtype="html")
        return mail

    def _message_id(self, key: str) -> str:
        name = (
            hashlib.sha256(f"{self._own}\n{key}".encode()).hexdigest()[:32]
            if key
            else new_id("mail")
        )
        return f"hermes.{name}@{domain_of(self._own)}"


def attach(mail: EmailMessage, data: bytes, media_type: str, name: str) -> None:
    main, _, sub = media_type.partition(";")[0].partition("/")
    if not main or not sub or main in {"multipart", "message"}:
        main, sub = "application", "octet-stream"
    mail.add_attachment(data, maintype=main, subtype=sub, filename=one_line(name, 120) or "file")


def _without_controls(text: str) -> str:
    return _CONTROLS.sub("", text)


def _recipient(to: Address) -> str:
    if "@" not in to.chat or not to.chat.isprintable() or set(to.chat) & set(' ,;<>"'):
        raise NotSent(f"{to.chat!r} is not an e-mail address.")
    if not to.chat.isascii():
        raise NotSent(f"{to.chat!r} is not supported: the address must be ASCII.")
    return to.chat


def _subject(to: Address, post: Outbound, subject: str) -> str:
    if to.thread:
        return f"Re: {subject}" if subject else "Re: your email"
    named = post.attachments[0].media.name if post.attachments else ""
    plain = _without_controls(post.plain)
    lines = [line.strip("#*_ ") for line in plain.splitlines()]
    first = next(filter(None, lines), "") or _without_controls(named) or "A message"
    return one_line(first, MAX_TITLE)
