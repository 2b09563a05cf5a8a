"""Any text becomes plain text with ranges of styles that an independent reader accepts."""

import pytest
from hypothesis import example, given, settings

from emulators.signal.styles import styled_parts
from emulators.telegram.entities import parse_html, utf16_length
from hermes.channels.signal import MANIFEST
from hermes.channels.signal.text_styles import styled_text
from hermes.gateway.rendering.posts import compose_posts
from hermes.ports.channel import ChannelCapabilities
from hermes.schema.messages import Text
from support.rendered_texts import (
    LONG_TEXTS,
    PARAGRAPHS,
    TEXTS,
    keeps,
    only_letters,
    paragraph_numbers,
    with_limits,
    without_links,
)

NAMES = {
    "bold": "BOLD", "italic": "ITALIC", "strikethrough": "STRIKETHROUGH", "code": "MONOSPACE",
    "pre": "MONOSPACE",
}  # fmt: skip


def check_posts(text: str, caps: ChannelCapabilities) -> None:
    for post in compose_posts([Text(text)], caps, reserved=12):
        shown, styles = styled_text(post.text)
        assert 0 < utf16_length(shown) <= caps.max_text
        assert keeps(shown, post.plain)
        source, entities = parse_html(post.text)
        parts = styled_parts(shown, styles)
        found = {(style, only_letters(without_links(part))) for style, part in parts}
        # An address may be followed by a word at once; what is one is known from the source.
        for url in {one.url for one in entities if one.url}:
            parts = [(style, part.replace(f" ({url})", "")) for style, part in parts]
        found |= {(style, only_letters(part)) for style, part in parts}
        units = source.encode("utf-16-le")
        for one in entities:
            part = units[2 * one.offset : 2 * (one.offset + one.length)].decode("utf-16-le")
            assert one.type not in NAMES or (NAMES[one.type], only_letters(part)) in found


@example("# **a**![image](https://x.org/a.png)0)", MANIFEST.caps)
@given(TEXTS, with_limits(MANIFEST.caps))
def test_ranges_are_valid_and_the_text_is_whole(text: str, caps: ChannelCapabilities) -> None:
    check_posts(text, caps)


@pytest.mark.soak
@given(LONG_TEXTS, with_limits(MANIFEST.caps))
@settings(max_examples=1000)
def test_many_long_texts_are_valid_and_whole(text: str, caps: ChannelCapabilities) -> None:
    check_posts(text, caps)


@pytest.mark.slow
def test_text_of_100000_characters_is_cut_into_valid_posts() -> None:
    shown = [styled_text(post.text) for post in compose_posts([Text(PARAGRAPHS)], MANIFEST.caps)]
    assert paragraph_numbers("".join(text for text, _ in shown)) == [*range(2500)]
    assert sum(len(styled_parts(*one)) for one in shown) == 2 * 2500


def test_styles_in_a_quote_are_at_their_words() -> None:
    (post,) = compose_posts([Text("> 👩 **bold**\n> *it*\n\n`code`")], MANIFEST.caps)
    text, styles = styled_text(post.text)
    assert text == "> 👩 bold\n> it\n\ncode"
    assert styled_parts(text, styles) == [
        ("BOLD", "bold"), ("ITALIC", "it"), ("MONOSPACE", "code"),
    ]  # fmt: skip
