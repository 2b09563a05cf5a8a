"""What a text may come from: everything in the model's sight that the person did not write.

Looked at only when something is about to be remembered. A name of a source is for people: the
tool and what it was asked for, or the first words of a message.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct, structs

from hermes.agent.bridge import meant
from hermes.agent.compression.view import STRANGE_SUMMARY, SUMMARY
from hermes.kit.text import one_line
from hermes.ports.tool import Sources, Tool
from hermes.schema.attachments import attached, own_text
from hermes.schema.messages import Assistant, Message, Result, ToolCall, Trust, User, text_of

OWN = frozenset({"memory", "skills", "todo", "clarify"})
"""Toolsets whose results are the house's own words, or the person's."""
RUN = 6
"""So many words in a row, the same as in a source and not the person's, are a quotation."""
FEWEST = 3
MOST_NAMES = 8
MOST_TEXT = 2_000_000
"""Characters of sources that are compared, the newest first."""
MOST_WRITTEN = 200_000
"""Characters of a text, and of a source, when all that is written is compared."""
MOST_OWN = 200
"""Messages of the owner's that are looked at for what they asked to remember, the last ones."""
_WORD = re.compile(r"\w+")
_NAMED = ("path", "url", "command", "query", "pattern", "goal", "name")


class Source(Struct, frozen=True):
    """`strange`: somebody else wrote it. `unverified`: somebody else may have written it."""

    name: str
    text: str
    strange: bool = False
    unverified: bool = False

    @property
    def is_trusted(self) -> bool:
        return not (self.strange or self.unverified)


def sources_for(
    text: str, said: Sequence[Message], tools: Mapping[str, Tool], used: Sequence[Source] = ()
) -> Sources:
    """`said` is all that the model sees; `used` is what tools got from other tools."""
    found = [*_sources(said, tools), *used]
    said_by_owner = [*_own_words(said)]
    own = " ".join(map(_words, said_by_owner))
    return Sources(
        strangers=_names(one for one in found if not one.is_trusted),
        read=_names(one for one in found if one.is_trusted),
        repeated=_names(_repeated(text, found, own)),
        own=tuple(said_by_owner[-MOST_OWN:]),
        quotes=any(_repeated(text, [one for one in found if not one.is_trusted], "")),
    )


def strangers_in(said: Sequence[Message], tools: Mapping[str, Tool]) -> bool:
    """Whether somebody else wrote, or may have written, something of it."""
    return any(not source.is_trusted for source in _sources(said, tools))


def quotes_strangers(
    text: str, said: Sequence[Message], tools: Mapping[str, Tool], used: Sequence[Source] = ()
) -> bool:
    """Whether a text, which may be long, has a run of words that a stranger wrote."""
    strange = [one for one in (*_sources(said, tools), *used) if one.strange]
    if not strange:
        return False
    runs = {*_runs(text[:MOST_WRITTEN])}
    length = len(next(iter(runs), "").split())
    for words in _own_words(said) if runs else ():
        runs.difference_update(_runs(words, length))
    room = MOST_TEXT // 4
    for source in reversed(strange):
        if not runs or room <= 0:
            return False
        room -= len(source.text)
        if not runs.isdisjoint(_runs(source.text[:MOST_WRITTEN], length)):
            return True
    return False


def source_of(call: ToolCall, tools: Mapping[str, Tool], text: str) -> Source | None:
    """None for words that are the house's own."""
    call = meant(call, tools)
    tool = tools.get(call.name)
    if tool is not None and tool.spec.toolset in OWN and not tool.spec.foreign:
        return None
    strange = tool is not None and tool.spec.foreign
    return Source(_called(call), text, strange or _reaches_out(call, tools))


def _reaches_out(call: ToolCall, tools: Mapping[str, Tool]) -> bool:
    """A command or a program that names an address, or a tool that strangers speak through."""
    args = bytes(call.args)
    if b"://" in args:
        return True
    return any(tool.spec.foreign and name.encode() in args for name, tool in tools.items())


def _sources(said: Sequence[Message], tools: Mapping[str, Tool]) -> Iterator[Source]:
    calls: dict[str, ToolCall] = {}
    for message in said:
        match message:
            case Assistant():
                calls |= {call.id: call for call in message.calls}
            case Result(call=id):
                call = calls.get(id)
                found = source_of(call, tools, text_of(message)) if call is not None else None
                if found is not None:
                    strange = found.strange or message.foreign
                    yield structs.replace(found, strange=strange, unverified=message.unverified)
            case User(trust=Trust.GUEST | Trust.DATA):
                text = text_of(message)
                who = "a guest" if message.trust is Trust.GUEST else "brought in"
                yield Source(f"{who}: “{one_line(text, 40)}”", text, strange=True)
            case User(id=id) if id.startswith(SUMMARY):
                strange = id.startswith(STRANGE_SUMMARY)
                yield Source("the summary of earlier messages", text_of(message), strange)
            case User():
                yield from _attached(message)


def _attached(message: User) -> Iterator[Source]:
    for one in attached(message):
        name = "a page attached" if one.strange else "a file attached"
        yield Source(name, one.text, one.strange, one.unverified)


def _called(call: ToolCall) -> str:
    """`read_file notes.md`: the tool, and what of its arguments says the most."""
    try:
        args = msgspec.json.decode(call.args, type=dict[str, object])
    except msgspec.DecodeError:
        args = {}
    given = [args[name] for name in _NAMED if isinstance(args.get(name), str)]
    return f"{call.name} {one_line(str(given[0]), 60)}" if given else call.name


def _own_words(said: Sequence[Message]) -> Iterator[str]:
    for message in said:
        if isinstance(message, User) and message.trust is Trust.OWNER:
            yield own_text(message)


def _repeated(text: str, found: Sequence[Source], own: str) -> Iterator[Source]:
    runs = [run for run in _runs(text) if f" {run} " not in f" {own} "]
    room = MOST_TEXT
    for source in reversed(found):
        if not runs or room <= 0:
            return
        room -= len(source.text)
        words = f" {_words(source.text)} "
        if any(f" {run} " in words for run in runs):
            yield source


def _runs(text: str, length: int = 0) -> list[str]:
    """Without a length: of the usual one, or all of a text that is shorter."""
    words = _words(text).split()
    if len(words) < FEWEST:
        return []
    length = length or min(RUN, len(words))
    return [" ".join(words[at : at + length]) for at in range(len(words) - length + 1)]


def _words(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))


def _names(sources: Iterator[Source]) -> tuple[str, ...]:
    names = list(dict.fromkeys(one.name for one in sources))
    left = len(names) - MOST_NAMES
    return (*names[-MOST_NAMES:], f"{left} more") if left > 0 else tuple(names)
