"""Exit codes above 128: who was killed, and who only said so."""

from pathlib import Path

import pytest

from support.app_profile import call_tool, make_scope, open_profile, output_json

pytestmark = pytest.mark.anyio

OWN, KILLED, UNKNOWN = "the shell exited by itself", "killed", "or it chose this code"


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock", "local"])
async def test_who_ends_by_itself_is_told_apart_from_who_is_killed(
    tmp_path: Path, backend: str
) -> None:
    expected = {
        "exit 130": (130, OWN),
        "exit 137": (137, OWN),
        "sh -c 'exit 143'": (143, OWN),
        "kill -9 $$": (137, KILLED),
        "kill -TERM $$; sleep 60": (143, "terminated"),
        "sh -c 'kill -9 $$'": (137, OWN),
        "exec sh -c 'exit 130'": (130, UNKNOWN if backend == "bubblewrap" else OWN),
        "exit 200": (200, ""),
        "exit 3": (3, ""),
    }
    async with open_profile(tmp_path, f"terminal:\n  backend: {backend}\n") as app:
        for command, (code, told) in expected.items():
            done = output_json(
                await call_tool(app, make_scope(tmp_path), "terminal", command=command)
            )
            meant = str(done.get("exit_code_meaning", ""))
            assert done["exit_code"] == code, command
            assert meant.startswith(told) or (told == UNKNOWN and meant.endswith(told)), command
            assert bool(meant) == bool(told), command


@pytest.mark.parametrize("pty", [False, True])
async def test_at_a_terminal_too(tmp_path: Path, *, pty: bool) -> None:
    async with open_profile(tmp_path, "terminal:\n  backend: bubblewrap\n") as app:
        for command, told in (("exit 130", OWN), ("kill -9 $$", KILLED)):
            output = await call_tool(
                app, make_scope(tmp_path), "terminal", command=command, pty=pty
            )
            assert str(output_json(output)["exit_code_meaning"]).startswith(told)


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock", "local"])
async def test_in_the_background_only_what_is_not_known_is_left_open(
    tmp_path: Path, backend: str
) -> None:
    """The first process inside a namespace tells of both alike; elsewhere the door knows."""
    open_ = backend == "bubblewrap"
    expected = {
        "exit 137": (137, f"killed, possibly out of memory (SIGKILL), {UNKNOWN}" if open_ else OWN),
        "kill -9 $$": (137, "killed, possibly out of memory (SIGKILL)"),
        "exit 200": (200, ""),
        "false | grep x": (1, "nothing matched"),
    }
    async with open_profile(tmp_path, f"terminal:\n  backend: {backend}\n") as app:
        for command, (code, told) in expected.items():
            begun = await call_tool(
                app, make_scope(tmp_path), "terminal", command=command, background=True
            )
            name = output_json(begun)["session_id"]
            done = await call_tool(
                app, make_scope(tmp_path), "process", action="wait", session_id=name, timeout=60
            )
            meant = str(output_json(done).get("exit_code_meaning", ""))
            assert output_json(done)["exit_code"] == code, command
            assert meant.startswith(told), command
            assert meant.endswith(UNKNOWN) == (open_ and code == 137), command
            assert bool(meant) == bool(told), command
