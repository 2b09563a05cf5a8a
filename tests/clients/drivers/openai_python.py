"""The official client, with chat completions and responses."""

import json

from cases import AGENT, HELLO, KEY, RAIN, UNKNOWN, URL, expect, expect_error, run
from openai import OpenAI

client = OpenAI(base_url=URL, api_key=KEY)
WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def ask(text, model=AGENT, **more):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model=model, messages=messages, **more)


def stream():
    chunks = ask("hello", stream=True, stream_options={"include_usage": True})
    return expect(HELLO, "".join(c.choices[0].delta.content or "" for c in chunks if c.choices))


def tool():
    tools = [{"type": "function", "function": WEATHER}]
    first = ask("the weather", tools=tools).choices[0].message
    (call,) = first.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    messages = [
        {"role": "user", "content": "the weather"},
        first.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "rain"},
    ]
    done = client.chat.completions.create(model=AGENT, messages=messages, tools=tools)
    return expect(RAIN, done.choices[0].message.content)


def responses():
    tools = [{"type": "web_search"}, {"type": "function", **WEATHER, "strict": False}]
    first = client.responses.create(model=AGENT, input="the weather", tools=tools)
    (call,) = [item for item in first.output if item.type == "function_call"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    done = client.responses.create(
        model=AGENT, input=[output], previous_response_id=first.id, tools=tools
    )
    return expect(RAIN, done.output_text)


run(
    chat=lambda: expect(HELLO, ask("hello").choices[0].message.content),
    stream=stream,
    tool=tool,
    responses=responses,
    unknown_model=lambda: expect(HELLO, ask("hello", UNKNOWN).choices[0].message.content),
    error=lambda: expect_error(lambda: ask("fail")),
)
