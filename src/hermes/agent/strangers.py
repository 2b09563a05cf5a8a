"""Whether words of strangers are in a turn: what they say may look like a wish of the owner."""

from collections.abc import Mapping, Sequence

from msgspec import structs

from hermes.agent.bridge import meant
from hermes.agent.sources import Source, source_of
from hermes.ports.tool import Output, Tool
from hermes.schema.attachments import is_strange
from hermes.schema.messages import Assistant, Message, Result, ToolCall, Trust, User

MOST_USED = 200


class Strangers:
    """Once heard they stay in the turn to its end."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools
        self._calls: dict[str, str] = {}
        self.heard = False
        self.said: list[Message] = []
        self.used_by_tools: list[Source] = []
        """What tools got from other tools, which is in no message."""

    def hear(self, message: Message) -> None:
        self.said.append(message)
        match message:
            case User():
                self.heard |= is_strange(message)
            case Assistant(calls=calls):
                self._calls |= {call.id: meant(call, self._tools).name for call in calls}
            case Result(call=call, foreign=foreign):
                self.heard |= foreign
                self.used(self._calls.get(call, ""))

    def used(self, name: str) -> None:
        """A tool has answered, perhaps with what others wrote."""
        tool = self._tools.get(name)
        self.heard |= tool is not None and tool.spec.foreign

    def got(self, call: ToolCall, text: str, output: Output) -> None:
        """A tool has called another one, and this is what came back."""
        self.used(call.name)
        source = source_of(call, self._tools, text)
        if source is not None and len(self.used_by_tools) < MOST_USED:
            strange = source.strange or output.foreign
            found = structs.replace(source, strange=strange, unverified=output.unverified)
            self.used_by_tools.append(found)

    def recall(self, history: Sequence[Message]) -> None:
        """For a turn that goes on where it was cut off: all since the last question."""
        questions = [
            place
            for place, message in enumerate(history)
            if isinstance(message, User) and message.trust is not Trust.HOUSE
        ]
        for message in history[questions[-1] :] if questions else ():
            self.hear(message)
