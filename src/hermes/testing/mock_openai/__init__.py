"""An OpenAI-compatible model server that says and breaks exactly what a script tells it."""

from hermes.testing.mock_openai.script import Call, Fault, Reply, Rule, Script, Spent, load_script
from hermes.testing.mock_openai.server import Exchange, MockServer, serve

__all__ = [
    "Call",
    "Exchange",
    "Fault",
    "MockServer",
    "Reply",
    "Rule",
    "Script",
    "Spent",
    "load_script",
    "serve",
]
