"""Any text becomes a mail that Python's mail and HTML parsers read; its text is whole."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from email import message_from_bytes
from email.policy import SMTP

import pytest
from hypothesis import given, settings

from hermes.channels.email import MANIFEST
from hermes.channels.email.outbound import MailComposer
from hermes.gateway.rendering.posts import compose_posts
from hermes.ports.channel import ChannelCapabilities, Outbound
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock
from support.rendered_texts import (
    LONG_TEXTS,
    PARAGRAPHS,
    TEXTS,
    keeps,
    only_letters,
    paragraph_numbers,
    with_limits,
)
from support.strict_html import TAGS, read_html

MAX_LINE = 998
"""RFC 5322: "Each line of characters MUST be no more than 998 characters, excluding the CRLF"."""
PAGE_TAGS: Mapping[str, AbstractSet[str]] = {
    **TAGS, "html": set(), "head": set(), "meta": {"charset"}, "body": {"style"},
}  # fmt: skip
ANN = Address("email", "ann@example.org")


def sent_mail(post: Outbound, to: Address = ANN, subject: str = "") -> tuple[str, str, str]:
    """The subject, the text and the text of the HTML part, from the bytes that are sent."""
    composed = MailComposer("hermes@example.org", FakeClock()).compose(to, post, subject)
    data = composed.as_bytes(policy=SMTP)
    assert b"\0" not in data
    lines = data.split(b"\r\n")
    assert not any(b"\r" in line or b"\n" in line for line in lines)
    assert max(map(len, lines)) <= MAX_LINE
    mail = message_from_bytes(data, policy=SMTP)
    assert not mail.defects
    assert not any(part.defects for part in mail.walk())
    plain = mail.get_body(("plain",))
    html = mail.get_body(("html",))
    assert plain is not None
    shown = read_html(html.get_content(), PAGE_TAGS) if html is not None else ""
    return str(mail["Subject"]), plain.get_content(), shown


def check_posts(text: str, caps: ChannelCapabilities) -> None:
    for post in compose_posts([Text(text)], caps, reserved=12):
        assert 0 < len(post.text) <= caps.max_text
        subject, plain, html = sent_mail(post)
        assert subject
        assert "".join(plain.split()) == "".join(post.plain.split())
        assert keeps(html, post.plain)


@given(TEXTS, with_limits(MANIFEST.caps))
def test_mails_are_valid_and_keep_the_text(text: str, caps: ChannelCapabilities) -> None:
    check_posts(text, caps)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@given(LONG_TEXTS, with_limits(MANIFEST.caps))
@settings(max_examples=1000)
def test_many_long_texts_are_valid_and_whole(text: str, caps: ChannelCapabilities) -> None:
    check_posts(text, caps)


@given(TEXTS)
def test_text_without_markup_and_any_subject_are_valid(text: str) -> None:
    thread = Address("email", "ann@example.org", "first@example.org")
    subject, plain, html = sent_mail(Outbound((Text(text),)), thread, text)
    assert subject.strip().startswith("Re: ")
    assert only_letters(f"Re{text}").startswith(only_letters(subject)) or not only_letters(text)
    assert only_letters(plain) == only_letters(text)
    assert not html


@pytest.mark.slow
def test_text_of_100000_characters_becomes_valid_mails() -> None:
    mails = [sent_mail(post) for post in compose_posts([Text(PARAGRAPHS)], MANIFEST.caps)]
    for shown in ("".join(plain for _, plain, _ in mails), "".join(html for *_, html in mails)):
        assert paragraph_numbers(shown) == [*range(2500)]
