"""Assemble the visible answer text of a turn, identical for streamed, returned and stored answers.

Answers within one turn are separated by a blank line, unless the previous one was cut off and the
next continues it.
"""

from collections.abc import Iterable

from msgspec import Struct

from hermes.schema.messages import Assistant, Message, Reasoning, Stop

ANSWER_SEPARATOR = "\n\n"


def assistant_text(messages: Iterable[Message]) -> str:
    """Return the text of all assistant messages."""
    text = ""
    cut = False
    for message in messages:
        if isinstance(message, Assistant):
            text = join_answers(text, message.text, cut=cut) if text else message.text
            cut = message.stop is Stop.LENGTH
    return text


def reasoning_of(message: Assistant) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Reasoning))


def join_answers(text: str, more: str, *, cut: bool) -> str:
    return f"{text}{more}" if cut or not text or not more else f"{text}{ANSWER_SEPARATOR}{more}"


class AnswerTextStream(Struct):
    """Decide what to send of a growing answer, so that the sent text equals the stored text.

    Sent text cannot be withdrawn. When an answer restarts, nothing is sent until it grows past the
    text already sent; if it diverges, `diverged` is set and sending stops unless the caller handles
    the divergence with `take_divergence`.
    """

    diverged: bool = False
    _completed: str = ""
    _cut: bool = False
    _sent_parts: list[str] = []
    _current: str = ""
    _sent: str = ""
    _catching_up: bool = False
    _divergence: tuple[str, str] | None = None

    @property
    def text(self) -> str:
        """The text completed and stored so far."""
        return self._completed

    def delta(self, text: str) -> str:
        """Return what to send after the answer has grown by `text`."""
        if self.diverged or not text:
            return ""
        if not self._catching_up:
            self._sent_parts.append(text)
            begins = self._completed and len(self._sent_parts) == 1
            return self._with_separator(text) if begins else text
        self._current += text
        return "" if self._sent.startswith(self._current) else self._catch_up()

    def reset(self) -> None:
        """Start the current answer over."""
        self._current = ""
        self._sent = "".join(self._sent_parts)
        self._catching_up = bool(self._sent)

    def take_divergence(self) -> tuple[str, str] | None:
        """After a divergence, return the text that stays and the text that now follows it, once.

        The caller passes both on to the client; sending then continues as before.
        """
        diverged, self._divergence = self._divergence, None
        if diverged is not None:
            self.diverged = False
        return diverged

    def finish(self, answer: Assistant) -> str:
        """Complete the current answer and return the part not sent yet."""
        text = self._current = answer.text
        self._sent = "".join(self._sent_parts)
        more = "" if self.diverged or text == self._sent else self._catch_up()
        done = self._completed
        self._completed = join_answers(done, text, cut=self._cut) if done else text
        self._cut = answer.stop is Stop.LENGTH
        self._sent_parts = []
        self._catching_up = False
        return more

    def _catch_up(self) -> str:
        if not self._current.startswith(self._sent):
            self.diverged = True
            self._divergence = self._completed, self._with_separator(self._current)
            self._sent_parts = [self._current] if self._current else []
            self._catching_up = False
            return ""
        begins = not self._sent
        more = self._current[len(self._sent) :]
        self._sent_parts = [self._current]
        self._catching_up = False
        return self._with_separator(more) if begins and more else more

    def _with_separator(self, text: str) -> str:
        """Prefix the separator if an earlier answer precedes the text."""
        return f"{ANSWER_SEPARATOR}{text}" if self._completed and text and not self._cut else text
