"""instructor, which asks for objects through tools."""

import instructor
from cases import AGENT, KEY, UNKNOWN, URL, expect, expect_error, run
from openai import OpenAI
from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    name: str


client = instructor.from_openai(OpenAI(base_url=URL, api_key=KEY))


def ask(text, model=AGENT):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(
        model=model, messages=messages, response_model=City, max_retries=1
    )


def stream():
    messages = [{"role": "user", "content": "extract in parts"}]
    parts = client.chat.completions.create_partial(
        model=AGENT, messages=messages, response_model=City
    )
    return expect("Oslo", list(parts)[-1].name)


run(
    tool=lambda: expect("Oslo", ask("extract the city").name),
    stream=stream,
    unknown_model=lambda: expect("Oslo", ask("extract the city", UNKNOWN).name),
    error=lambda: expect_error(lambda: ask("fail")),
)
