"""A preloaded program behaves as in an interpreter of its own."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from support.preloaded_python import PreloadedPython, preloaded_program, run_python

pytestmark = pytest.mark.slow

ENV = {"PATH": os.defpath, "LANG": "C.UTF-8", "TZ": "JST-9", "OWN": "ö"}
PROGRAMS = {
    "arguments and surroundings": (
        "import os, sys, time; print(sys.argv, os.getcwd(), os.environ['OWN'], time.localtime(0)[3]"
        ", sys.stdin.encoding, sys.stdout.errors, sys.stderr.errors, __name__, sys.path[0])"
    ),
    "standard input": "import sys; print(sys.stdin.read().upper(), file=sys.stderr)",
    "an unfinished line": "import sys; sys.stderr.write('no newline')",
    "a syntax error": "import sys; (",
    "an exit code": "import sys; sys.exit(3)",
    "an exit message": "import sys; sys.exit('over')",
    "an exit handler": "import atexit; atexit.register(print, 'at the end')",
    "a thread": "import threading; threading.Timer(0.01, print, ['late']).start()",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "an interrupt": "import os, signal; os.kill(os.getpid(), signal.SIGINT); input()",
}


@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS)
def test_program_does_the_same_as_in_a_new_interpreter(code: str, tmp_path: Path) -> None:
    command = ["-c", code, "a", "b c"]
    ours = run_python(command, env=ENV, cwd=tmp_path, stdin=b"said", timeout=60)
    real = subprocess.run(
        [sys.executable, *command], env=ENV, cwd=tmp_path, input=b"said", capture_output=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert (ours.returncode, ours.stdout) == (real.returncode, real.stdout)
    assert ours.stderr.splitlines()[-1:] == real.stderr.splitlines()[-1:]


def test_programs_do_not_change_each_other(tmp_path: Path) -> None:
    """Modules are shared, their contents are not."""
    code = "import colorsys; print(hasattr(colorsys, 'mine')); colorsys.mine = 1"
    for _ in range(2):
        assert run_python(["-c", code], env=ENV, timeout=60).stdout == b"False\n"


def test_other_locale_gets_an_interpreter_of_its_own() -> None:
    done = run_python(
        ["-c", "import sys; print(sys.stdout.encoding)"],
        env=ENV | {"PYTHONIOENCODING": "cp1252"},
        timeout=60,
    )
    assert done.stdout == b"cp1252\n"


def test_process_id_and_signals_are_those_of_the_program() -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"
    with PreloadedPython(["-c", code], env=ENV, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        assert process.poll() is None
        process.kill()
    assert process.returncode == -signal.SIGKILL


def test_program_ends_with_its_connection() -> None:
    with PreloadedPython(["-c", "import time; time.sleep(1000)"], env=ENV) as process:
        process.connection.shutdown(socket.SHUT_WR)
        assert process.wait(60) == -signal.SIGKILL


async def test_output_and_end_are_awaited() -> None:
    code = "print('one', flush=True); input()"
    with anyio.fail_after(60):
        async with preloaded_program(["-c", code], env=ENV) as process:
            assert await anext(process.stdout) == b"one\n"
            # Its input is empty.
            assert await process.wait() == 1
            assert process.returncode == 1


async def test_end_is_awaited_by_several_tasks_and_polled() -> None:
    codes: list[int] = []

    async with preloaded_program(["-c", "import time; time.sleep(1000)"], env=ENV) as process:

        async def wait() -> None:
            codes.append(await process.wait())

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                group.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                process.kill()
                while process.returncode is None:
                    await anyio.lowlevel.checkpoint()
    assert codes == [-signal.SIGKILL] * 2
