"""What a tool said before, as the transcript has it."""

from collections.abc import Iterator, Sequence

from hermes.schema.messages import Assistant, Message, Result


def results(tool: str, messages: Sequence[Message]) -> Iterator[Result]:
    """The results of one tool's calls, the newest first.

    Some providers count their call ids anew in every answer, so a result belongs to the
    nearest call of its id before it.
    """
    names: dict[str, str] = {}
    found: list[Result] = []
    for message in messages:
        match message:
            case Assistant():
                names.update((call.id, call.name) for call in message.calls)
            case Result() if names.get(message.call) == tool:
                found.append(message)
            case _:
                continue
    return reversed(found)
