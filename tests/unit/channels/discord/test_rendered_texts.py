"""Any text is rendered into posts that an independent reader of Discord's Markdown shows whole."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulators.discord.markdown import read_markdown
from emulators.discord.validation import MAX_CONTENT
from hermes.channels.discord import MANIFEST, AllowedMentions
from hermes.channels.discord.outbound import escape, message_fields
from hermes.gateway.rendering.posts import compose_posts
from hermes.schema.messages import Text
from support.rendered_texts import keeps

PIECES = st.sampled_from(
    [
        "**bold**", "*it*", "~~gone~~", "`a < b`", "[link](https://x.org/?a=1&b=2)", "<b>",
        "||hidden||", "__under__", "```py\nif a < b:\n    pass\n```", "````\n```\n````",
        "> quote\n> more", "- one\n- two", "1. a\n   - b", "| a | b |\n|---|---|\n| 1 | 2 |",
        "# Title", "-# small", "---", "👩‍👧", "שלום", "é" * 40, "x" * 300, "\n\n", "\n", " ", "_",
        "*", "`", "<", "<@123>", "@everyone", "\\", "https://x.org/a_b_c", "snake_case_name",
        "![image](https://x.org/a.png)", ":smile:",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=40), max_size=40).map("".join)
PLAIN_TEXTS = st.lists(PIECES | st.text(max_size=40), max_size=12).map("".join)


@given(TEXTS)
def test_posts_are_valid_and_keep_the_text(text: str) -> None:
    for post in compose_posts([Text(text)], MANIFEST.caps, reserved=12):
        shown = read_markdown(post.text).text
        assert 0 < len(post.text) <= MAX_CONTENT
        assert keeps(shown, post.plain)


@given(PLAIN_TEXTS)
def test_escaped_text_is_shown_as_it_was_written(text: str) -> None:
    shown = read_markdown(escape(text))
    assert shown.text == text
    assert shown.styles == ()


@pytest.mark.slow
def test_long_text_is_cut_into_valid_posts() -> None:
    text = "\n\n".join(f"Paragraph {number} **bold** 👩‍👧 `x < {number}`" for number in range(2500))
    posts = compose_posts([Text(text)], MANIFEST.caps)
    shown = [read_markdown(post.text).text for post in posts]
    assert max(len(post.text) for post in posts) <= MAX_CONTENT
    assert re.findall(r"Paragraph (\d+)", "".join(shown)) == [str(one) for one in range(2500)]


def test_markup_is_rendered_by_discord_as_intended() -> None:
    source = "**bold** *it* ~~gone~~ `code` [link](https://x.org) __no__"
    (post,) = compose_posts([Text(source)], MANIFEST.caps)
    assert read_markdown(post.text).styles == (
        ("bold", "bold"), ("italic", "it"), ("strike", "gone"), ("code", "code"),
        ("link", "https://x.org"), ("bold", "no"),
    )  # fmt: skip


def test_posts_and_edits_notify_no_groups_of_people() -> None:
    (post,) = compose_posts([Text("@everyone <@&5> <@7>")], MANIFEST.caps)
    allowed = message_fields(post, AllowedMentions())["allowed_mentions"]
    assert allowed == {"parse": ["users"], "replied_user": True}


def test_adjacent_styles_are_separated() -> None:
    (post,) = compose_posts([Text("**one***two* __**three**__")], MANIFEST.caps)
    shown = read_markdown(post.text)
    assert shown.text.replace("\u200b", "") == "onetwo three"
    assert shown.styles == (("bold", "one"), ("italic", "two"), ("bold", "three"))
