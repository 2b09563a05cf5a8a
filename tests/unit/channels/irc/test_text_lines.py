"""Texts are cut into lines that fit, without breaking characters or losing text."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.irc.text_lines import TextLine, room_for, text_lines, without_codes
from hermes.kit.graphemes import is_boundary


@given(text=st.text(), room=st.integers(100, 200))
def test_every_line_fits_and_nothing_is_lost(text: str, room: int) -> None:
    text = text.encode(errors="ignore").decode()
    lines = text_lines(text * 20, room)
    assert all(len(one.text.encode()) <= room for one in lines)
    assert not any(set(one.text) & set("\r\n\0\x01") for one in lines)
    joined = "".join(one.text if one.continues else f"\n{one.text}" for one in lines)[1:]
    styles = dict.fromkeys(map(ord, "\0\x01\x02\x11\x1d\x1e\x1f\x16"))
    expected = (text * 20).replace("\r\n", "\n").replace("\r", "\n")
    assert joined.translate(styles) == expected.translate(styles)


def test_long_line_is_cut_between_words() -> None:
    lines = text_lines("word " * 50, 103)
    assert {one.text.strip().rpartition(" ")[2] for one in lines} == {"word"}
    assert [one.continues for one in lines] == [False, True, True]


def test_family_is_not_cut() -> None:
    text = "👩‍👩‍👧‍👦" * 30
    at = 0
    for line in text_lines(text, 110):
        at += len(line.text)
        assert is_boundary(text, at)


def test_style_continues_on_the_next_line() -> None:
    first, second = text_lines(f"\x02{'bold ' * 30}\x02", 120)
    assert first.text.startswith("\x02")
    assert second.text.startswith("\x02")
    assert text_lines("a\nb", 100) == [TextLine("a"), TextLine("b")]


def test_line_limit_depends_on_sender_and_target() -> None:
    source = "hermes!hermes@host.example"
    assert len(f":{source} PRIVMSG #room :{'x' * room_for(source, '#room')}\r\n") == 512


def test_text_without_markup_keeps_the_digits_after_a_code() -> None:
    assert without_codes("\x0304,05red\x03 \x02bold\x0f") == "04,05red bold"
