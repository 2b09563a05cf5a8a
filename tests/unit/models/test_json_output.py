"""JSON output in each wire format, where supported."""

import json

import pytest

from hermes.models.catalog import with_model_features
from hermes.models.embedded.small_profile import small_profile
from hermes.models.providers import ModelProfile, ServedModel
from hermes.models.urls import ANTHROPIC, CHAT, GEMINI, RESPONSES
from hermes.models.wire.chat_completions import ChatWire
from hermes.models.wire.openai_responses import ResponsesWire
from hermes.ports.model import ModelRequest, OutputConstraints, OutputFormat
from hermes.schema.messages import Text, User

SERVED = ServedModel(model="m", provider="p", window=1)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def request_for(form: OutputFormat | None) -> ModelRequest:
    return ModelRequest(
        "", [User("m1", (Text("where"),))], constraints=OutputConstraints(format=form)
    )


def test_chat_completions_response_format() -> None:
    def sent(form: OutputFormat | None) -> object:
        body = ChatWire(SERVED).body(request_for(form))
        return json.loads(body).get("response_format")

    assert sent(None) is None
    assert sent(OutputFormat()) == {"type": "json_object"}
    whole = {"name": "city", "schema": SCHEMA, "strict": True}
    assert sent(OutputFormat(schema=SCHEMA, name="city", strict=True)) == {
        "type": "json_schema",
        "json_schema": whole,
    }


def test_responses_text_format() -> None:
    def sent(form: OutputFormat | None) -> object:
        body = ResponsesWire(SERVED).body(request_for(form))
        return json.loads(body).get("text")

    assert sent(None) is None
    assert sent(OutputFormat()) == {"format": {"type": "json_object"}}
    assert sent(OutputFormat(schema=SCHEMA, name="city")) == {
        "format": {"type": "json_schema", "name": "city", "schema": SCHEMA}
    }


@pytest.mark.parametrize(
    ("mode", "can"), [(CHAT, True), (RESPONSES, True), (ANTHROPIC, False), (GEMINI, False)]
)
def test_json_output_support_depends_on_the_api_mode(mode: str, can: bool) -> None:
    assert with_model_features(ModelProfile(), mode, "some-model").json_output is can
    assert not small_profile().json_output
