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


def process_output(file: Path | None = None) -> ProcessOutput:
    return ProcessOutput(Redactor([SECRET]).redact, file)


def test_lines_are_whole_and_redacted(tmp_path: Path):
    output = process_output(tmp_path / "logs" / "proc_1.log")
    assert output.add(b"a\x1b[31mb\nkey canary-47") == "ab\n"
    assert output.add(b"11-secret\nrest") == "key [redacted]\n"
    assert output.text == "ab\nkey [redacted]\nrest"
    assert output.finish() == "rest"
    assert (tmp_path / "logs" / "proc_1.log").read_text() == output.text
    assert (tmp_path / "logs" / "proc_1.log").stat().st_mode & 0o777 == 0o600
    assert output.file == str(tmp_path / "logs" / "proc_1.log")


def test_prompt_without_newline_is_visible():
    output = process_output()
    output.add(b"Password: ")
    assert output.text == output.tail(100) == "Password: "


def test_memory_is_bounded_and_the_log_is_complete(tmp_path: Path):
    output = process_output(tmp_path / "proc_1.log")
    for start in range(0, 60_000, 100):
        output.add("".join(f"line {number}\n" for number in range(start, start + 100)).encode())
    assert MAX_KEPT <= len(output.text) < MAX_KEPT + 2_000
    assert output.text.endswith("line 59999\n")
    assert output.dropped == len((tmp_path / "proc_1.log").read_text()) - len(output.text)
    output.finish()
    assert read_log_tail(output.file, 11) == "line 59999\n"


def test_endless_line_is_bounded_and_redacted():
    output = process_output()
    for _ in range(40):
        output.add(b"x" * 1_000)
    output.add(SECRET[:9].encode())
    output.add(b"y")  # not the secret after all
    output.add(SECRET[:9].encode())
    output.add(SECRET[9:].encode() + b"\n")
    assert SECRET not in output.text
    assert output.text.count("x") == 40_000


def test_full_disk_loses_only_the_log(tmp_path: Path):
    (tmp_path / "logs").write_text("no folder")
    output = process_output(tmp_path / "logs" / "proc_1.log")
    assert output.add(b"hello\n") == "hello\n"
    assert (output.text, output.file) == ("hello\n", "")


@given(st.text(alphabet="ab\n", max_size=60), st.integers(1, 7))
def test_chunking_does_not_change_the_text(text: str, size: int):
    output = process_output()
    data = text.encode()
    for start in range(0, len(data), size):
        output.add(data[start : start + size])
    assert output.text == text
    assert output.tail(10) == text[-10:]


def test_old_logs_are_deleted_except_those_in_use(tmp_path: Path):
    for number in range(MAX_LOGS + 10):
        (tmp_path / f"proc_{number:03}.log").write_text("x")
    first = str(min(tmp_path.iterdir(), key=lambda file: (file.stat().st_mtime, file)))
    prune_logs(tmp_path, {first})
    left = set(map(str, tmp_path.iterdir()))
    assert first in left
    assert len(left) == MAX_LOGS + 1
