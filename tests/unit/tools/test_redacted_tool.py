from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.json import encode

from hermes.kit.clock import SystemClock
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.messages import Result, text_of
from hermes.schema.scope import Scope
from hermes.tools.catalog import RedactedTool
from hermes.tools.files.editor import FileEditor, SeenFiles
from hermes.tools.files.patch import Patch
from hermes.tools.paths import SessionPaths
from hermes.tools.provenance.file_provenance import FileProvenance
from hermes.tools.thread_runner import ThreadRunner

KEY = "key-that-must-not-be-shown"


def masked(text: str) -> str:
    return text.replace(KEY, "***")


async def run(folder: Path, **args: str) -> tuple[str, str]:
    async def progress(text: str) -> None:
        pass

    provenance = FileProvenance(SystemClock())
    editor = FileEditor(SessionPaths(folder / "home"), SeenFiles(), ThreadRunner(), provenance)
    tool = RedactedTool(Patch(editor, masked), masked)
    context = ToolContext(Scope("p", "s", "r", str(folder)), "c", progress)
    output = await tool.run(Raw(encode(args)), context)
    return text_of(Result("m", "c", output.parts)), output.shown


async def test_diff_hides_a_secret_next_to_a_change(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"one\n{KEY}\ntwo\n")
    answer, shown = await run(tmp_path, path="a.txt", old_string="two", new_string="three")
    assert "three" in shown
    assert KEY not in answer + shown
    assert (tmp_path / "a.txt").read_text() == f"one\n{KEY}\nthree\n"


async def test_error_hides_the_secret(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"some words {KEY}\n")
    with pytest.raises(ToolError) as caught:
        await run(tmp_path, path="a.txt", old_string="some words and others", new_string="x")
    assert KEY not in str(caught.value) + caught.value.hint


@pytest.mark.parametrize("at", range(3_970, 4_000, 5))
async def test_long_diff_is_redacted_before_it_is_cut(tmp_path: Path, at: int) -> None:
    head = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n "
    before = "x" * (at - len(head))
    (tmp_path / "a.txt").write_text(f"{before}{KEY}{'y' * 20_000}\ntwo\n")
    answer, shown = await run(tmp_path, path="a.txt", old_string="two", new_string="three")
    assert not any(KEY[n : n + 6] in answer + shown for n in range(len(KEY) - 5))
