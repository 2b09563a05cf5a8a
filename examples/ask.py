"""Ask one question and print the answer."""

import asyncio
import sys

from hermes import Agent


async def main() -> None:
    async with Agent() as agent:
        print(await agent.ask(" ".join(sys.argv[1:]) or "Say hello."))


asyncio.run(main())
