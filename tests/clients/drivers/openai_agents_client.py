"""The OpenAI Agents SDK with both APIs; by default it uses responses, and hosted tools."""

import asyncio

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    WebSearchTool,
    function_tool,
    set_tracing_disabled,
)
from cases import AGENT, HELLO, KEY, RAIN, UNKNOWN, URL, expect, expect_error, run
from openai import AsyncOpenAI

set_tracing_disabled(True)


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


def agent(name=AGENT, tools=(), api=OpenAIResponsesModel):
    model = api(model=name, openai_client=AsyncOpenAI(base_url=URL, api_key=KEY))
    return Agent(name="tester", model=model, tools=list(tools))


def ask(question, text="hello"):
    return Runner.run_sync(question, text).final_output


async def streamed():
    result = Runner.run_streamed(agent(), "hello")
    async for _ in result.stream_events():
        pass
    return result.final_output


run(
    chat=lambda: expect(HELLO, ask(agent(api=OpenAIChatCompletionsModel))),
    stream=lambda: expect(HELLO, asyncio.run(streamed())),
    tool=lambda: expect(RAIN, ask(agent(tools=[weather, WebSearchTool()]), "the weather")),
    responses=lambda: expect(HELLO, ask(agent())),
    unknown_model=lambda: expect(HELLO, ask(agent(UNKNOWN))),
    error=lambda: expect_error(lambda: ask(agent(), "fail")),
)
