"""litellm with an OpenAI-compatible address."""

from cases import AGENT, HELLO, KEY, RAIN, UNKNOWN, URL, expect, expect_error, run
from litellm import completion, responses

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


def ask(text, model=AGENT, **more):
    messages = [{"role": "user", "content": text}] if isinstance(text, str) else text
    return completion(model=f"openai/{model}", messages=messages, api_base=URL, api_key=KEY, **more)


def tool():
    first = ask("the weather", tools=TOOLS).choices[0].message
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "rain"}
    messages = [{"role": "user", "content": "the weather"}, first.model_dump(), result]
    return expect(RAIN, ask(messages, tools=TOOLS).choices[0].message.content)


def stream():
    chunks = ask("hello", stream=True)
    return expect(HELLO, "".join(one.choices[0].delta.content or "" for one in chunks))


def respond(text):
    answer = responses(model=f"openai/{AGENT}", input=text, api_base=URL, api_key=KEY)
    return answer.output[-1].content[0].text


run(
    chat=lambda: expect(HELLO, ask("hello").choices[0].message.content),
    stream=stream,
    tool=tool,
    responses=lambda: expect(HELLO, respond("hello")),
    unknown_model=lambda: expect(HELLO, ask("hello", UNKNOWN).choices[0].message.content),
    error=lambda: expect_error(lambda: ask("fail")),
)
