"""Any text is rendered into messages that an independent reader of WhatsApp's signs shows whole."""

import pytest
from hypothesis import given, settings

from emulators.whatsapp_cloud.formatting import read_formatting
from emulators.whatsapp_cloud.server import MAX_TEXT
from hermes.channels.whatsapp_cloud import MANIFEST
from hermes.channels.whatsapp_cloud.outbound import message_fields
from hermes.gateway.rendering.posts import compose_posts
from hermes.ports.channel import ChannelCapabilities, Outbound
from hermes.schema.messages import Text
from support.rendered_texts import (
    DOCUMENTS,
    LONG_TEXTS,
    PARAGRAPHS,
    STYLED_WORDS,
    TEXTS,
    keeps,
    paragraph_numbers,
    signs,
    with_limits,
)


def body(post: Outbound) -> str:
    fields = message_fields("15551234567", post)
    text = fields["text"]
    assert isinstance(text, dict)
    return str(text["body"])  # pyright: ignore[reportUnknownArgumentType]


def check_posts(text: str, caps: ChannelCapabilities) -> None:
    for post in compose_posts([Text(text)], caps, reserved=12):
        sent = body(post)
        assert 0 < len(sent) <= min(caps.max_text, MAX_TEXT)
        assert keeps(read_formatting(sent).text, post.plain)


@given(TEXTS, with_limits(MANIFEST.caps))
def test_messages_are_valid_and_keep_the_text(text: str, caps: ChannelCapabilities) -> None:
    check_posts(text, caps)


@pytest.mark.soak
@given(LONG_TEXTS, with_limits(MANIFEST.caps))
@settings(max_examples=1000)
def test_many_long_texts_are_valid_and_whole(text: str, caps: ChannelCapabilities) -> None:
    check_posts(text, caps)


@pytest.mark.slow
def test_text_of_100000_characters_is_cut_into_valid_messages() -> None:
    posts = compose_posts([Text(PARAGRAPHS)], MANIFEST.caps)
    shown = "".join(read_formatting(body(post)).text for post in posts)
    assert paragraph_numbers(shown) == [*range(2500)]


@given(STYLED_WORDS | DOCUMENTS)
def test_no_sign_of_a_style_is_shown(text: str) -> None:
    for post in compose_posts([Text(text)], MANIFEST.caps):
        assert signs(read_formatting(body(post)).text) <= signs(post.plain)


def test_markup_is_rendered_by_whatsapp_as_intended() -> None:
    source = "# Title\n\n**bold** *it* ~~gone~~ `code` a**b**c\n\n```py\nx = 1\n```"
    (post,) = compose_posts([Text(source)], MANIFEST.caps)
    shown = read_formatting(body(post))
    assert shown.styles == (
        ("bold", "Title"), ("bold", "bold"), ("italic", "it"), ("strike", "gone"),
        ("code", "code"), ("code", "x = 1"),
    )  # fmt: skip
    assert "abc" in shown.text
