"""The terminal tool cuts, cleans and keeps the output of commands."""

import os
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hermes.testing.clock import FakeClock
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.terminal.output import PROGRESS_EVERY, OutputFiles, ProgressReporter
from hermes.tools.terminal.output_cleaner import strip_controls
from hermes.tools.tool_io import DEFAULT_LIMITS
from support.cases import cases

KEEP = DEFAULT_LIMITS.output * 4


async def test_long_output_is_cut_and_kept_whole_in_a_file(call):
    answer = await call("terminal", command="seq 20000")
    output, full = answer["output"], Path(answer["full_output"])
    assert answer["truncated"] is True
    assert len(output) <= 50_100
    assert output.startswith("1\n2\n")
    assert output.endswith("19999\n20000\n")
    assert "characters left out" in output
    assert full.read_text().split() == [str(n) for n in range(1, 20_001)]
    assert full.stat().st_mode & 0o777 == 0o600


async def test_very_long_output_is_not_kept_in_memory(call, secret: str):
    answer = await call(
        "terminal", command=f"seq 200000; echo {secret}; printf '\\033[31mred\\033[0m'"
    )
    full = Path(answer["full_output"]).read_text()
    assert answer["output"].endswith("200000\n[redacted]\nred")
    assert full.splitlines() == [*map(str, range(1, 200_001)), "[redacted]", "red"]
    assert "about 1,2" in answer["output"]


async def test_full_disk_loses_the_file_but_not_the_answer(call, deps: ToolCollaborators):
    await call("terminal", command=f"rm -r {deps.spill_folder}; seq 200000")
    answer = await call("terminal", command=f"rm -r {deps.spill_folder}; seq 20000")
    assert answer["output"].endswith("20000\n")
    assert answer["truncated"] is True
    assert "full_output" not in answer.json


async def test_short_output_leaves_no_file(call, deps: ToolCollaborators):
    await call("terminal", command="seq 10")
    assert list(deps.spill_folder.iterdir()) == []


async def test_secrets_and_escapes_are_removed(call, secret: str):
    progress: list[str] = []
    command = f"env printf '\\033[1;32m{secret}\\033[0m\\r\\nx\\n'"
    answer = await call("terminal", command=command, progress_=progress)
    assert answer["output"] == "[redacted]\nx\n"
    assert "".join(progress) == "[redacted]\nx\n"


async def test_progress_is_whole_lines_without_our_mark(call):
    progress: list[str] = []
    await call("terminal", command="env printf 'a\\nb\\nc'", progress_=progress)
    assert "".join(progress) == "a\nb\n"


async def test_line_that_follows_quickly_is_shown_after_the_pause():
    """It does not wait for more output."""
    clock, shown = FakeClock(), list[str]()

    async def send(text: str) -> None:
        shown.append(text)

    reporter = ProgressReporter(send, clock, str)
    async with reporter.reporting():
        await reporter.feed(b"first\n")
        await clock.advance(0)
        await reporter.feed(b"second\n")
        await clock.advance(0)
        assert shown == ["first\n"]
        await clock.advance(PROGRESS_EVERY)
        assert shown == ["first\n", "second\n"]


async def test_undecodable_bytes_are_replaced(call):
    assert (await call("terminal", command="printf '\\377x'"))["output"] == "\ufffdx"


@cases(
    ("raw", "text"),
    [
        ("a\x1b[1;31mb\x1b[0mc", "abc"),
        ("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "xlink"),
        ("1%\r2%\r\n3", "1%\n2%\n3"),
        ("\x1b(Bx\x1b=y", "xy"),
        ("plain [31m text", "plain [31m text"),
        ("a\0b\x07c\td\n", "a\ufffdb\ufffdc\td\n"),
    ],
)
def test_controls_are_stripped(raw: str, text: str):
    assert strip_controls(raw) == text


def test_only_the_newest_output_files_are_kept(tmp_path: Path):
    spills = OutputFiles(tmp_path / "new" / "folder", max_files=2)
    for _ in range(4):
        with spills.opened() as spill:
            assert spill is not None
            spill.write_cleaned("x")
    with spills.opened("test:mem") as spill:
        assert spill is not None
        theirs = spill.write_cleaned("theirs")
    spills.prune()
    assert theirs.exists()
    assert theirs.parent.parent == tmp_path / "new" / "folder"
    assert len(list((tmp_path / "new" / "folder").glob("out_*"))) == 2


async def test_unredacted_output_has_no_name_on_disk(
    call, deps: ToolCollaborators, workspace: Path, secret: str
):
    """A command killed in the middle leaves no output behind."""
    os.mkfifo(workspace / "go")
    answers: list[str] = []

    async def run() -> None:
        answer = await call("terminal", command=f"seq 200000; echo {secret}; cat go")
        answers.append(answer["full_output"])

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            # The pipe opens together with `cat`; then the output is written.
            go = await anyio.to_thread.run_sync((workspace / "go").open, "w")
            found = list(deps.spill_folder.iterdir())
            go.close()
    assert found == []
    assert "200000\n[redacted]\n" in Path(answers[0]).read_text()


async def test_unwritable_folder_loses_only_the_file(call, deps: ToolCollaborators):
    deps.spill_folder.write_text("in the way")
    answer = await call("terminal", command="seq 200000")
    assert answer["output"].endswith("200000\n")
    assert "full_output" not in answer.json


@pytest.mark.slow
@pytest.mark.parametrize("around", ["x", "\U0001f600", "\033[1m"])
@pytest.mark.parametrize("line", ["", "\n"])
async def test_cut_shows_no_part_of_a_secret(
    call, workspace: Path, secret: str, around: str, line: str
):
    """Wherever the cut is, also where redaction shortens the text around it."""
    before = around * (KEEP * 2 // 5 // len(around.encode()) - 2)
    for shift in range(0, len(secret), 5):
        (workspace / "f").write_text(f"first{line}{'y' * shift}{before}{secret}{around * 200_000}")
        answer = await call("terminal", command="cat f")
        assert secret[:6] not in answer["output"]
        assert secret[-6:] not in answer["output"]


async def test_progress_shows_no_part_of_a_secret(call, workspace: Path, secret: str):
    progress: list[str] = []
    (workspace / "f").write_text("".join(f"{n} {secret}\n" for n in range(20_000)))
    await call("terminal", command="cat f", progress_=progress)
    assert progress
    assert all(len(text) <= 2_000 for text in progress)
    assert not any(secret[-6:] in text.replace("[redacted]", "") for text in progress)
