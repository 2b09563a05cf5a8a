"""The blocking form, for programs that are not asynchronous."""

import sys

from hermes import AIAgent

agent = AIAgent()
print(agent.chat(" ".join(sys.argv[1:]) or "Say hello."))
