"""Ask one question with the blocking API, for programs without asyncio."""

import sys

from hermes import AIAgent

agent = AIAgent()
print(agent.chat(" ".join(sys.argv[1:]) or "Say hello."))
