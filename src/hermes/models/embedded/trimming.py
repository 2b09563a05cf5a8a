"""How much of a conversation a small model is shown: its end, and of long texts both ends.

The beginning moves in large steps, each a function of the messages alone, so that from one
request to the next almost everything stays where it was and need not be read again.
"""

from collections.abc import Sequence

from hermes.schema.messages import Assistant, Message, Result, Text, ToolCall, User

LONGEST_TEXT = 3_000
"""Characters of one message: about 800 tokens, which take one core half a minute to read."""
MOST = 9_000
"""Characters of all messages; beyond it the older half is left out."""


def cut(text: str, limit: int = LONGEST_TEXT) -> str:
    """The beginning and the end, with a word about what is missing."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    return f"{text[: limit - tail]}\n[… {len(text) - limit} characters left out …]\n{text[-tail:]}"


def recent(messages: Sequence[Message], most: int = MOST) -> Sequence[Message]:
    """From a question on; the last one is always there, however long its turn is."""
    sizes = [_size(one) for one in messages]
    questions = [at for at, one in enumerate(messages) if isinstance(one, User)]
    start, held = 0, 0
    for at, size in enumerate(sizes):
        held += size
        if held <= most:
            continue
        ahead = [later for later in questions if start < later <= at]
        fits = (later for later in ahead if sum(sizes[later : at + 1]) <= most // 2)
        start = next(fits, ahead[-1] if ahead else start)
        held = sum(sizes[start : at + 1])
    return messages[start:]


def _size(message: Message) -> int:
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    size = sum(min(len(text), LONGEST_TEXT) for text in texts)
    match message:
        case Assistant():
            return size + sum(
                len(bytes(one.args)) for one in message.parts if isinstance(one, ToolCall)
            )
        case User() | Result():
            return size
