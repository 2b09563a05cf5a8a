"""What a tool said before, as the transcript has it."""

from collections.abc import Iterator, Sequence

from hermes.schema.messages import Assistant, Message, Result, ToolCall


def results(tool: str, messages: Sequence[Message]) -> Iterator[Result]:
    """The results of one tool's calls, the newest first.

    Some providers count their call ids anew in every answer, so a result belongs to the
    nearest call of its id before it.
    """
    waiting: list[Result] = []
    for message in reversed(messages):
        if isinstance(message, Result):
            waiting.append(message)
        elif waiting and isinstance(message, Assistant):
            here = {part.id: part.name for part in message.parts if isinstance(part, ToolCall)}
            yield from (result for result in waiting if here.get(result.call) == tool)
            waiting = [result for result in waiting if result.call not in here]
