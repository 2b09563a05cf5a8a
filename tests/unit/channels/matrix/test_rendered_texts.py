"""Any text becomes HTML that Matrix's rules allow; an independent reader shows it whole."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.channels.matrix import MANIFEST
from hermes.channels.matrix.outbound import text_content
from hermes.channels.matrix.room_sender import MAX_ENCRYPTED, fitting
from hermes.gateway.rendering.posts import compose_posts
from hermes.ports.channel import ChannelCapabilities, Choice, Choices
from hermes.schema.messages import Text
from support.rendered_texts import LONG_TEXTS, keeps, with_limits
from support.strict_html import read_html

PIECES = st.sampled_from(
    [
        "**bold**", "*it*", "~~gone~~", "`a < b`", "[link](https://x.org/?a=1&b=2)", "<b>",
        "<script>alert(1)</script>", "[x](javascript:alert(1))", "<img src=x onerror=y>",
        "```py\nif a < b:\n    pass\n```", "````\n```\n````", "> quote\n> more", "- one\n- two",
        "1. a\n   - b", "| a | b |\n|---|---|\n| 1 | 2 |", "# Title", "---", "👩‍👧", "שלום",
        "é" * 40, "x" * 300, "\n\n", "\n", " ", "_", "*", "`", "<", "&amp;", '"', "\\",
        "@ann:example.org", "![image](https://x.org/a.png)", "[a](data:text/html,x)",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=40), max_size=40).map("".join)


@given(TEXTS)
def test_html_is_allowed_and_keeps_the_text(text: str) -> None:
    for post in compose_posts([Text(text)], MANIFEST.caps, reserved=12):
        assert 0 < len(post.text.encode()) <= MANIFEST.caps.max_text
        content = text_content(post, ())
        html = str(content.get("formatted_body", ""))
        assert not html or keeps(read_html(html), post.plain)


@given(TEXTS, st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=5))
def test_choices_are_explained_below_the_text(text: str, labels: list[str]) -> None:
    choices = Choices(tuple(Choice(label, f"q:{label}", "✅") for label in labels))
    posts = compose_posts([Text(text), choices], MANIFEST.caps, reserved=12)
    for post in posts:
        content = text_content(post, ())
        body, html = str(content["body"]), str(content.get("formatted_body", ""))
        assert not html or keeps(read_html(html), body)
        assert body.count("✅") >= len(post.choices)


def test_text_of_100000_characters_becomes_valid_events() -> None:
    text = "".join(f"**{n}** <b> `c` 👩‍👧 é [link](https://x.org/{n})\n" for n in range(2500))
    assert len(text) > 100_000
    posts = compose_posts([Text(text)], MANIFEST.caps)
    for post in posts:
        assert 0 < len(post.text.encode()) <= MANIFEST.caps.max_text
        content = text_content(post, ())
        assert content == fitting(content, MAX_ENCRYPTED)
        assert keeps(read_html(str(content["formatted_body"])), post.plain)
    assert "".join(post.plain for post in posts).count("👩‍👧") == 2500


@pytest.mark.soak
@given(LONG_TEXTS, with_limits(MANIFEST.caps))
@settings(max_examples=1000)
def test_many_long_texts_are_valid_and_whole(text: str, caps: ChannelCapabilities) -> None:
    for post in compose_posts([Text(text)], caps, reserved=12):
        assert 0 < len(post.text.encode()) <= caps.max_text
        html = str(text_content(post, ()).get("formatted_body", ""))
        assert not html or keeps(read_html(html), post.plain)
