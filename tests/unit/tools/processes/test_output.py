from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hermes.kit.redact import Redactor
from hermes.tools.processes.output import (
    MAX_KEPT,
    MAX_LOGS,
    ProcessOutput,
    prune_logs,
    read_log_tail,
)

SECRET = "canary-4711-secret"


def said_of(file: Path | None = None) -> ProcessOutput:
    return ProcessOutput(Redactor([SECRET]).redact, file)


def test_lines_come_out_whole_and_masked(tmp_path: Path):
    said = said_of(tmp_path / "logs" / "proc_1.log")
    assert said.add(b"a\x1b[31mb\nkey canary-47") == "ab\n"
    assert said.add(b"11-secret\nrest") == "key [redacted]\n"
    assert said.text == "ab\nkey [redacted]\nrest"
    assert said.finish() == "rest"
    assert (tmp_path / "logs" / "proc_1.log").read_text() == said.text
    assert (tmp_path / "logs" / "proc_1.log").stat().st_mode & 0o777 == 0o600
    assert said.file == str(tmp_path / "logs" / "proc_1.log")


def test_a_question_without_a_newline_can_be_read():
    said = said_of()
    said.add(b"Password: ")
    assert said.text == said.tail(100) == "Password: "


def test_memory_is_bounded_and_the_file_has_everything(tmp_path: Path):
    said = said_of(tmp_path / "proc_1.log")
    for start in range(0, 60_000, 100):
        said.add("".join(f"line {number}\n" for number in range(start, start + 100)).encode())
    assert MAX_KEPT <= len(said.text) < MAX_KEPT + 2_000
    assert said.text.endswith("line 59999\n")
    assert said.lost == len((tmp_path / "proc_1.log").read_text()) - len(said.text)
    said.finish()
    assert read_log_tail(said.file, 11) == "line 59999\n"


def test_a_line_without_end_is_bounded_and_no_secret_is_torn():
    said = said_of()
    for _ in range(40):
        said.add(b"x" * 1_000)
    said.add(SECRET[:9].encode())
    said.add(b"y")  # not the secret after all
    said.add(SECRET[:9].encode())
    said.add(SECRET[9:].encode() + b"\n")
    assert SECRET not in said.text
    assert said.text.count("x") == 40_000


def test_a_disk_that_refuses_costs_only_the_file(tmp_path: Path):
    (tmp_path / "logs").write_text("no folder")
    said = said_of(tmp_path / "logs" / "proc_1.log")
    assert said.add(b"hello\n") == "hello\n"
    assert (said.text, said.file) == ("hello\n", "")


@given(st.text(alphabet="ab\n", max_size=60), st.integers(1, 7))
def test_however_it_is_cut_the_text_is_the_same(text: str, size: int):
    said = said_of()
    data = text.encode()
    for start in range(0, len(data), size):
        said.add(data[start : start + size])
    assert said.text == text
    assert said.tail(10) == text[-10:]


def test_old_logs_go_but_those_in_use_stay(tmp_path: Path):
    for number in range(MAX_LOGS + 10):
        (tmp_path / f"proc_{number:03}.log").write_text("x")
    first = str(min(tmp_path.iterdir(), key=lambda file: (file.stat().st_mtime, file)))
    prune_logs(tmp_path, {first})
    left = set(map(str, tmp_path.iterdir()))
    assert first in left
    assert len(left) == MAX_LOGS + 1
