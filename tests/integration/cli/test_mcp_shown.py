"""`hermes mcp test` shows all that the model would be offered of a server."""

import json
import os
import subprocess
from pathlib import Path

from mcp_talk import program
from processes import HERMES, PATIENCE


def test_readers_are_shown_beside_the_tools(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(json.dumps({"mcp_servers": {"play": program(tmp_path)}}))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HERMES_HOME": str(home)}
    done = subprocess.run(
        [HERMES, "mcp", "test", "play", "--json"],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    shown = {one["name"] for one in json.loads(done.stdout)["tools"]}
    assert {"mcp__play__add", "mcp__play__list_resources", "mcp__play__get_prompt"} <= shown
