"""Commands in a pseudo-terminal."""

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from support.polling import pause


async def test_pty_gives_the_command_a_terminal(call, workspace: Path):
    command = "test -t 0 && test -t 1 && echo yes; mkdir d; cd d"
    answer = await call("terminal", command=command, pty=True)
    assert (answer["output"], answer["exit_code"]) == ("yes\n", 0)
    assert answer["cwd"] == str(workspace / "d")
    without = await call("terminal", command="test -t 1 || echo no")
    assert without["output"] == "no\n"


async def test_long_pty_output_is_cut_and_kept(call, secret: str):
    answer = await call("terminal", command=f"seq 60000; echo {secret}", pty=True)
    assert answer["output"].endswith("60000\n[redacted]\n")
    full = Path(answer["full_output"]).read_text()
    assert full.split() == [*map(str, range(1, 60_001)), "[redacted]"]


async def test_pty_has_no_input(call):
    answer = await call("terminal", command="cat; echo over", pty=True)
    assert answer["output"].endswith("over\n")


@pytest.mark.slow
async def test_pty_command_times_out(call):
    # Set up what all commands share before the timeout starts.
    await call("terminal", command="true")
    answer = await call("terminal", command="echo begun; sleep 1000", pty=True, timeout=5)
    assert (answer["output"], answer["exit_code"]) == ("begun\n", 124)
    assert answer["error"] == "The command was stopped after 5 s."


async def test_cancelled_pty_command_leaves_no_process(call, workspace: Path):
    pid = workspace / "pid"
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            run = "echo $$ > pid.new; mv pid.new pid; sleep 1000"
            group.start_soon(lambda: call("terminal", command=run, pty=True))
            while not pid.exists():
                await pause()
            group.cancel_scope.cancel()
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
