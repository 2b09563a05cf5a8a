"""aider, one message per run."""

import os
import sys
import tempfile
from pathlib import Path

from cases import AGENT, HELLO, KEY, NO_CREDIT, UNKNOWN, URL, command, expect, run

PROGRAM = str(Path(sys.prefix) / "bin" / "aider")
OPTIONS = (
    "--no-git", "--yes-always", "--no-check-update", "--analytics-disable", "--no-gitignore",
    "--no-show-model-warnings", "--no-show-release-notes", "--no-pretty", "--no-detect-urls",
    "--map-tokens", "0", "--edit-format", "ask",
)  # fmt: skip
os.environ |= {"OPENAI_API_BASE": URL, "OPENAI_API_KEY": KEY}
os.chdir(tempfile.mkdtemp())


def ask(text, *more, model=AGENT):
    return command(PROGRAM, "--model", f"openai/{model}", *OPTIONS, *more, "--message", text)


run(
    chat=lambda: expect(HELLO, ask("hello", "--no-stream")),
    stream=lambda: expect(HELLO, ask("hello", "--stream")),
    unknown_model=lambda: expect(HELLO, ask("hello", model=UNKNOWN)),
    error=lambda: expect(NO_CREDIT, ask("fail", "--no-stream", "--timeout", "5")),
)
