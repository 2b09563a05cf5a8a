"""Any text becomes messages without markup that Twilio takes; the text is whole."""

import pytest
from hypothesis import given, settings

from emulators.sms.segments import segments
from hermes.channels.sms import MANIFEST
from hermes.gateway.rendering.posts import compose_posts
from hermes.ports.channel import ChannelCapabilities
from hermes.schema.messages import Text
from support.rendered_texts import (
    DOCUMENTS,
    LONG_TEXTS,
    PARAGRAPHS,
    TEXTS,
    paragraph_numbers,
    with_limits,
    word_numbers,
)

MAX_UNITS = 1600
"""Twilio's error 21617: "The maximum allowable body text length is generally 1600 characters, but
some special characters such as emojis [...] will be counted as multiple characters"."""
MAX_SEGMENTS = 24


def check_posts(text: str, caps: ChannelCapabilities) -> None:
    for post in compose_posts([Text(text)], caps, reserved=12):
        assert post.text.strip()
        assert post.text == post.plain
        assert len(post.text.encode("utf-16-le")) // 2 <= min(caps.max_text, MAX_UNITS)
        assert segments(post.text) <= MAX_SEGMENTS


@given(TEXTS, with_limits(MANIFEST.caps))
def test_messages_fit(text: str, caps: ChannelCapabilities) -> None:
    check_posts(text, caps)


@given(DOCUMENTS)
def test_messages_have_every_word(text: str) -> None:
    posts = compose_posts([Text(text)], MANIFEST.caps)
    shown = word_numbers("\n".join(post.text for post in posts))
    assert shown == [*range(len(word_numbers(text)))]


@pytest.mark.soak
@given(LONG_TEXTS, with_limits(MANIFEST.caps))
@settings(max_examples=1000)
def test_many_long_texts_fit(text: str, caps: ChannelCapabilities) -> None:
    check_posts(text, caps)


@pytest.mark.slow
def test_text_of_100000_characters_is_cut_into_messages_that_fit() -> None:
    posts = compose_posts([Text(PARAGRAPHS)], MANIFEST.caps)
    assert max(segments(post.text) for post in posts) <= MAX_SEGMENTS
    assert paragraph_numbers("\n".join(post.text for post in posts)) == [*range(2500)]


def test_emoji_take_two_places() -> None:
    posts = compose_posts([Text("😀" * 1000)], MANIFEST.caps)
    assert [len(post.text) for post in posts] == [800, 200]
