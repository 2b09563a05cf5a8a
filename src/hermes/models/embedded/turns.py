"""What has happened since the last question: which steps were taken, what they found, what is left.

As long as something that the question names was not touched by any step, a small model is not
done, whatever it says.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from hermes.models.embedded.asked import (
    LONGEST,
    addresses_in,
    named_in,
    wants_it_done,
    wants_it_kept,
    wants_to_know,
)
from hermes.models.embedded.plainly import is_silent, plain_result
from hermes.models.embedded.trimming import cut
from hermes.schema.messages import Assistant, Message, Result, ToolCall, User, text_of

MOST_BEFORE = 800
"""Characters of earlier results that are said again beside a later one."""
MOST_HELD = 4
"""Steps after which nobody is held to names any more: they may not be what they look like."""
_WORD = re.compile(r"\w[\w.-]*\w|\d")
_COMMON = frozenset({"the", "and", "for", "are", "was", "has", "you", "not", "but", "its", "this"})
"""Words that say nothing about where they come from; those of two letters do not, either."""
_NUMBERS = {
    word: str(number)
    for number, word in enumerate(
        ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    )
}
_LOOKING = frozenset({"read_file", "search_files"})


class Step(Struct, frozen=True):
    """A call and what it came to, in plain words."""

    call: ToolCall
    told: str
    failed: bool = False

    @property
    def silent(self) -> bool:
        """It did something, and there is nothing to read about it."""
        return is_silent(self.told)

    @property
    def label(self) -> str:
        """What the result is the result of."""
        if self.failed:
            return "Error:"
        try:
            args = msgspec.json.decode(self.call.args, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return "Result:"
        match self.call.name:
            case "read_file":
                return f"{args.get('path')} says:"
            case "terminal" if not self.silent:
                return f"`{cut(str(args.get('command')), LONGEST)}` printed:"
            case _:
                return "Result:"


class Turn:
    """From a question on, as it is heard message by message.

    `holds` says whether there are tools for files at all, so that names can be touched.
    """

    def __init__(self, asked: str = "", *, holds: bool = True) -> None:
        self.asked = cut(asked, LONGEST)
        self._named = named_in(self.asked) if holds else []
        self._pages = addresses_in(asked)
        self.steps: list[Step] = []
        self.calls: list[ToolCall] = []

    def end(self, result: Result) -> Step:
        made = (one for one in self.calls if one.id == result.call)
        call = next(made, ToolCall(result.call, "", Raw(b"{}")))
        told, failed = plain_result(result)
        step = Step(call, told, failed)
        self.steps.append(step)
        return step

    @property
    def left(self) -> list[str]:
        """What the question names and no step has touched; nothing before the first step."""
        if not self.steps or self.steps[-1].failed or len(self.steps) >= MOST_HELD:
            return []
        if wants_to_know(self.asked) and [self.steps[-1].told.removeprefix("./")] == self._named:
            # It has got the name of the file, which was known, and not what is in it.
            return self._named
        touched = "\n".join(f"{bytes(one.call.args).decode()}\n{one.told}" for one in self.steps)
        return [name for name in self._named if name not in touched]

    @property
    def is_known(self) -> bool:
        """What was to be known has been read: it only has to be said."""
        last = self.steps[-1] if self.steps else None
        if last is None or last.failed or last.call.name != "read_file":
            return False
        if _file_of(last.call) not in self.asked:
            return False
        return wants_to_know(self.asked) and not wants_it_done(self.asked) and not self.left

    @property
    def before(self) -> str:
        """What was found before the last step, where it is little: it may belong together."""
        found = [one for one in self._found if one is not self.steps[-1]]
        words = "\n".join(f"{one.label} {one.told}" for one in found)
        return words if len(words) <= MOST_BEFORE else ""

    @property
    def _found(self) -> list[Step]:
        return [one for one in self.steps if not (one.failed or one.silent)]

    @property
    def is_going_round(self) -> bool:
        """Whether the last call was made before in this turn: then it is time to say something."""
        made = [_written(one) for one in self.calls]
        return len(made) > 1 and made[-1] in made[:-1]

    def repeated(self, calls: Sequence[ToolCall]) -> bool:
        """Whether these were all made, and nothing but looking was done since."""
        made = [_written(one) for one in self.calls]
        last = max((at for at, one in enumerate(self.calls) if _changes(one)), default=0)
        return bool(calls) and all(_written(call) in made[last:] for call in calls)

    @property
    def has_failed(self) -> bool:
        """Whether the last step came to nothing."""
        return bool(self.steps) and self.steps[-1].failed

    @property
    def unopened(self) -> list[str]:
        """Pages that the question names and no step got anything from, or did anything with."""
        used = [one.call for one in self.steps if not (one.failed or _came_to_nothing(one))]
        touched = "\n".join(bytes(call.args).decode() for call in used)
        return [page for page in self._pages if page not in touched]

    @property
    def is_lost(self) -> bool:
        """Whether something was to be remembered, and not put where the question says."""
        done = any(one.silent and not one.failed for one in self.steps)
        return wants_it_kept(self.asked) and not (done and self._named)

    def lacking(self, reply: str) -> str:
        """What was found, when the reply has not a word of it that was not in the question."""
        known, said = _words(self.asked), _words(reply)
        news = [(one, _words(one.told) - known) for one in self._found]
        if not self._found or self.steps[-1].silent or any(words & said for _, words in news):
            return ""
        return "\n".join(cut(one.told, MOST_BEFORE) for one, words in news if words)


def turn_of(messages: Sequence[Message], *, holds: bool = True) -> Turn:
    """The one that goes on."""
    turn = Turn()
    for message in messages:
        match message:
            case User():
                turn = Turn(text_of(message), holds=holds)
            case Assistant():
                turn.calls += message.calls
            case Result():
                turn.end(message)
    return turn


def _written(call: ToolCall) -> tuple[str, bytes]:
    return call.name, bytes(call.args)


def _file_of(call: ToolCall) -> str:
    try:
        path = msgspec.json.decode(call.args, type=dict[str, object]).get("path")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return str(path).rpartition("/")[2]


def _came_to_nothing(step: Step) -> bool:
    """A command that printed nothing, and kept nothing in a file either."""
    kept = re.search(rb">|\s-[oO]", bytes(step.call.args))
    return step.call.name == "terminal" and step.silent and not kept


def _changes(call: ToolCall) -> bool:
    return call.name not in _LOOKING


def _words(text: str) -> set[str]:
    lower = (one.group().lower().strip(".") for one in _WORD.finditer(text))
    found = (_NUMBERS.get(one, one) for one in lower)
    return {one for one in found if one.isdigit() or (len(one) > 2 and one not in _COMMON)}
