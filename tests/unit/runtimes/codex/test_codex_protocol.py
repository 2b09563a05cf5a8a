"""Decoding of lines from a process: any chunking, length and content."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.runtimes.codex.protocol import (
    LineSplitter,
    decode_message,
    encode_line,
)
from support.cases import cases


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces: list[bytes] = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


@given(
    st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b""))),
    st.lists(st.integers(0, 10)),
)
def test_lines_do_not_depend_on_the_chunking(given_lines: list[bytes], sizes: list[int]) -> None:
    data = b"".join(line + b"\n" for line in given_lines)
    lines = LineSplitter()
    came = [line for piece in cut(data, sizes) for line in lines.feed(piece)]
    assert came == [line for line in given_lines if line.strip()]


@given(st.lists(st.integers(0, 40)), st.lists(st.integers(1, 7)))
def test_only_too_long_lines_are_dropped(lengths: list[int], sizes: list[int]) -> None:
    data = b"".join(b"x" * length + b"\n" for length in lengths)
    lines = LineSplitter(longest=20)
    came = [len(line) for piece in cut(data, sizes) for line in lines.feed(piece)]
    assert came == [length for length in lengths if 0 < length <= 20]
    assert lines.dropped == sum(length > 20 for length in lengths)


@given(st.binary(max_size=200))
def test_any_line_is_handled(line: bytes) -> None:
    message = decode_message(line)
    assert message is None or message.method or message.id is not None


@cases("line", [b"[" * 5000, b"{}", b"null", b'{"id":null}', b'{"method":5}'])
def test_invalid_message_is_none(line: bytes) -> None:
    assert decode_message(line) is None


def test_encoded_messages_can_be_decoded() -> None:
    request = decode_message(
        encode_line({"id": 1, "method": "turn/start", "params": {"threadId": "th"}})
    )
    assert request is not None
    assert (request.id, request.method, request.thread) == (1, "turn/start", "th")
    answered = decode_message(encode_line({"id": "a", "result": {"ok": True}}))
    assert answered is not None
    assert (answered.id, answered.error) == ("a", None)
    refused = decode_message(encode_line({"id": 2, "error": {"code": -32601, "message": "no"}}))
    assert refused is not None
    assert refused.error is not None
    assert (refused.error.code, refused.error.message) == (-32601, "no")
