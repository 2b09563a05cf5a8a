"""Output in chunks is cleaned like the whole, in bounded memory."""

import os
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.kit.files import surplus_files
from hermes.kit.redact import MASK, Redactor
from hermes.tools.terminal.output import OutputFiles
from hermes.tools.terminal.output_cleaner import StreamCleaner, strip_controls
from support.cases import cases

SECRET = "canary-4711-secret"
KEY = "-----BEGIN RSA PRIVATE KEY-----\n" + "c2VjcmV0\n" * 30 + "-----END RSA PRIVATE KEY-----\n"
_redactor = Redactor([SECRET])


def _clean(text: str) -> str:
    return _redactor.redact(strip_controls(text))


def _in_pieces(pieces: Iterable[str]) -> str:
    cleaner = StreamCleaner(_clean)
    return "".join([*(cleaner.add(piece) for piece in pieces), cleaner.finish()])


def _cut(text: str, size: int) -> list[str]:
    return [text[place : place + size] for place in range(0, len(text), size)]


WORDS = st.sampled_from(
    ["word", SECRET, "\n", "\r\n", "\r", "\a", "\x1b[31m", "\x1b]0;title\x07", "\x1b]8;;link\x1b\\",
     "\x1b(B", "\x1b7", "e\u0301", "\ufffd", " ", "[", "\x1b"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=30), st.integers(1, 7))
def test_chunks_are_cleaned_like_the_whole(words: list[str], size: int):
    text = "".join(words)
    assert _in_pieces(_cut(text, size)) == _clean(text)


@pytest.mark.parametrize("size", [1, 10, 1_000])
def test_private_key_is_redacted_wherever_it_is_cut(size: int):
    assert _in_pieces(_cut(f"before\n{KEY}after\n", size)) == _clean(f"before\n{KEY}after\n")


@pytest.mark.parametrize("key", [SECRET, "sk-" + "a1" * 40], ids=["known", "recognised"])
def test_endless_line_does_not_split_a_secret(key: str):
    line = f"{'x' * 990} {key} " * 100
    for size in (997, 5_003, 65_536):
        cleaned = _in_pieces(_cut(line, size))
        assert cleaned.count(MASK) == 100
        assert cleaned == _clean(line)


@cases("size", [500, 65_536])
@cases("line", ["c2VjcmV0\n", "x", "-----", "-----EN "])
def test_endless_private_key_is_cleaned_once(line: str, size: int):
    cleaned_sizes: list[int] = []

    def clean(text: str) -> str:
        cleaned_sizes.append(len(text))
        return _clean(text)

    text = "-----BEGIN PRIVATE KEY-----\n" + line * (1_000_000 // len(line))
    cleaner = StreamCleaner(clean)
    cleaned = "".join([*map(cleaner.add, _cut(text, size)), cleaner.finish()])
    assert cleaned == f"-----BEGIN PRIVATE KEY-----{MASK}"
    assert sum(cleaned_sizes) < 200_000


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 500, 65_536])
def test_output_after_a_long_private_key_is_kept(size: int):
    text = "a\n-----BEGIN PRIVATE KEY-----\n" + "c2VjcmV0\n" * 9_000 + "-----END x\nafter\n"
    assert _in_pieces(_cut(text, size)) == _clean(text)


def test_unredacted_private_key_is_not_dropped():
    text = "-----BEGIN PRIVATE KEY-----\n" + "c2VjcmV0\n" * 9_000
    cleaner = StreamCleaner(strip_controls)
    assert "".join([*map(cleaner.add, _cut(text, 500)), cleaner.finish()]) == text


ENDLESS = {
    "bells": ("", "\a"),
    "letters": ("", "x"),
    "carriage returns": ("", "\r"),
    "colours": ("", "\x1b[31m"),
    "combining characters": ("", "e\u0301"),
    "a title": ("\x1b]0;", "x"),
    "a sequence": ("\x1b[", "1;"),
    "a private key": ("-----BEGIN PRIVATE KEY-----", "x"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENDLESS)
def test_endless_sequences_are_not_kept_in_memory(kind: str):
    begin, shape = ENDLESS[kind]
    piece = shape * (30_000 // len(shape))
    cleaner = StreamCleaner(_clean)
    tracemalloc.start()
    try:
        cleaner.add(begin)
        for _ in range(20):
            cleaner.add(piece)
        used_memory = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used_memory < 20 * len(piece) / 2


@pytest.mark.slow
def test_size_of_the_cleaned_file_is_limited(tmp_path: Path):
    """Each of these characters takes three bytes after cleaning."""
    with OutputFiles(tmp_path).opened() as spill:
        assert spill is not None
        Path(spill.path).write_bytes(b"\a" * 23_000_000)
        kept = spill.keep(strip_controls).read_bytes()
    assert 64 << 20 < len(kept) < (64 << 20) + 100
    assert kept.endswith(b"\n[the rest was not kept]\n")


def test_only_the_newest_files_within_limits_are_kept(tmp_path: Path):
    files = [tmp_path / name for name in "abcdef"]
    for age, file in enumerate(files):
        file.write_bytes(b"0123456789")
        os.utime(file, (1_000 - age, 1_000 - age))
    assert [*surplus_files(files, 4, 1_000)] == files[4:]
    assert [*surplus_files(files, 10, 25)] == files[2:]
    assert [*surplus_files(files, 10, 1)] == files[1:]
