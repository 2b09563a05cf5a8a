"""Exit codes above 128 are expected_text apart from signals where possible."""

from pathlib import Path

import pytest

from support.app_profile import call_tool, make_scope, open_profile, output_json

OWN, KILLED, UNKNOWN = "the shell exited by itself", "killed", "or it chose this code"


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock", "local"])
async def test_exit_codes_and_signals_are_distinguished(tmp_path: Path, backend: str) -> None:
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
        for command, (code, expected_text) in expected.items():
            done = output_json(
                await call_tool(app, make_scope(tmp_path), "terminal", command=command)
            )
            meaning = str(done.get("exit_code_meaning", ""))
            assert done["exit_code"] == code, command
            assert meaning.startswith(expected_text) or (
                expected_text == UNKNOWN and meaning.endswith(expected_text)
            ), command
            assert bool(meaning) == bool(expected_text), command


@pytest.mark.parametrize("pty", [False, True])
async def test_exit_codes_and_signals_are_distinguished_at_a_terminal(
    tmp_path: Path, *, pty: bool
) -> None:
    async with open_profile(tmp_path, "terminal:\n  backend: bubblewrap\n") as app:
        for command, expected_text in (("exit 130", OWN), ("kill -9 $$", KILLED)):
            output = await call_tool(
                app, make_scope(tmp_path), "terminal", command=command, pty=pty
            )
            assert str(output_json(output)["exit_code_meaning"]).startswith(expected_text)


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock", "local"])
async def test_background_exit_meaning_is_open_only_if_unknown(
    tmp_path: Path, backend: str
) -> None:
    """The first process in a namespace reports both alike; elsewhere the spawner knows."""
    open_ = backend == "bubblewrap"
    expected = {
        "exit 137": (137, f"killed, possibly out of memory (SIGKILL), {UNKNOWN}" if open_ else OWN),
        "kill -9 $$": (137, "killed, possibly out of memory (SIGKILL)"),
        "exit 200": (200, ""),
        "false | grep x": (1, "nothing matched"),
    }
    async with open_profile(tmp_path, f"terminal:\n  backend: {backend}\n") as app:
        for command, (code, expected_text) in expected.items():
            started = await call_tool(
                app, make_scope(tmp_path), "terminal", command=command, background=True
            )
            name = output_json(started)["session_id"]
            done = await call_tool(
                app, make_scope(tmp_path), "process", action="wait", session_id=name, timeout=60
            )
            meaning = str(output_json(done).get("exit_code_meaning", ""))
            assert output_json(done)["exit_code"] == code, command
            assert meaning.startswith(expected_text), command
            assert meaning.endswith(UNKNOWN) == (open_ and code == 137), command
            assert bool(meaning) == bool(expected_text), command
