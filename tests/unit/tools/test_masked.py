from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.json import encode

from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.messages import Result, text_of
from hermes.schema.scope import Scope
from hermes.tools.files.editor import Editor
from hermes.tools.files.patch import Patch
from hermes.tools.files.seen import Seen
from hermes.tools.masked import Masked
from hermes.tools.places import Places

pytestmark = pytest.mark.anyio
KEY = "key-that-nobody-may-see"


async def run(folder: Path, **args: str) -> tuple[str, str]:
    async def progress(text: str) -> None:
        pass

    editor = Editor(Places(folder), Seen())
    tool = Masked(Patch(editor), lambda text: text.replace(KEY, "***"))
    context = ToolContext(Scope("p", "s", "r", str(folder)), "c", progress)
    output = await tool.run(Raw(encode(args)), context)
    return text_of(Result("m", "c", output.parts)), output.shown


async def test_a_diff_does_not_show_the_secret_beside_a_change(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"one\n{KEY}\ntwo\n")
    told, shown = await run(tmp_path, path="a.txt", old_string="two", new_string="three")
    assert "three" in shown
    assert KEY not in told + shown
    assert (tmp_path / "a.txt").read_text() == f"one\n{KEY}\nthree\n"


async def test_an_error_does_not_show_it_either(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"some words {KEY}\n")
    with pytest.raises(ToolError) as caught:
        await run(tmp_path, path="a.txt", old_string="some words and others", new_string="x")
    assert KEY not in str(caught.value) + caught.value.hint
