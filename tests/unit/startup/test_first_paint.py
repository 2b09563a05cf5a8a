"""The terminal UI is drawn before the modules of a conversation are loaded."""

import os
import sys
from pathlib import Path

import pexpect
import pytest

from support.cli_process import TEST_TIMEOUT

MAX_MODULES = 520
"""Maximum number of modules, including those of the UI library."""
DEFERRED = """
aiohttp http apsw sqlite3 ruamel yaml markdown_it pygments linkify_it rich.traceback
textual.widgets._markdown hermes.app hermes.agent hermes.store hermes.tools hermes.sandbox
hermes.ipc.conversation_service hermes.ipc.socket_client hermes.session
"""
PROBE = """
import sys
from pathlib import Path


class Notes:
    def find_spec(self, name, path=None, target=None):
        if name == "hermes.ipc.connect":
            Path(sys.argv[1]).write_text("\\n".join(sys.modules))


sys.meta_path.insert(0, Notes())
from hermes.cli.main import main
sys.exit(main([]))
"""


@pytest.mark.slow
def test_screen_is_drawn_before_the_agent_is_loaded(tmp_path: Path) -> None:
    """The modules are recorded when the client connects, which is after the first frame."""
    notes = tmp_path / "modules"
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "HERMES_HOME": str(tmp_path / "home"),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "OPENAI_API_KEY": "sk-x",
        "HERMES_INFERENCE_PROVIDER": "openai",
        "HERMES_INFERENCE_MODEL": "mock",
    }
    child = pexpect.spawn(
        sys.executable, ["-c", PROBE, str(notes)], env=env, encoding="utf-8",
        dimensions=(24, 80), timeout=TEST_TIMEOUT,
    )  # fmt: skip
    try:
        child.expect_exact("sk anything")
        child.expect_exact("hermes · ")
        child.send("\x04")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)
    assert child.exitstatus == 0
    modules = notes.read_text().splitlines()
    assert "hermes.tui.app" in modules
    deferred = tuple(f"{one}." for one in DEFERRED.split())
    assert [name for name in modules if f"{name}.".startswith(deferred)] == []
    assert len(modules) <= MAX_MODULES
