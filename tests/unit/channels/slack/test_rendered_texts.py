"""Any text is rendered into posts that an independent reader of mrkdwn shows whole."""

import re
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulators.slack.blocks import BLOCK_SIZE, MAX_SIZE, problems, size
from emulators.slack.methods import MAX_TEXT, MAX_UPDATE
from emulators.slack.mrkdwn import read_mrkdwn, shown_text
from emulators.slack.state import EmulatedMessage
from hermes.channels.slack import MANIFEST, SlackOptions
from hermes.channels.slack.message_text import readable
from hermes.channels.slack.outbound import edited_message_fields, escape, new_message_fields
from hermes.gateway.rendering.posts import compose_posts
from hermes.ports.channel import Choice, Choices, Markup, Outbound
from hermes.schema.messages import Text
from support.rendered_texts import STYLED_WORDS, keeps, signs

PIECES = st.sampled_from(
    [
        "**bold**", "*it*", "~~gone~~", "`a < b`", "[link](https://x.org/?a=1&b=2|c)", "<b>",
        "__under__", "```py\nif a < b:\n    pass\n```", "````\n```\n````", "> quote\n> more",
        "- one\n- two", "1. a\n   - b", "| a | b |\n|---|---|\n| 1 | 2 |", "# Title", "---",
        "👩‍👧", "שלום", "é" * 40, "x" * 300, "\n\n", "\n", " ", "_", "*",
        "`", "<", ">", "&", "&amp;", "<@U123>", "<!channel>", "@everyone", "\\", "|",
        "https://x.org/a_b_c?d=1&e=2", "snake_case_name", "![image](https://x.org/a.png)",
        ":smile:", "[a](mailto:a@b.org)",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=40), max_size=25).map("".join)
OPTIONS = st.builds(SlackOptions, rich_blocks=st.booleans())


def as_message(fields: dict[str, object]) -> EmulatedMessage:
    """The message that Slack would show; its blocks must be valid."""
    decoded = msgspec.json.decode(msgspec.json.encode(fields))
    blocks = decoded.get("blocks") or []
    assert problems(blocks) == []
    assert size(blocks) + len(blocks) * BLOCK_SIZE <= MAX_SIZE
    assert decoded["text"]
    return EmulatedMessage({**decoded, "blocks": blocks}, [decoded["text"]])


LONG = ["word " * 900, "x" * 3500, "```\n" + "a < b\n" * 700 + "```", "> a & b\n" * 500]


@given(TEXTS, OPTIONS)
def test_posts_are_valid_and_keep_the_text(text: str, options: SlackOptions) -> None:
    check_posts(text, options)


@pytest.mark.slow
@pytest.mark.parametrize("rich_blocks", [False, True])
def test_long_texts_are_valid_and_whole(rich_blocks: bool) -> None:
    for first, second in pairwise(LONG):
        check_posts(f"{first}\n\n{second}", SlackOptions(rich_blocks=rich_blocks))


def check_posts(text: str, options: SlackOptions) -> None:
    for post in compose_posts([Text(text)], MANIFEST.caps, reserved=12):
        assert 0 < len(post.text) <= MANIFEST.caps.max_text
        sent = new_message_fields("C1", None, post, options)
        assert len(str(sent["text"])) <= MAX_TEXT
        changed = edited_message_fields("C1", "1.2", post, options)
        assert len(str(changed["text"])) <= MAX_UPDATE
        for fields in (sent, changed):
            assert keeps(shown_text(as_message(fields)), post.plain)


@given(TEXTS, OPTIONS)
def test_text_without_markup_is_shown_as_it_was_written(text: str, options: SlackOptions) -> None:
    post = Outbound((Text(text[:10_000]),), plain=text[:10_000])
    if not post.text.strip():
        return
    shown = shown_text(as_message(new_message_fields("C1", None, post, options)))
    assert "".join(shown.split()) == "".join(post.text.split())
    changed = as_message(edited_message_fields("C1", "1.2", post, options))
    assert "".join(shown_text(changed).split()) == "".join(post.text.split())


@given(TEXTS)
def test_question_with_buttons_keeps_its_text(text: str) -> None:
    choices = Choices(tuple(Choice(f"Choice {n}", f"q:{n}") for n in range(7)))
    for post in compose_posts([Text(f"{text} ?"), choices], MANIFEST.caps):
        message = as_message(new_message_fields("C1", "1.2", post, SlackOptions()))
        assert len(message.buttons()) == len(post.choices)
        assert keeps(shown_text(message), post.plain)


@given(STYLED_WORDS)
def test_no_sign_of_a_style_is_shown(text: str) -> None:
    for post in compose_posts([Text(text)], MANIFEST.caps):
        assert signs(read_mrkdwn(post.text).text) <= signs(post.plain)


@given(TEXTS)
def test_escaped_text_is_read_as_it_was_written(text: str) -> None:
    assert readable(escape(text), {}) == text


def test_markup_is_rendered_by_slack_as_intended() -> None:
    source = "**bold** *it* ~~gone~~ `a < b` [link](https://x.org/?a&b) <!here> __no__"
    (post,) = compose_posts([Text(source)], MANIFEST.caps)
    assert read_mrkdwn(post.text).styles == (
        ("bold", "bold"), ("italic", "it"), ("strike", "gone"), ("code", "a < b"),
        ("link", "https://x.org/?a&b"), ("bold", "no"),
    )  # fmt: skip


@pytest.mark.slow
def test_text_of_100000_characters_is_cut_into_valid_posts() -> None:
    text = "\n\n".join(f"Paragraph {number} **bold** 👩‍👧 `x < {number}`" for number in range(2500))
    posts = compose_posts([Text(text)], MANIFEST.caps)
    assert {post.markup for post in posts} == {Markup.SLACK}
    shown = [
        shown_text(as_message(edited_message_fields("C1", "1.2", post, SlackOptions())))
        for post in posts
    ]
    assert re.findall(r"Paragraph (\d+)", "".join(shown)) == [str(one) for one in range(2500)]
