"""Lines of the IRC protocol, read and written."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.irc.irc_line import IrcLine, fold_case, format_line, parse_line
from support.cases import cases


@cases(
    "data, line",
    [
        (b"PING :a b", IrcLine("PING", ("a b",))),
        (b":ann!a@h PRIVMSG #x ::-)", IrcLine("PRIVMSG", ("#x", ":-)"), "ann!a@h")),
        (b":s 005 me A=b C  :are set", IrcLine("005", ("me", "A=b", "C", "are set"), "s")),
        (b"@a=b\\:c\\sd\\\\;+x;e= :s NOTICE m :", IrcLine("NOTICE", ("m", ""), "s",
                                                     {"a": "b;c d\\", "+x": "", "e": ""})),
        (b":s PRIVMSG m :caf\xe9", IrcLine("PRIVMSG", ("m", "café"), "s")),
        (b":s privmsg m word", IrcLine("PRIVMSG", ("m", "word"), "s")),
        (b"", None),
        (b":only-a-source", None),
    ],
)  # fmt: skip
def test_line_is_read(data: bytes, line: IrcLine | None) -> None:
    assert parse_line(data) == line


@given(text=st.text(), tag=st.text())
def test_text_and_tags_survive_and_cannot_add_a_command(text: str, tag: str) -> None:
    text = text.encode(errors="ignore").decode()
    tag = tag.encode(errors="ignore").decode()
    data = format_line("PRIVMSG", "#x", text, tags={"t": tag})
    assert data.count(b"\n") == data.count(b"\r") == 1
    line = parse_line(data.removesuffix(b"\r\n"))
    assert line is not None
    assert line.last == text.translate({0: None, 10: " ", 13: " "})
    assert line.tags.get("t", "") == tag


@cases(
    "mapping, name, folded",
    [
        ("rfc1459", "Ann[]\\^", "ann{}|~"),
        ("ascii", "Ann[]", "ann[]"),
        ("", "A[", "a{"),
        ("precis", "STRASSE", "strasse"),
    ],
)
def test_names_are_compared_as_the_server_does(mapping: str, name: str, folded: str) -> None:
    assert fold_case(name, mapping) == folded
