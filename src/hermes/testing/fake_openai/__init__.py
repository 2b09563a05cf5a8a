"""An OpenAI-compatible model server that says and breaks exactly what a script tells it."""

from hermes.testing.fake_openai.script import (
    Call,
    Fault,
    Reply,
    Rule,
    Script,
    TokenCounts,
    load_script,
)
from hermes.testing.fake_openai.server import FakeOpenAiServer, RecordedRequest, serve

__all__ = [
    "Call",
    "FakeOpenAiServer",
    "Fault",
    "RecordedRequest",
    "Reply",
    "Rule",
    "Script",
    "TokenCounts",
    "load_script",
    "serve",
]
