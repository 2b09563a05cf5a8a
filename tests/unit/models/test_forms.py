"""JSON as it is asked for in each language, and who cannot be asked."""

import json

import pytest

from hermes.models.embedded.small import small_profile
from hermes.models.modes import ANTHROPIC, CHAT, GEMINI, RESPONSES
from hermes.models.profile import Profile
from hermes.models.profiles import able
from hermes.models.wire.chat_request import ChatRequestCodec
from hermes.models.wire.responses_request import ResponsesRequestCodec
from hermes.ports.model import Calling, Form, Request
from hermes.schema.messages import Text, User

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def asked(form: Form | None) -> Request:
    return Request("", [User("m1", (Text("where"),))], calling=Calling(form=form))


def test_in_the_words_of_chat_completions() -> None:
    def sent(form: Form | None) -> object:
        body = ChatRequestCodec("m", "p", Profile()).body(asked(form))
        return json.loads(body).get("response_format")

    assert sent(None) is None
    assert sent(Form()) == {"type": "json_object"}
    whole = {"name": "city", "schema": SCHEMA, "strict": True}
    assert sent(Form(schema=SCHEMA, name="city", strict=True)) == {
        "type": "json_schema",
        "json_schema": whole,
    }


def test_in_the_words_of_responses() -> None:
    def sent(form: Form | None) -> object:
        body = ResponsesRequestCodec("m", "p", Profile()).body(asked(form))
        return json.loads(body).get("text")

    assert sent(None) is None
    assert sent(Form()) == {"format": {"type": "json_object"}}
    assert sent(Form(schema=SCHEMA, name="city")) == {
        "format": {"type": "json_schema", "name": "city", "schema": SCHEMA}
    }


@pytest.mark.parametrize(
    ("mode", "can"), [(CHAT, True), (RESPONSES, True), (ANTHROPIC, False), (GEMINI, False)]
)
def test_not_every_language_has_a_word_for_it(mode: str, can: bool) -> None:
    assert able(Profile(), mode, "some-model").forms is can
    assert not small_profile().forms
