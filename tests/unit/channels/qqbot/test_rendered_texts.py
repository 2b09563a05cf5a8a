"""Any text is shown whole in QQ's Markdown, and nothing in it calls people."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hermes.channels.qqbot import MANIFEST, MAX_TEXT
from hermes.channels.qqbot.objects import ChatKind
from hermes.channels.qqbot.outbound import Permissions, message_fields
from hermes.gateway.rendering.posts import compose_posts
from hermes.ports.channel import ChannelCapabilities, Choice, Choices, Markup, Outbound
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

CALLS = re.compile(r"<(?:qqbot-|@|#|emoji:)|@everyone", re.IGNORECASE)
TAGS = st.sampled_from(["<@123>", "@everyone", "<qqbot-at-user id=1 />", "<#5>", "<emoji:4>", ""])
ASKED = Choices((Choice("Yes", "q:1"), Choice("No", "q:2")))
LIMITS = with_limits(MANIFEST.caps, (200, 400))


def markdown(post: Outbound, may: Permissions) -> str:
    fields = message_fields(post, ChatKind.USER, may)["markdown"]
    assert isinstance(fields, dict)
    content = str(fields["content"])  # pyright: ignore[reportUnknownArgumentType]
    assert not CALLS.search(content)
    return content


def check_words(text: str, caps: ChannelCapabilities) -> None:
    whole = read_commonmark(text)
    posts = compose_posts([Text(text)], caps, reserved=12)
    assert all(0 < len(post.text) <= caps.max_text for post in posts)
    shown = [read_commonmark(markdown(post, Permissions())) for post in posts]
    numbers = word_numbers("".join(one.text for one in shown))
    assert numbers == word_numbers(whole.text) == [*range(len(numbers))]
    assert word_numbers("".join(one.code for one in shown)) == word_numbers(whole.code)


@given(DOCUMENTS, TAGS, LIMITS)
def test_posts_show_every_word_and_mention_no_one(
    text: str, tag: str, caps: ChannelCapabilities
) -> None:
    check_words(f"{text}\n\n{tag}", caps)


@pytest.mark.soak
@given(DOCUMENTS, TAGS, LIMITS)
@settings(max_examples=2000)
def test_many_documents_show_every_word(text: str, tag: str, caps: ChannelCapabilities) -> None:
    check_words(f"{text}\n\n{tag}", caps)


@given(TEXTS | LONG_TEXTS, TAGS)
@example("Title\n---\nText\n===\n- \n-\n1.\n#\n    code\n\n\tcode\n>quote\n+ item", "")
def test_text_without_markup_is_shown_as_it_was_written(text: str, tag: str) -> None:
    text = f"{text[:1000]}{tag}"
    content = markdown(Outbound((Text(text), ASKED)), Permissions())
    shown = read_commonmark(content)
    assert only_letters(shown.text) == only_letters(text)
    assert shown.styles == []
    assert shown.code == ""


@given(TEXTS, TAGS)
def test_text_without_markdown_permission_mentions_no_one(text: str, tag: str) -> None:
    post = Outbound((Text(f"{text} {tag}"),), markup=Markup.MARKDOWN)
    fields = message_fields(post, ChatKind.USER, Permissions(markdown=False))
    assert not CALLS.search(str(fields["content"]))
    assert only_letters(str(fields["content"])) == only_letters(f"{text} {tag}")


@pytest.mark.slow
def test_text_of_100000_characters_is_cut_into_valid_posts() -> None:
    posts = compose_posts([Text(PARAGRAPHS)], MANIFEST.caps)
    assert max(len(post.text) for post in posts) <= MAX_TEXT
    shown = "".join(read_commonmark(markdown(post, Permissions())).text for post in posts)
    assert paragraph_numbers(shown) == [*range(2500)]
