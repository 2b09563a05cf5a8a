"""`hermes mcp test` lists everything that the model would get from a server."""

import json
import os
import subprocess
from pathlib import Path

from support.cli_process import HERMES_PROGRAM, TEST_TIMEOUT
from support.mcp_harness import stdio_server


def test_resource_readers_are_listed_with_the_tools(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(json.dumps({"mcp_servers": {"play": stdio_server(tmp_path)}}))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HERMES_HOME": str(home)}
    done = subprocess.run(
        [HERMES_PROGRAM, "mcp", "test", "play", "--json"],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=TEST_TIMEOUT, check=True,
    )  # fmt: skip
    shown = {one["name"] for one in json.loads(done.stdout)["tools"]}
    assert {"mcp__play__add", "mcp__play__list_resources", "mcp__play__get_prompt"} <= shown
