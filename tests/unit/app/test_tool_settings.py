"""Settings for tool output and the command shell."""

from pathlib import Path

import pytest

from hermes.app.tool_factory import output_limits
from hermes.config.schema import Config
from hermes.config.sections.execution import ToolOutput
from hermes.tools.tool_io import OutputLimits
from support.app_profile import call_tool, make_scope, open_profile, output_json

LOCAL = "terminal:\n  backend: local\n"


def test_unset_settings_have_their_defaults() -> None:
    assert output_limits(Config()) == OutputLimits()
    nothing = ToolOutput(max_bytes=0, max_lines=0, max_line_length=0)
    assert output_limits(Config(tool_output=nothing, file_read_max_chars=0)) == OutputLimits()


async def test_output_is_cut_at_the_configured_length(tmp_path: Path) -> None:
    async with open_profile(tmp_path, LOCAL + "tool_output:\n  max_bytes: 1000\n") as app:
        scope = make_scope(tmp_path)
        long = output_json(await call_tool(app, scope, "terminal", command="seq 1 1000"))
        short = output_json(await call_tool(app, scope, "terminal", command="seq 1 100"))
    shown = str(long["output"])
    assert long["truncated"]
    assert 500 < len(shown) < 1_100
    assert shown.startswith("1\n2\n")
    assert shown.endswith("999\n1000\n")
    assert "truncated" not in short


async def test_file_page_is_cut_at_the_configured_lines(tmp_path: Path) -> None:
    settings = "tool_output:\n  max_lines: 3\n  max_line_length: 10\n"
    async with open_profile(tmp_path, settings) as app:
        (tmp_path / "work" / "f").write_text("\n".join(["x" * 30, *"abcde"]) + "\n")
        page = output_json(
            await call_tool(app, make_scope(tmp_path), "read_file", path="f", limit=100)
        )
    assert page["content"] == f"1|{'x' * 10} [… 20 more]\n2|a\n3|b"
    assert "offset=4" in str(page["note"])


async def test_file_page_is_cut_at_the_configured_characters(tmp_path: Path) -> None:
    async with open_profile(tmp_path, "file_read_max_chars: 100\n") as app:
        (tmp_path / "work" / "f").write_text(f"{'x' * 40}\n" * 5)
        page = output_json(await call_tool(app, make_scope(tmp_path), "read_file", path="f"))
    assert str(page["content"]).count("\n") == 1
    assert page["truncated"]


async def test_shell_reads_the_configured_init_files(tmp_path: Path) -> None:
    (tmp_path / "first").write_text("echo noise; greeting=hello\n")
    (tmp_path / "second file").write_text('greeting="$greeting there"; read -r line\n')
    files = f"  shell_init_files: [~/first, {tmp_path}/second file, ~/missing]\n"
    async with open_profile(tmp_path, LOCAL + files) as app:
        scope = make_scope(tmp_path)
        done = output_json(
            await call_tool(app, scope, "terminal", command='cd /; echo "$greeting"')
        )
        behind = output_json(
            await call_tool(
                app, scope, "terminal", command='echo "$greeting" behind', background=True
            )
        )
        waited = output_json(
            await call_tool(app, scope, "process", action="wait", session_id=behind["session_id"])
        )
    assert (done["output"], done["cwd"]) == ("hello there\n", "/")
    assert waited["output"] == "hello there behind\n"


@pytest.mark.parametrize(("mode", "below"), [("profile", "home/home"), ("real", ""), ("auto", "")])
async def test_commands_use_the_configured_home(tmp_path: Path, mode: str, below: str) -> None:
    async with open_profile(tmp_path, f"{LOCAL}  home_mode: {mode}\n") as app:
        done = output_json(
            await call_tool(app, make_scope(tmp_path), "terminal", command='cd "$HOME" && pwd')
        )
    assert done["output"] == f"{tmp_path / below}\n"
