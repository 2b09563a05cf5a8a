from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.kit.sse import SseEvent, SseReader, SseTooLong, frame

STREAM = (
    "\ufeffdata: one\n\n: a comment\n\nevent: note\nid: 7\ndata: two\ndata:  three\n\n"
    "data:no space\r\n\r\ndata: mac\r\rretry: 5\n\n\n\ndata: ä日\n\ndata: [DONE]"
).encode()
EVENTS = [
    SseEvent(b"one"),
    SseEvent(b"two\n three", "note", "7"),
    SseEvent(b"no space"),
    SseEvent(b"mac"),
    SseEvent("ä日".encode()),
    SseEvent(b"[DONE]"),
]


def read(pieces: list[bytes]) -> list[SseEvent]:
    reader = SseReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + reader.close()


def test_line_ends_comments_and_a_missing_last_blank_line():
    assert read([STREAM]) == EVENTS


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_result_does_not_depend_on_the_chunking(cuts: set[int]):
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read([STREAM[a:b] for a, b in pairwise(edges)]) == EVENTS


@given(st.lists(st.binary().filter(lambda data: b"\r" not in data and data != b"")))
def test_framed_payloads_are_read_back(payloads: list[bytes]):
    assert [e.data for e in read([frame(data) for data in payloads])] == payloads


def test_frame_has_event_and_id():
    assert frame(b"a\nb", event="note", id="3") == b"event: note\nid: 3\ndata: a\ndata: b\n\n"


def test_stream_without_line_ends_is_an_error():
    reader = SseReader(limit=100)
    assert reader.feed(b"data: " + b"x" * 90) == []
    with pytest.raises(SseTooLong, match="100 bytes"):
        reader.feed(b"x" * 20)
