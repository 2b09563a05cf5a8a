"""pydantic-ai with its two OpenAI models."""

import asyncio

from cases import AGENT, HELLO, KEY, RAIN, UNKNOWN, URL, expect, expect_error, run
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


def agent(name=AGENT, model=OpenAIChatModel):
    return Agent(model(name, provider=OpenAIProvider(base_url=URL, api_key=KEY)))


def tool():
    tool_agent = agent()

    @tool_agent.tool_plain
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    return expect(RAIN, tool_agent.run_sync("the weather").output)


async def streamed():
    async with agent().run_stream("hello") as answer:
        return "".join([text async for text in answer.stream_text(delta=True)])


run(
    chat=lambda: expect(HELLO, agent().run_sync("hello").output),
    stream=lambda: expect(HELLO, asyncio.run(streamed())),
    tool=tool,
    responses=lambda: expect(HELLO, agent(model=OpenAIResponsesModel).run_sync("hello").output),
    unknown_model=lambda: expect(HELLO, agent(UNKNOWN).run_sync("hello").output),
    error=lambda: expect_error(lambda: agent().run_sync("fail")),
)
