"""LangChain's OpenAI integration."""

from cases import AGENT, HELLO, KEY, RAIN, UNKNOWN, URL, expect, expect_error, run
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool as as_tool
from langchain_openai import ChatOpenAI


def chat_model(name=AGENT, **more):
    return ChatOpenAI(model=name, base_url=URL, api_key=KEY, **more)


@as_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return "rain" if city == "Oslo" else "unknown"


def tool():
    model = chat_model().bind_tools([weather])
    messages = [HumanMessage("the weather")]
    first = model.invoke(messages)
    (call,) = first.tool_calls
    result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
    return expect(RAIN, model.invoke([*messages, first, result]).content)


run(
    chat=lambda: expect(HELLO, chat_model().invoke("hello").content),
    stream=lambda: expect(HELLO, "".join(one.content for one in chat_model().stream("hello"))),
    tool=tool,
    responses=lambda: expect(HELLO, chat_model(use_responses_api=True).invoke("hello").text),
    unknown_model=lambda: expect(HELLO, chat_model(UNKNOWN).invoke("hello").content),
    error=lambda: expect_error(lambda: chat_model().invoke("fail")),
)
