"""What a run has said, out of its messages."""

from collections.abc import Sequence

from hermes.schema.messages import Assistant, Message, Result, Stop, Trust, User


def final_text(messages: Sequence[Message]) -> str:
    """The answer of a run: its last words, joined with the pieces before a cut."""
    pieces: list[str] = []
    for message in reversed(messages):
        match message:
            case Assistant():
                if pieces and message.stop is not Stop.LENGTH:
                    break
                pieces.append(message.text)
            case User(trust=Trust.HOUSE):
                continue
            case User() | Result():
                break
    return "".join(reversed(pieces))
