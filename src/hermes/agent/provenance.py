"""Track where text comes from: which sources the model has seen that its user did not write.

Computed only when something is about to be remembered. Source names are for people: the tool
and its main argument, or the beginning of a message.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, structs

from hermes.agent.answers import unwrap_call
from hermes.kit.text import one_line
from hermes.ports.tool import TextSources, Tool, ToolOutput
from hermes.schema.call_label import call_label
from hermes.schema.messages import (
    Assistant,
    Message,
    Result,
    ToolCall,
    Trust,
    User,
    attachments_of,
    has_untrusted_text,
    text_of,
    typed_text,
)

SUMMARY_ID = "msg_summary_"
"""Prefix of a summary's id, followed by the id of the first message after it."""
UNTRUSTED_SUMMARY_ID = f"{SUMMARY_ID}strange_"
"""The same for a summary that covers untrusted content."""
QUOTE_WORDS = 6
"""This many equal consecutive words, not written by the user, are a quote."""
MIN_WORDS = 3
MAX_NAMES = 8
MAX_TOOL_SOURCES = 200
MAX_COMPARED = 2_000_000
"""Characters of sources to compare, newest first."""
MAX_WRITTEN = 200_000
"""Maximum characters of a text and of a source when whole files are compared."""
MAX_OWNER_MESSAGES = 200
"""How many of the owner's last messages are checked for what they asked to remember."""
_WORD = re.compile(r"\w+")


class TextSource(Struct, frozen=True):
    """A text with a name to show people."""

    name: str
    text: str
    untrusted: bool = False  # written by someone else
    unverified: bool = False  # may have been written by someone else

    @property
    def is_trusted(self) -> bool:
        return not (self.untrusted or self.unverified)


def find_sources(
    text: str,
    messages: Sequence[Message],
    tools: Mapping[str, Tool],
    nested: Sequence[TextSource] = (),
) -> TextSources:
    """Find the sources of a text in the messages the model sees and in nested tool results."""
    sources = [*_text_sources(messages, tools), *nested]
    owner_texts = [*_owner_texts(messages)]
    own = " ".join(map(_normalized, owner_texts))
    untrusted = [source for source in sources if not source.is_trusted]
    return TextSources(
        untrusted=_source_names(untrusted),
        trusted=_source_names(source for source in sources if source.is_trusted),
        quoted=_source_names(_quoted_sources(text, sources, own)),
        own=tuple(owner_texts[-MAX_OWNER_MESSAGES:]),
        quotes=any(_quoted_sources(text, untrusted, "")),
    )


def contains_untrusted(messages: Sequence[Message], tools: Mapping[str, Tool]) -> bool:
    """Whether any of the messages was, or may have been, written by someone else."""
    return any(not source.is_trusted for source in _text_sources(messages, tools))


def quotes_untrusted(
    text: str,
    messages: Sequence[Message],
    tools: Mapping[str, Tool],
    nested: Sequence[TextSource] = (),
) -> bool:
    """Whether a text, which may be long, repeats consecutive untrusted words."""
    sources = (*_text_sources(messages, tools), *nested)
    untrusted = [source for source in sources if source.untrusted]
    if not untrusted:
        return False
    runs = {*_word_runs(text[:MAX_WRITTEN])}
    length = len(next(iter(runs), "").split())
    for owner_text in _owner_texts(messages) if runs else ():
        runs.difference_update(_word_runs(owner_text, length))
    room = MAX_COMPARED // 4
    for source in reversed(untrusted):
        if not runs or room <= 0:
            return False
        room -= len(source.text)
        if not runs.isdisjoint(_word_runs(source.text[:MAX_WRITTEN], length)):
            return True
    return False


def source_of_call(call: ToolCall, tools: Mapping[str, Tool], text: str) -> TextSource | None:
    """The source for a call's result; None for results that Hermes itself wrote."""
    call = unwrap_call(call, tools)
    tool = tools.get(call.name)
    untrusted = tool is not None and tool.spec.foreign
    if tool is not None and tool.spec.own and not untrusted:
        return None
    # The arguments may contain a URL or name a tool with untrusted results.
    args = bytes(call.args)
    untrusted |= b"://" in args or any(
        other.spec.foreign and name.encode() in args for name, other in tools.items()
    )
    return TextSource(call_label(call, 60), text, untrusted)


def _text_sources(messages: Sequence[Message], tools: Mapping[str, Tool]) -> Iterator[TextSource]:
    calls: dict[str, ToolCall] = {}
    for message in messages:
        match message:
            case Assistant():
                calls |= {call.id: call for call in message.calls}
            case Result(call=id):
                call = calls.get(id)
                if call and (found := source_of_call(call, tools, text_of(message))):
                    yield structs.replace(
                        found,
                        untrusted=found.untrusted or message.foreign,
                        unverified=message.unverified,
                    )
            case User(trust=Trust.GUEST | Trust.DATA):
                text = text_of(message)
                who = "a guest" if message.trust is Trust.GUEST else "brought in"
                yield TextSource(f"{who}: “{one_line(text, 40)}”", text, untrusted=True)
            case User(id=id) if id.startswith(SUMMARY_ID):
                untrusted = id.startswith(UNTRUSTED_SUMMARY_ID)
                yield TextSource("the summary of earlier messages", text_of(message), untrusted)
            case User():
                for found in attachments_of(message):
                    name = "a page attached" if found.untrusted else "a file attached"
                    yield TextSource(name, found.text, found.untrusted, found.unverified)


def _owner_texts(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, User) and message.trust is Trust.OWNER:
            yield typed_text(message)


def _quoted_sources(text: str, found: Sequence[TextSource], own: str) -> Iterator[TextSource]:
    runs = [run for run in _word_runs(text) if f" {run} " not in f" {own} "]
    room = MAX_COMPARED
    for source in reversed(found):
        if not runs or room <= 0:
            return
        room -= len(source.text)
        words = f" {_normalized(source.text)} "
        if any(f" {run} " in words for run in runs):
            yield source


def _word_runs(text: str, length: int = 0) -> list[str]:
    """Word sequences of this length; by default the quote length, or the whole short text."""
    words = _normalized(text).split()
    if len(words) < MIN_WORDS:
        return []
    length = length or min(QUOTE_WORDS, len(words))
    return [" ".join(words[at : at + length]) for at in range(len(words) - length + 1)]


def _normalized(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))


def _source_names(sources: Iterable[TextSource]) -> tuple[str, ...]:
    names = list(dict.fromkeys(source.name for source in sources))
    left = len(names) - MAX_NAMES
    return (*names[-MAX_NAMES:], f"{left} more") if left > 0 else tuple(names)


class UntrustedContent(Struct):
    """Tracks untrusted content in a turn; once present, it stays until the end."""

    _tools: Mapping[str, Tool]
    _calls: dict[str, str] = {}
    present: bool = False
    messages: list[Message] = []
    nested_sources: list[TextSource] = []
    """Results of nested tool calls, which are not in any message."""

    def add(self, message: Message) -> None:
        self.messages.append(message)
        match message:
            case User():
                self.present |= has_untrusted_text(message)
            case Assistant(calls=calls):
                self._calls |= {call.id: unwrap_call(call, self._tools).name for call in calls}
            case Result(call=call, foreign=foreign):
                self.present |= foreign
                self.tool_used(self._calls.get(call, ""))

    def tool_used(self, name: str) -> None:
        """Record that a tool returned, possibly with untrusted content."""
        tool = self._tools.get(name)
        self.present |= tool is not None and tool.spec.foreign

    def add_nested_result(self, call: ToolCall, text: str, output: ToolOutput) -> None:
        self.tool_used(call.name)
        source = source_of_call(call, self._tools, text)
        if source is not None and len(self.nested_sources) < MAX_TOOL_SOURCES:
            untrusted = source.untrusted or output.foreign
            found = structs.replace(source, untrusted=untrusted, unverified=output.unverified)
            self.nested_sources.append(found)

    def resume(self, history: Sequence[Message]) -> None:
        """Restore the state of a resumed turn from the messages since the last question."""
        questions = [
            index
            for index, message in enumerate(history)
            if isinstance(message, User) and message.trust is not Trust.PROGRAM
        ]
        for message in history[questions[-1] :] if questions else ():
            self.add(message)
