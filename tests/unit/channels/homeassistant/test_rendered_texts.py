"""Any text is cut into notifications; an independent reader of CommonMark shows it whole."""

import re

import pytest
from hypothesis import example, given, settings

from hermes.channels.homeassistant import MANIFEST
from hermes.channels.homeassistant.channel import notification_text
from hermes.gateway.rendering.posts import compose_posts
from hermes.ports.channel import ChannelCapabilities, Markup, Outbound
from hermes.schema.messages import Text
from support.commonmark import read_commonmark
from support.rendered_texts import (
    DOCUMENTS,
    LONG_TEXTS,
    PARAGRAPHS,
    TEXTS,
    only_letters,
    paragraph_numbers,
    with_limits,
    word_numbers,
)

LIMITS = with_limits(MANIFEST.caps, (200, 400))


def check_words(text: str, caps: ChannelCapabilities) -> None:
    """Each word is shown once and in order; those between fences stay there."""
    whole = read_commonmark(text)
    posts = compose_posts([Text(text)], caps, reserved=12)
    assert all(0 < len(post.text) <= caps.max_text for post in posts)
    shown = [read_commonmark(notification_text(post)) for post in posts]
    numbers = word_numbers("".join(one.text for one in shown))
    assert numbers == word_numbers(whole.text) == [*range(len(numbers))]
    assert word_numbers("".join(one.code for one in shown)) == word_numbers(whole.code)


@given(DOCUMENTS, LIMITS)
def test_notifications_show_every_word_as_it_was_meant(
    text: str, caps: ChannelCapabilities
) -> None:
    check_words(text, caps)


@given(TEXTS | LONG_TEXTS)
@example("Title\n---\nText\n===\n- \n-\n1.\n#\n    code\n\n\tcode\n>quote\n+ item")
def test_text_without_markup_is_shown_as_it_was_written(text: str) -> None:
    sent = notification_text(Outbound((Text(text),), markup=Markup.PLAIN))
    shown = read_commonmark(sent)
    assert not re.search(r"(?<!\\)(?:\\\\)*(?:<|&#?\w+;)", sent)
    assert only_letters(shown.text) == only_letters(text)
    assert shown.styles == []
    assert shown.code == ""


@pytest.mark.soak
@given(DOCUMENTS, LIMITS)
@settings(max_examples=2000)
def test_many_documents_show_every_word(text: str, caps: ChannelCapabilities) -> None:
    check_words(text, caps)


@pytest.mark.slow
def test_text_of_100000_characters_is_cut_into_notifications() -> None:
    posts = compose_posts([Text(PARAGRAPHS)], MANIFEST.caps)
    shown = "".join(read_commonmark(notification_text(post)).text for post in posts)
    assert paragraph_numbers(shown) == [*range(2500)]
