"""The visible words of a turn: the same whether they are streamed, returned or read back.

Several answers of one turn are parted by a blank line, except where the first was cut off
and the next goes on in the middle of it.
"""

from collections.abc import Iterable

from hermes.schema.messages import Assistant, Message, Reasoning, Stop

ANSWER_SEPARATOR = "\n\n"


def assistant_text(messages: Iterable[Message]) -> str:
    """All that the assistant said in these messages."""
    text = ""
    cut = False
    for message in messages:
        if isinstance(message, Assistant):
            text = join_answers(text, message.text, cut=cut)
            cut = message.stop is Stop.LENGTH
    return text


def assistant_reasoning(messages: Iterable[Message]) -> str:
    """What the model let see of its thoughts meanwhile."""
    thoughts = [reasoning_of(one) for one in messages if isinstance(one, Assistant)]
    return ANSWER_SEPARATOR.join(filter(None, thoughts))


def reasoning_of(message: Assistant) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Reasoning))


def join_answers(text: str, more: str, *, cut: bool) -> str:
    return f"{text}{more}" if cut or not text or not more else f"{text}{ANSWER_SEPARATOR}{more}"


class AnswerTextStream:
    """What of a growing text may be sent, so that the whole is the text that is kept.

    What was sent cannot be taken back. When an answer starts over, nothing is sent until it
    has come past what is out already; if it goes another way, `broken` is set and nothing
    more is sent, unless somebody takes it up with `renewed`.
    """

    def __init__(self) -> None:
        self._before = ""
        self._cut = False
        self._out: list[str] = []
        self._now = ""
        self._sent = ""
        self._behind = False
        self._anew: tuple[str, str] | None = None
        self.broken = False

    @property
    def text(self) -> str:
        """What was said and kept so far."""
        return self._before

    def delta(self, text: str) -> str:
        """What to send now that the answer has grown by this."""
        if self.broken or not text:
            return ""
        if not self._behind:
            self._out.append(text)
            return text if len(self._out) > 1 else self._with_separator(text)
        self._now += text
        return "" if self._sent.startswith(self._now) else self._catch_up()

    def reset(self) -> None:
        """The answer starts over."""
        self._now = ""
        self._sent = "".join(self._out)
        self._behind = bool(self._sent)

    def renewed(self) -> tuple[str, str] | None:
        """Once after it broke: what stays of all that was sent, and what follows it now.

        Whoever takes it tells that to the client, and then it goes on as before.
        """
        anew, self._anew = self._anew, None
        if anew is not None:
            self.broken = False
        return anew

    def said(self, answer: Assistant) -> str:
        """The answer is whole and kept; returns what of it was not sent yet."""
        self._now, self._sent = answer.text, "".join(self._out)
        more = "" if self.broken else self._catch_up()
        self._before = join_answers(self._before, answer.text, cut=self._cut)
        self._cut = answer.stop is Stop.LENGTH
        self._out = []
        self._behind = False
        return more

    def _catch_up(self) -> str:
        if not self._now.startswith(self._sent):
            self.broken = True
            self._anew = self._before, self._with_separator(self._now)
            self._out = [self._now] if self._now else []
            self._behind = False
            return ""
        begins = not self._sent
        more = self._now[len(self._sent) :]
        self._out = [self._now]
        self._behind = False
        return self._with_separator(more) if begins and more else more

    def _with_separator(self, text: str) -> str:
        """With what parts it from the answer before."""
        return f"{ANSWER_SEPARATOR}{text}" if self._before and text and not self._cut else text
