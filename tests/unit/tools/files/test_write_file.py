from pathlib import Path

import anyio
import pytest
from inline_snapshot import snapshot

from hermes.kit.clock import SystemClock
from hermes.schema.errors import ToolError
from hermes.schema.scope import Scope
from hermes.tools.files.editor import FileChange, FileEditor, SeenFiles
from hermes.tools.files.lint import check_syntax
from hermes.tools.paths import SessionPaths
from hermes.tools.provenance.file_provenance import FileProvenance
from hermes.tools.thread_runner import ThreadRunner
from support.cases import cases


async def test_new_file_in_a_new_folder(call, workspace: Path):
    answer = await call("write_file", path="a/b/c.txt", content="hällo\n")
    target = str(workspace / "a/b/c.txt")
    assert answer.json == {
        "bytes_written": 7,
        "dirs_created": True,
        "lint": {"status": "skipped", "output": ""},
        "resolved_path": target,
        "files_modified": [target],
    }
    assert Path(target).read_text() == "hällo\n"
    assert answer.output.shown == snapshot(
        """\
--- /dev/null
+++ b/c.txt
@@ -0,0 +1 @@
+hällo\
"""
    )


async def test_mode_and_link_are_kept(call, workspace: Path):
    script = workspace / "run.sh"
    script.write_text("old")
    script.chmod(0o754)
    (workspace / "link").symlink_to(script)
    await call("write_file", path="link", content="new")
    assert (workspace / "link").is_symlink()
    assert script.read_text() == "new"
    assert script.stat().st_mode & 0o777 == 0o754


async def test_file_changed_by_another_program_is_not_overwritten(call, workspace: Path):
    path = workspace / "f"
    path.write_text("one")
    await call("read_file", path="f")
    path.write_text("two, by somebody else")
    with pytest.raises(ToolError, match="changed by another program since you last read it"):
        await call("write_file", path="f", content="three")
    assert path.read_text() == "two, by somebody else"
    await call("read_file", path="f")
    await call("write_file", path="f", content="three")
    await call("write_file", path="f", content="four")
    assert path.read_text() == "four"


async def test_reads_of_other_sessions_do_not_count(call, workspace: Path):
    (workspace / "f").write_text("one")
    other = Scope("default", "session-2", "run", str(workspace))
    await call("read_file", path="f", scope_=other)
    answer = await call("write_file", path="f", content="two")
    assert "had not read" in answer["note"]
    with pytest.raises(ToolError, match="changed by another program"):
        await call("write_file", path="f", content="three", scope_=other)


async def test_deleted_file_may_be_written_again(call, workspace: Path):
    await call("write_file", path="f", content="one")
    (workspace / "f").unlink()
    await call("write_file", path="f", content="two")
    assert (workspace / "f").read_text() == "two"


async def test_unchanged_content_is_noted(call):
    await call("write_file", path="f", content="x")
    answer = await call("write_file", path="f", content="x")
    assert answer["note"] == "The file already had exactly this content."


async def test_encoding_and_line_ends_are_kept(call, workspace: Path):
    (workspace / "dos").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    answer = await call("write_file", path="dos", content="a\nc\n")
    assert (workspace / "dos").read_bytes() == b"\xef\xbb\xbfa\r\nc\r\n"
    assert "Kept the file's utf-8 encoding and CRLF line ends." in answer["note"]
    (workspace / "wide").write_bytes("\ufeffx\n".encode("utf-16-be"))
    await call("write_file", path="wide", content="ÿ\n")
    assert (workspace / "wide").read_bytes() == "\ufeffÿ\n".encode("utf-16-be")
    (workspace / "latin").write_bytes(b"\xfc")
    with pytest.raises(ToolError, match="latin-1, which cannot encode '€'"):
        await call("write_file", path="latin", content="€")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (".", "is a folder"),
        ("file/below", "nothing was changed"),
        ("~/.hermes/.env", "belongs to Hermes"),
        ("~/.hermes/state.db", "belongs to Hermes"),
    ],
)
async def test_failed_write_is_explained(call, workspace: Path, path: str, message: str):
    (workspace / "file").write_text("x")
    with pytest.raises(ToolError, match=message):
        await call("write_file", path=path, content="y")
    assert (workspace / "file").read_text() == "x"


@cases(
    ("name", "text", "status", "output"),
    [
        ("a.py", "x = 1\n", "ok", ""),
        ("a.py", "x = '\\d'\n", "ok", ""),
        ("a.py", "def f(:\n", "error", "line 1: invalid syntax"),
        ("a.py", "x = '\0'", "error", "source code"),
        ("a.json", '{"a": [1]}', "ok", ""),
        ("a.json", '{"a": }', "error", "malformed"),
        ("a.yaml", "a: 1\n---\nb: !custom [1]\n", "ok", ""),
        ("a.yml", "a:\n b: [1\n", "error", "line 3"),
        ("a.toml", "[a]\nb = 1\n", "ok", ""),
        ("a.toml", "[a\n", "error", "line 1"),
        ("a.txt", "{", "skipped", ""),
        ("a.json", "[" * 100_000, "error", "deep"),
        ("a.py", "#" * 200_000, "skipped", "too long"),
    ],
)
def test_syntax_is_checked(name: str, text: str, status: str, output: str):
    lint = check_syntax(Path(name), text)
    assert lint.status == status
    assert output in lint.output


def test_old_fault_is_distinguished_from_a_new_one():
    assert "before this edit too" in check_syntax(Path("a.json"), "{", "[").output
    assert "before this edit too" not in check_syntax(Path("a.json"), "{", "[]").output


async def test_changes_are_all_or_nothing(tmp_path: Path):
    editor = FileEditor(
        SessionPaths(tmp_path), SeenFiles(), ThreadRunner(), FileProvenance(SystemClock())
    )
    (tmp_path / "a").write_text("old")
    (tmp_path / "blocked").write_text("a file where a folder should be")
    changes = [
        FileChange(tmp_path / "a", b"old", b"new"),
        FileChange(tmp_path / "new/b", None, b"new"),
        FileChange(tmp_path / "blocked/c", None, b"new"),
    ]
    with pytest.raises(ToolError, match="nothing was changed"):
        await editor.apply(Scope("default", "s", "r", str(tmp_path)), changes)
    assert (tmp_path / "a").read_text() == "old"
    assert not (tmp_path / "new").exists()


async def test_writers_of_one_file_are_serialized(tmp_path: Path):
    editor = FileEditor(
        SessionPaths(tmp_path), SeenFiles(), ThreadRunner(), FileProvenance(SystemClock())
    )
    order: list[str] = []
    a, b = tmp_path / "a", tmp_path / "b"

    async def write(name: str, *paths: Path) -> None:
        async with editor.locks.holding(paths):
            order.append(f"{name} in")
            await anyio.wait_all_tasks_blocked()
            order.append(f"{name} out")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(write, "first", a, b)
            group.start_soon(write, "second", b, a)
    assert order in (
        ["first in", "first out", "second in", "second out"],
        ["second in", "second out", "first in", "first out"],
    )


async def test_parallel_writes_never_mix(call, workspace: Path):
    async def write(letter: str) -> None:
        await call("write_file", path="f", content=letter * 100_000)

    async with anyio.create_task_group() as group:
        for letter in "abcdef":
            group.start_soon(write, letter)
    assert len(set((workspace / "f").read_text())) == 1
