"""Any text becomes a stanza that an XML parser and an independent reader of XEP-0393 show whole."""

from xml.etree.ElementTree import Element, fromstring, tostring

import pytest
from hypothesis import given, settings

from hermes.channels.xmpp import MANIFEST
from hermes.channels.xmpp.stanzas import CLIENT, STYLING, element, text_elements
from hermes.gateway.rendering.posts import compose_posts
from hermes.ports.channel import ChannelCapabilities
from hermes.schema.messages import Text
from support.rendered_texts import (
    DOCUMENTS,
    LONG_TEXTS,
    PARAGRAPHS,
    STYLED_WORDS,
    TEXTS,
    keeps,
    only_letters,
    paragraph_numbers,
    signs,
    with_limits,
)
from support.xmpp_styling import read_styling


def received(text: str, *, styled: bool = True) -> Element:
    """The message as it is read from the stream."""
    message = element(CLIENT, "message", type="chat")
    message.extend(text_elements(text, styled=styled))
    return fromstring(tostring(message))  # noqa: S314 - our own


def shown_body(text: str) -> str:
    return received(text).findtext(f"{{{CLIENT}}}body") or ""


def check_posts(text: str, caps: ChannelCapabilities) -> None:
    for post in compose_posts([Text(text)], caps, reserved=12):
        assert 0 < len(post.text) <= caps.max_text
        assert keeps(read_styling(shown_body(post.text)).text, post.plain)


@given(TEXTS, with_limits(MANIFEST.caps))
def test_messages_are_valid_and_keep_the_text(text: str, caps: ChannelCapabilities) -> None:
    check_posts(text, caps)


@pytest.mark.soak
@given(LONG_TEXTS, with_limits(MANIFEST.caps))
@settings(max_examples=1000)
def test_many_long_texts_are_valid_and_whole(text: str, caps: ChannelCapabilities) -> None:
    check_posts(text, caps)


@given(STYLED_WORDS | DOCUMENTS)
def test_no_sign_of_a_style_is_shown(text: str) -> None:
    for post in compose_posts([Text(text)], MANIFEST.caps):
        assert signs(read_styling(shown_body(post.text)).text) <= signs(post.plain)


@given(TEXTS)
def test_text_without_markup_asks_clients_to_find_none(text: str) -> None:
    message = received(text, styled=False)
    assert only_letters(message.findtext(f"{{{CLIENT}}}body") or "") == only_letters(text)
    assert message.find(f"{{{STYLING}}}unstyled") is not None
    assert received(text).find(f"{{{STYLING}}}unstyled") is None


@pytest.mark.slow
def test_text_of_100000_characters_is_cut_into_valid_messages() -> None:
    posts = compose_posts([Text(PARAGRAPHS)], MANIFEST.caps)
    shown = "".join(read_styling(shown_body(post.text)).text for post in posts)
    assert paragraph_numbers(shown) == [*range(2500)]


def test_markup_is_rendered_by_clients_as_intended() -> None:
    source = "**bold** *it* ~~gone~~ `code` a**b**c (**d**)\n\n```py\nx = 1\n```\n\n> said"
    (post,) = compose_posts([Text(source)], MANIFEST.caps)
    shown = read_styling(shown_body(post.text))
    assert shown.styles == (
        ("bold", "bold"), ("italic", "it"), ("strike", "gone"), ("code", "code"),
        ("block", "x = 1"), ("quote", ""),
    )  # fmt: skip
    assert "abc (d)" in shown.text
