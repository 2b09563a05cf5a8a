"""The OpenAI Agents SDK, which uses the Responses API and hosted tools."""

import asyncio

from agents import (
    Agent,
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


def agent(name=AGENT, tools=()):
    client = AsyncOpenAI(base_url=URL, api_key=KEY)
    model = OpenAIResponsesModel(model=name, openai_client=client)
    return Agent(name="tester", model=model, tools=list(tools))


async def streamed():
    result = Runner.run_streamed(agent(), "hello")
    async for _ in result.stream_events():
        pass
    return result.final_output


run(
    chat=lambda: expect(HELLO, Runner.run_sync(agent(), "hello").final_output),
    stream=lambda: expect(HELLO, asyncio.run(streamed())),
    tool=lambda: expect(
        RAIN, Runner.run_sync(agent(tools=[weather, WebSearchTool()]), "the weather").final_output
    ),
    unknown_model=lambda: expect(HELLO, Runner.run_sync(agent(UNKNOWN), "hello").final_output),
    error=lambda: expect_error(lambda: Runner.run_sync(agent(), "fail")),
)
