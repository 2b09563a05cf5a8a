"""The codex program with the gateway as its model provider; all it sends are responses."""

import os
import tempfile
from pathlib import Path

from cases import AGENT, HELLO, KEY, NO_CREDIT, UNKNOWN, URL, command, expect, run

PROGRAM = os.environ["CLIENT_PROGRAM"]
CONFIG = f"""
model_provider = "hermes"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.hermes]
name = "Hermes"
base_url = "{URL}"
env_key = "HERMES_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
"""
home = tempfile.mkdtemp()
Path(home, "config.toml").write_text(CONFIG)
os.environ |= {"CODEX_HOME": home, "HERMES_KEY": KEY}
os.chdir(tempfile.mkdtemp())


def ask(text, model=AGENT):
    return command(PROGRAM, "exec", "--skip-git-repo-check", "-m", model, text)


def resumed():
    """Go on with the last session, whose conversation is sent again."""
    return command(PROGRAM, "exec", "resume", "--last", "--skip-git-repo-check", "hello")


run(
    stream=lambda: expect(HELLO, ask("hello")),
    tool=lambda: expect("It said from-codex.", ask("run the command")),
    responses=lambda: expect(HELLO, resumed()),
    unknown_model=lambda: expect(HELLO, ask("hello", UNKNOWN)),
    error=lambda: expect(NO_CREDIT, ask("fail")),
)
