"""Any text is rendered into posts that the emulator's own parser accepts, and the text survives."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulators.telegram.entities import parse_html, utf16_length
from hermes.channels.telegram import MANIFEST
from hermes.gateway.rendering.posts import compose_posts
from hermes.ports.channel import ChannelCapabilities
from hermes.schema.messages import Text
from support.rendered_texts import LONG_TEXTS, keeps, with_limits

PIECES = st.sampled_from(
    [
        "**bold**", "*it*", "~~gone~~", "`a < b`", "[link](https://x.org/?a=1&b=\"2\")", "<b>",
        "</i>", "&amp;", "```py\nif a < b:\n    pass\n```", "````\n```\n````", "> quote\n> more",
        "- one\n- two", "1. a\n   - b", "| a | b |\n|---|---|\n| 1 | 2 |", "# Title", "---", "👩‍👧",
        "שלום", "é" * 40, "x" * 300, "\n\n", "\n", " ", "<tg-spoiler>", "_", "*", "`", "<",
        "![image](https://x.org/a.png)",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=40), max_size=40).map("".join)


@given(TEXTS)
def test_posts_are_valid_and_keep_the_text(text: str) -> None:
    for post in compose_posts([Text(text)], MANIFEST.caps, reserved=12):
        shown, _ = parse_html(post.text)
        assert 0 < utf16_length(shown) <= MANIFEST.caps.max_text
        assert keeps(shown, post.plain)


@pytest.mark.slow
def test_long_text_is_cut_into_valid_posts() -> None:
    text = "\n\n".join(f"Paragraph {number} **bold** 👩‍👧 `x < {number}`" for number in range(2500))
    posts = compose_posts([Text(text)], MANIFEST.caps)
    shown = [parse_html(post.text)[0] for post in posts]
    assert max(map(utf16_length, shown)) <= MANIFEST.caps.max_text
    assert re.findall(r"Paragraph (\d+)", "".join(shown)) == [str(one) for one in range(2500)]


@pytest.mark.soak
@given(LONG_TEXTS, with_limits(MANIFEST.caps))
@settings(max_examples=1000)
def test_many_long_texts_are_valid_and_whole(text: str, caps: ChannelCapabilities) -> None:
    for post in compose_posts([Text(text)], caps, reserved=12):
        shown, _ = parse_html(post.text)
        assert 0 < utf16_length(shown) <= caps.max_text
        assert keeps(shown, post.plain)


def test_blocks_without_text_give_no_post() -> None:
    for text in ("> ```\n> ```", "> #", "```\n\n```"):
        assert compose_posts([Text(text)], MANIFEST.caps) == []
