"""The terminal tool and its processes under their public names."""

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

results = {"before": len(process_registry.pending_watchers)}
results["plain"] = json.loads(terminal_tool("echo hi"))
results["refused"] = json.loads(terminal_tool("true", timeout=601))
results["cli"] = begin(notify_on_complete=True)
set_session_vars(platform="api_server", chat_id="s", session_key="s", async_delivery=False)
results["api"] = begin(watch_patterns=["x"])
set_session_vars(platform="telegram", chat_id="1", thread_id="7", user_id="u", session_key="k")
results["chat"] = begin(notify_on_complete=True)
clear_session_vars()
results["pending"] = process_registry.pending_watchers
process_registry.pending_watchers = []
results["left"] = process_registry.pending_watchers
print(json.dumps(results))
"""


@pytest.mark.slow
def test_public_functions_run_the_real_tool(tmp_path: Path) -> None:
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
    results = json.loads(done.stdout)
    assert results["before"] == 0
    assert results["plain"] == {"output": "hi\n", "exit_code": 0, "error": None}
    assert "from 0 to 600" in results["refused"]["error"]
    assert results["cli"]["notify_on_complete"] is True
    assert results["api"]["notify_on_complete"] is False
    assert "poll" in results["api"]["notify_unsupported"]
    assert results["pending"] == [
        {
            "session_id": results["chat"]["session_id"],
            "platform": "telegram",
            "chat_id": "1",
            "thread_id": "7",
            "user_id": "u",
            "session_key": "k",
            "notify_on_complete": True,
        }
    ]
    assert results["left"] == []
    for name in ("cli", "api", "chat"):
        assert not Path(f"/proc/{results[name]['pid']}").exists(), "no process outlives the program"
