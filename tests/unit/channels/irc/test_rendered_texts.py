"""Any text is rendered into lines that an independent reader of IRC formatting shows whole."""

import pytest
from hypothesis import given, settings

from emulators.irc.formatting import MAX_LINE, read_line
from hermes.channels.irc import MANIFEST
from hermes.channels.irc.irc_line import format_line
from hermes.channels.irc.text_lines import room_for, text_lines
from hermes.gateway.rendering.posts import compose_posts
from hermes.ports.channel import ChannelCapabilities
from hermes.schema.messages import Text
from support.rendered_texts import (
    LONG_TEXTS,
    PARAGRAPHS,
    TEXTS,
    keeps,
    paragraph_numbers,
    with_limits,
)

SOURCE, TARGET = "hermes!hermes@host.example", "#a-room"


def shown_lines(text: str) -> list[str]:
    """What people in a room see of a post, read from the bytes that they get."""
    shown: list[str] = []
    for line in text_lines(text, room_for(SOURCE, TARGET)):
        data = f":{SOURCE} ".encode() + format_line("PRIVMSG", TARGET, line.text)
        assert len(data) <= MAX_LINE
        assert data.endswith(b"\r\n")
        head, _, output = data.decode().removesuffix("\r\n").partition(f"PRIVMSG {TARGET} :")
        assert head == f":{SOURCE} "
        shown.append(read_line(output).text)
    return shown


def check_posts(text: str, caps: ChannelCapabilities) -> None:
    for post in compose_posts([Text(text)], caps, reserved=12):
        assert 0 < len(post.text.encode()) <= caps.max_text
        assert keeps("".join(shown_lines(post.text)), post.plain)


@given(TEXTS, with_limits(MANIFEST.caps))
def test_lines_are_valid_and_keep_the_text(text: str, caps: ChannelCapabilities) -> None:
    check_posts(text, caps)


@pytest.mark.soak
@given(LONG_TEXTS, with_limits(MANIFEST.caps))
@settings(max_examples=1000)
def test_many_long_texts_are_valid_and_whole(text: str, caps: ChannelCapabilities) -> None:
    check_posts(text, caps)


@pytest.mark.slow
def test_text_of_100000_characters_is_cut_into_valid_lines() -> None:
    posts = compose_posts([Text(PARAGRAPHS)], MANIFEST.caps)
    shown = "\n".join(line for post in posts for line in shown_lines(post.text))
    assert paragraph_numbers(shown) == [*range(2500)]


def test_markup_is_rendered_by_clients_as_intended() -> None:
    source = "# Title\n\n**bold** *it* ~~gone~~ `code`"
    (post,) = compose_posts([Text(source)], MANIFEST.caps)
    styles = [read_line(line).styles for line in post.text.split("\n")]
    assert styles[0] == (("bold", "Title"),)
    assert styles[-1] == (("bold", "bold"), ("italic", "it"), ("strike", "gone"), ("code", "code"))


def test_codes_in_a_text_change_no_styles_and_hide_no_digits() -> None:
    (post,) = compose_posts([Text("\x0304,05 is \x02not\x0f red, `\x0312`")], MANIFEST.caps)
    shown = read_line(post.text)
    assert shown.text == "04,05 is not red, 12"
    assert shown.styles == (("code", "12"),)
