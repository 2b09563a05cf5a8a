"""Print the events of a turn: text, tool calls, results, and the outcome."""

import asyncio
import sys

from hermes import Agent
from hermes.schema.events import MessageAdded, RunEnded, TextDelta, ToolStarted
from hermes.schema.messages import Result, text_of


async def main() -> None:
    prompt = " ".join(sys.argv[1:]) or "Which files are here?"
    async with Agent() as agent, agent.events(prompt) as events:
        async for event in events:
            match event:
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case ToolStarted(call=call):
                    print(f"\n[{call.name} {bytes(call.args).decode()}]")
                case MessageAdded(message=Result() as result):
                    print(f"[-> {text_of(result)[:200]}]")
                case RunEnded(outcome=outcome, usage=usage):
                    print(f"\n{outcome}: {usage.input} tokens in, {usage.output} out")
                case _:
                    pass


asyncio.run(main())
