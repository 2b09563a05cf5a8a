"""A fake OpenAI-compatible model server that plays scripted replies and faults."""

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
