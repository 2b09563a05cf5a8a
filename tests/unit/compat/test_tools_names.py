"""The terminal and its processes under their old names."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
import hermes.compat
hermes.compat.install()
from gateway.session_context import clear_session_vars, set_session_vars
from tools.process_registry import process_registry
from tools.terminal_tool import terminal_tool

def begin(**given):
    return json.loads(terminal_tool("sleep 1000", background=True, **given))

said = {"nobody": len(process_registry.pending_watchers)}
said["plain"] = json.loads(terminal_tool("echo hi"))
said["refused"] = json.loads(terminal_tool("true", timeout=601))
said["cli"] = begin(notify_on_complete=True)
set_session_vars(platform="api_server", chat_id="s", session_key="s", async_delivery=False)
said["api"] = begin(watch_patterns=["x"])
set_session_vars(platform="telegram", chat_id="1", thread_id="7", user_id="u", session_key="k")
said["chat"] = begin(notify_on_complete=True)
clear_session_vars()
said["pending"] = process_registry.pending_watchers
process_registry.pending_watchers = []
said["left"] = process_registry.pending_watchers
print(json.dumps(said))
"""


@pytest.mark.slow
def test_the_old_functions_run_the_real_tool(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("terminal:\n  backend: local\n")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HERMES_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["nobody"] == 0
    assert said["plain"] == {"output": "hi\n", "exit_code": 0, "error": None}
    assert "from 0 to 600" in said["refused"]["error"]
    assert said["cli"]["notify_on_complete"] is True
    assert said["api"]["notify_on_complete"] is False
    assert "poll" in said["api"]["notify_unsupported"]
    assert said["pending"] == [
        {
            "session_id": said["chat"]["session_id"],
            "platform": "telegram",
            "chat_id": "1",
            "thread_id": "7",
            "user_id": "u",
            "session_key": "k",
            "notify_on_complete": True,
        }
    ]
    assert said["left"] == []
    for name in ("cli", "api", "chat"):
        assert not Path(f"/proc/{said[name]['pid']}").exists(), "nothing outlives the program"
