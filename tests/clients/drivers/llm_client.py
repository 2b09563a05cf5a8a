"""The `llm` program, with a model list that points at the gateway."""

import os
import sys
import tempfile
from pathlib import Path

from cases import AGENT, HELLO, KEY, NO_CREDIT, RAIN, UNKNOWN, URL, command, expect, run

PROGRAM = str(Path(sys.prefix) / "bin" / "llm")
FUNCTION = 'def weather(city: str) -> str:\n    """The weather of a city."""\n    return "rain"\n'
folder = tempfile.mkdtemp()
ENTRY = """\
- model_id: {name}
  model_name: {name}
  api_base: {url}
  api_key_name: openai
  supports_tools: true
"""
entries = [ENTRY.format(name=name, url=URL) for name in (AGENT, f"x-{UNKNOWN}")]
Path(folder, "extra-openai-models.yaml").write_text("".join(entries))
os.environ |= {"LLM_USER_PATH": folder, "OPENAI_API_KEY": KEY}


def ask(text, *more, model=AGENT):
    return command(PROGRAM, "-m", model, "--key", KEY, *more, text)


run(
    chat=lambda: expect(HELLO, ask("hello", "--no-stream")),
    stream=lambda: expect(HELLO, ask("hello")),
    tool=lambda: expect(RAIN, ask("the weather", "--functions", FUNCTION)),
    unknown_model=lambda: expect(HELLO, ask("hello", model=f"x-{UNKNOWN}")),
    error=lambda: expect(NO_CREDIT, ask("fail")),
)
