import os
from io import BufferedReader, BytesIO, FileIO
from pathlib import Path
from threading import Event

import anyio
import anyio.to_thread
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec import Raw

from hermes.kit.clock import SystemClock
from hermes.kit.redact import Redactor
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Scope
from hermes.tools.catalog import build_tools
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.files.documents import DocumentReader
from hermes.tools.files.editor import SeenFiles
from hermes.tools.files.pages import BLOCK, MASK_WINDOW, MAX_COUNTED, MAX_TAIL_SCAN, read_page
from hermes.tools.files.read import ReadDeps, ReadFile
from hermes.tools.paths import SessionPaths
from hermes.tools.provenance.file_provenance import FileProvenance
from hermes.tools.thread_runner import ThreadRunner
from hermes.tools.tool_io import OutputLimits

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def text_of(output: ToolOutput) -> str:
    return "".join(part.text for part in output.parts if isinstance(part, Text))


async def silent(_: str) -> None:
    raise AssertionError


async def test_lines_are_numbered_without_a_phantom_last_one(call, workspace: Path):
    (workspace / "a.txt").write_text("one\ntwo\nthree\n")
    answer = await call("read_file", path="a.txt")
    assert answer.json == snapshot(
        {
            "content": "1|one\n2|two\n3|three",
            "total_lines": 3,
            "file_size": 14,
            "truncated": False,
            "is_binary": False,
            "is_image": False,
        }
    )


@pytest.mark.parametrize(
    ("data", "content", "total"),
    [
        (b"", "", 0),
        (b"\n", "1|", 1),
        (b"a", "1|a", 1),
        (b"a\n\nb", "1|a\n2|\n3|b", 3),
        (b"a\r\nb\r\n", "1|a\n2|b", 2),
        (b"\xef\xbb\xbfmark\n", "1|mark", 1),
        ("\ufeffwide\näö\n".encode("utf-16-le"), "1|wide\n2|äö", 2),
        ("\ufeffwide\n".encode("utf-16-be"), "1|wide", 1),
        ("\ufeffx\ny".encode("utf-32-le"), "1|x\n2|y", 2),
        ("grün\n".encode("latin-1"), "1|grün", 1),
        ("a\u2028b\x0bc\n".encode(), "1|a\u2028b\x0bc", 1),
    ],
)
async def test_encodings_and_line_ends(
    call, workspace: Path, data: bytes, content: str, total: int
):
    (workspace / "f").write_bytes(data)
    answer = await call("read_file", path="f")
    assert (answer["content"], answer["total_lines"]) == (content, total)


async def test_encoding_other_than_utf8_is_named(call, workspace: Path):
    (workspace / "f").write_bytes(b"gr\xfcn")
    assert (await call("read_file", path="f"))["encoding"] == "latin-1"


async def test_page_names_the_next_offset(call, workspace: Path):
    (workspace / "f").write_text("".join(f"{n}\n" for n in range(1, 101)))
    answer = await call("read_file", path="f", offset=11, limit=2)
    assert (answer["content"], answer["truncated"]) == ("11|11\n12|12", True)
    assert answer["note"] == "88 lines left; continue with offset=13."
    answer = await call("read_file", path="f", offset=-2)
    assert answer["content"] == "99|99\n100|100"
    assert (await call("read_file", path="f", offset=0, limit=1))["content"] == "1|1"
    with pytest.raises(ToolError, match="the file has 100 lines"):
        await call("read_file", path="f", offset=101)


async def test_end_of_a_large_file_is_numbered_from_the_end(call, workspace: Path):
    line = b"x" * 99 + b"\n"
    with (workspace / "big").open("wb") as file:
        for _ in range(50):
            file.write(line * 10_000)
        file.write(b"the end")
    answer = await call("read_file", path="big", offset=-1)
    assert (answer["content"], answer["total_lines"]) == ("-1|the end", None)
    assert answer["note"] == "Too long to count its lines: they are numbered from the end."
    answer = await call("read_file", path="big", offset=-3, limit=2)
    assert (answer["content"][:6], answer["truncated"]) == ("-3|xxx", True)
    assert answer["note"].endswith("1 line left; continue with offset=-1.")
    answer = await call("read_file", path="big", offset=250_000, limit=1)
    assert answer["content"].startswith("250000|xxx")


async def test_page_size_is_limited(call, workspace: Path):
    (workspace / "wide").write_text(("y" * 1_500 + "\n") * 500)
    answer = await call("read_file", path="wide")
    assert len(answer["content"]) < 110_000
    assert "continue with offset=67" in answer["note"]


async def test_long_line_is_cut_but_counted(call, workspace: Path):
    (workspace / "min.js").write_text("é" * 100_000 + "\nnext\n")
    answer = await call("read_file", path="min.js")
    first, second = answer["content"].split("\n")
    assert first.startswith("1|" + "é" * 2_000 + " [… ")
    assert second == "2|next"
    assert "encoding" not in answer.json


async def test_secrets_are_masked_with_a_note(call, workspace: Path, secret: str):
    (workspace / "notes").write_text(f"key: {secret}\n")
    answer = await call("read_file", path="notes")
    assert answer["content"] == "1|key: [redacted]"
    assert answer["note"] == "Secrets in this text are masked: do not write it back."


async def test_image_is_returned_as_media(call, workspace: Path, deps):
    (workspace / "shot.png").write_bytes(PNG)
    answer = await call("read_file", path="shot.png")
    assert (answer["is_image"], answer["content"]) == (True, "")
    media = answer.output.parts[1]
    assert isinstance(media, Media)
    assert (media.media_type, media.name) == ("image/png", "shot.png")
    assert await deps.blobs.read(media.digest) == PNG


async def test_huge_image_is_refused(call, workspace: Path):
    (workspace / "huge.png").write_bytes(PNG)
    os.truncate(workspace / "huge.png", 20_000_001)
    with pytest.raises(ToolError, match=r"huge\.png has 20,000,001 bytes"):
        await call("read_file", path="huge.png")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("reaadme.md", "Did you mean .*/README.md?"),
        ("zzzzzz", "nothing of that name"),
        ("no/such/folder", "folder .*/no/such does not exist"),
        ("README.md/x", "does not exist"),
        (".", "is a folder with: README.md, bin, fifo, sub/"),
        ("bin", "binary file of 3 bytes"),
        ("fifo", "device, pipe or socket"),
        ("~/.hermes/.env", "belongs to Hermes"),
    ],
)
async def test_unreadable_path_is_explained(call, workspace: Path, path: str, message: str):
    (workspace / "README.md").write_text("x")
    (workspace / "sub").mkdir()
    (workspace / "bin").write_bytes(b"a\0b")
    os.mkfifo(workspace / "fifo")
    with pytest.raises(ToolError, match=message):
        await call("read_file", path=path)


async def test_second_read_returns_the_text_again(call, workspace: Path):
    (workspace / "f").write_text("x")
    first = await call("read_file", path="f")
    assert (await call("read_file", path="f")).json == first.json


@settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    text=st.text(st.sampled_from("ab\n\r"), max_size=60),
    offset=st.integers(1, 20),
    limit=st.integers(1, 20),
)
def test_page_is_a_slice_of_the_lines(tmp_path: Path, text: str, offset: int, limit: int):
    path = tmp_path / "f"
    path.write_bytes(text.encode())
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    with path.open("rb") as file:
        page = read_page(file, 100, offset, OutputLimits(lines=limit), str)
    assert page.total == len(lines)
    assert page.lines == [line.removesuffix("\r") for line in lines[offset - 1 :][:limit]]


@settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    text=st.text(st.sampled_from("ab\n\r"), max_size=60),
    back=st.integers(1, 20),
    limit=st.integers(1, 20),
)
def test_end_is_the_same_without_counting_lines(tmp_path: Path, text: str, back: int, limit: int):
    path = tmp_path / "f"
    path.write_bytes(text.encode())
    with path.open("rb") as file:
        size = len(text.encode())
        plain = read_page(file, size, -back, OutputLimits(lines=limit), str)
        page = read_page(file, size, -back, OutputLimits(lines=limit), str, 0)
    assert (page.lines, page.remaining) == (plain.lines, plain.remaining)
    assert page.total in {plain.total, None}
    assert page.first == (plain.first if page.total is not None else -back)


class CountingBytes(BytesIO):
    """Counts the bytes read from it."""

    amount = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.amount += len(data)
        return data

    def readline(self, size: int | None = -1, /) -> bytes:
        data = super().readline(size)
        self.amount += len(data)
        return data


def test_end_of_a_large_file_is_read_without_the_rest():
    data = (b"x" * 99 + b"\n") * (MAX_COUNTED // 100 + 2)
    file = CountingBytes(data)
    page = read_page(file, len(data), -1_000, OutputLimits(lines=1_000), str)
    assert (page.first, len(page.lines), page.remaining) == (-1_000, 1_000, 0)
    assert file.amount < 500_000


def test_end_of_a_very_long_line_is_found(tmp_path: Path):
    (tmp_path / "f").write_bytes(b"first\n" + b"x" * (3 * MASK_WINDOW) + b"\nlast")
    with (tmp_path / "f").open("rb") as file:
        page = read_page(file, 4 * MASK_WINDOW, -2, OutputLimits(lines=5), str, 0)
    assert (page.lines[1], page.first) == ("last", -2)


class CountingFile(FileIO):
    amount = 0

    def readinto(self, buffer, /) -> int | None:
        amount = super().readinto(buffer)
        self.amount += amount or 0
        return amount


SPARSE_SIZE = 4 * MAX_TAIL_SCAN


def sparse_file(path: Path, before: int, data: bytes) -> CountingFile:
    """Return a sparse file with data so many bytes before its end."""
    with path.open("wb") as file:
        file.write(b"first\n")
        file.truncate(SPARSE_SIZE)
        file.seek(SPARSE_SIZE - before)
        file.write(data)
    return CountingFile(path)


@pytest.mark.parametrize("end", [b"the last words", b"the last words\n"])
def test_line_beyond_the_scan_limit_shows_its_end(tmp_path: Path, end: bytes):
    raw = sparse_file(tmp_path / "f", len(end), end)
    with BufferedReader(raw) as file:
        page = read_page(file, SPARSE_SIZE, -10, OutputLimits(lines=100), str)
    assert (len(page.lines), page.first, page.total, page.remaining) == (1, -1, None, 0)
    assert page.lines[0].startswith("[… beginning left out]")
    assert page.lines[0].endswith("\0the last words")
    assert raw.amount < MAX_TAIL_SCAN + 4 * BLOCK


def test_lines_after_one_beyond_the_scan_limit_are_whole(tmp_path: Path):
    end = b"one\r\ntwo\nthree\n"
    with BufferedReader(sparse_file(tmp_path / "f", len(end), end)) as file:
        page = read_page(file, SPARSE_SIZE, -10, OutputLimits(lines=100), str)
    assert (page.lines[1:], page.first, page.remaining) == (["two", "three"], -3, 0)
    assert page.lines[0].endswith("\0one")


def test_line_at_the_scan_limit_is_whole(tmp_path: Path):
    with BufferedReader(sparse_file(tmp_path / "f", MAX_TAIL_SCAN + 6, b"\nwhole\nrest")) as file:
        page = read_page(file, SPARSE_SIZE, -10, OutputLimits(lines=100), str)
    assert (page.lines[0], page.first) == ("whole", -2)


def test_end_of_a_cut_line_shows_no_part_of_a_secret(tmp_path: Path):
    secret = "".join(f"{n:05}" for n in range(2_000))
    end = secret.encode() * 20
    with BufferedReader(sparse_file(tmp_path / "f", len(end), end)) as file:
        page = read_page(file, SPARSE_SIZE, -1, OutputLimits(lines=1), Redactor([secret]).redact)
    assert page.masked
    assert "0" not in page.lines[0]


@pytest.mark.parametrize("around", range(-2, 3))
def test_lines_are_found_across_blocks(tmp_path: Path, around: int):
    path = tmp_path / "f"
    path.write_bytes(b"\n" * (BLOCK + around) + b"here\nand there")
    with path.open("rb") as file:
        page = read_page(file, 2 * BLOCK, BLOCK + around + 1, OutputLimits(lines=2), str)
    assert page.lines == ["here", "and there"]
    assert page.total == BLOCK + around + 2


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("at", [0, 1_985, 1_995, 1_999, 2_000, 7_990, MASK_WINDOW - 9])
async def test_cut_of_a_long_line_never_shows_part_of_a_secret(
    call, workspace: Path, secret: str, at: int, wide: bool
):
    text = f"{'é' * at}{secret}{'b' * 200_000}\n"
    (workspace / "f").write_text(text, encoding="utf-16" if wide else "utf-8")
    answer = await call("read_file", path="f")
    shown = answer["content"].replace("[redacted]", "")
    assert not any(secret[n : n + 6] in shown for n in range(len(secret) - 5))
    assert ("masked" in answer.json.get("note", "")) == (at < 8_000 or wide)


async def test_line_full_of_secrets_shows_no_part_of_one(
    call, workspace: Path, deps: ToolCollaborators, scope: Scope
):
    """Redaction shortens the line, which moves its end into view."""
    secret = "".join(f"{n:05}" for n in range(2_000))
    (workspace / "f").write_text(secret * 20)
    tool = build_tools(msgspec.structs.replace(deps, redact=Redactor([secret]).redact))["read_file"]
    output = await tool.run(Raw(b'{"path":"f"}'), ToolContext(scope, "c", silent))
    assert "0" not in msgspec.json.decode(text_of(output))["content"].split(" […")[0]


@pytest.mark.parametrize(
    "path", ["/proc/self/status", "/proc/self/environ", "/proc/self/root/etc/passwd", "/sys/power"]
)
async def test_kernel_file_systems_are_refused(call, path: str):
    with pytest.raises(ToolError, match="kernel interface"):
        await call("read_file", path=path)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/tty", "/dev/stdin", "/proc/self/fd/0"])
async def test_devices_are_refused(call, path: str):
    with pytest.raises(ToolError):
        await call("read_file", path=path)


async def test_unresponsive_file_times_out(
    workspace: Path, deps: ToolCollaborators, scope: Scope, tmp_path: Path
):
    parts = ReadDeps(
        paths=SessionPaths(tmp_path),
        seen=SeenFiles(),
        blobs=deps.blobs,
        redact=str,
        threads=ThreadRunner(),
        documents=DocumentReader(deps.sandbox),
        provenance=FileProvenance(SystemClock()),
        timeout=0.0,
    )
    (workspace / "f").write_text("x")
    with pytest.raises(ToolError, match="did not respond within 0 s"):
        await ReadFile(parts).run(Raw(b'{"path":"f"}'), ToolContext(scope, "c", silent))


class PausingRedactor:
    """Redacts nothing, and blocks on the first call."""

    def __init__(self) -> None:
        self.calls = 0
        self.inside = Event()
        self.go_on = Event()

    def __call__(self, text: str) -> str:
        self.calls += 1
        self.inside.set()
        assert self.go_on.wait(60)
        return text


async def test_abandoned_read_stops(
    workspace: Path, deps: ToolCollaborators, scope: Scope, tmp_path: Path
):
    redact, runner = PausingRedactor(), ThreadRunner(1)
    places = SessionPaths(tmp_path)
    parts = ReadDeps(
        paths=places,
        seen=SeenFiles(),
        blobs=deps.blobs,
        redact=redact,
        threads=runner,
        documents=DocumentReader(deps.sandbox),
        provenance=FileProvenance(SystemClock()),
    )
    (workspace / "f").write_bytes((b"x" * 200_000 + b"\n") * 20)
    context = ToolContext(scope, "c", silent)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ReadFile(parts).run, Raw(b'{"path":"f"}'), context)
        assert await anyio.to_thread.run_sync(redact.inside.wait, 60)
        tasks.cancel_scope.cancel()
    redact.go_on.set()
    ended = False
    with anyio.fail_after(60):
        while not ended:
            try:
                ended = await runner.run(lambda: True)
            except ToolError:
                await anyio.sleep(0.01)
    assert redact.calls == 1


def test_growing_file_is_read_up_to_its_initial_size(tmp_path: Path):
    (tmp_path / "f").write_bytes(b"one\ntwo\nthree")
    with (tmp_path / "f").open("rb") as file:
        page = read_page(file, 8, 1, OutputLimits(lines=10), str)
    assert (page.lines, page.total) == (["one", "two"], 2)
