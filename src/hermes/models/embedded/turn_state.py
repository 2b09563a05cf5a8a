"""Analyze a question without a model: the names in it, and what it asks for.

This recognizes English words; for other languages the small model decides alone.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from hermes.models.embedded.result_text import has_no_output, plain_result, shorten_text
from hermes.schema.messages import Assistant, Message, Result, ToolCall, User, text_of

MAX_QUESTION = 300
_FILES = (
    r"(?<![\w/.@:~-])\w[\w.-]*\.(?:txt|md|csv|tsv|json|ya?ml|toml|ini|cfg|xml|html?|log|py|sh)\b"
)
_QUOTED = r"(?<!\w)(?:'([^'\n]{1,80})'|\"([^\"\n]{1,80})\"|“([^”\n]{1,80})”|`([^`\n]{1,80})`)(?!\w)"
_NAMED = re.compile(f"(?P<file>{_FILES})|{_QUOTED}")
_ADDRESS = re.compile(r"https?://[^\s<>\"'`“”]+", re.IGNORECASE)
_TRAILING_PUNCTUATION = ".,;:!?)]}"
"""Punctuation that may follow a URL."""
_ASKS_FOR_INFORMATION = re.compile(
    r"\b(?:who|whom|whose|which|what|when|where|why|how)\b.*\?"
    r"|\b(?:tell|show|list|count|explain|describe|compare|summari[sz]e|summary)\b",
    re.IGNORECASE | re.DOTALL,
)
_ASKS_FOR_ACTION = re.compile(
    r"\b(?:add|append|change|copy|correct|create|delete|edit|fix|insert|make|move|put|remove|rename"
    r"|replace|save|store|update|write)\b",
    re.IGNORECASE,
)
_ASKS_TO_REMEMBER = re.compile(
    r"\b(?:please|always|also|and|must|should)\s+remember\b|^\W*remember\b(?!\s+(?:when|how)\b)"
    r"|\b(?:can|could|will|would) you (?:please )?remember (?:that|this|my|it)\b"
    r"|\b(?:don['\u2019]?t|do not|never) forget\b|\bkeep in mind\b|\bmemori[sz]e\b"
    r"|\bfrom now on\b|\bnext time\b",
    re.IGNORECASE,
)


def names_in(question: str) -> list[str]:
    """Return the files and quoted words, all of which must occur in the steps of the turn."""
    found = (
        (one["file"] or next(filter(None, one.groups()), "")) for one in _NAMED.finditer(question)
    )
    return list(dict.fromkeys(filter(None, found)))


def urls_in(question: str) -> list[str]:
    return list(
        dict.fromkeys(one.rstrip(_TRAILING_PUNCTUATION) for one in _ADDRESS.findall(question))
    )


def asks_for_information(question: str) -> bool:
    return _ASKS_FOR_INFORMATION.search(question) is not None


def asks_for_action(question: str) -> bool:
    return _ASKS_FOR_ACTION.search(question) is not None


def asks_to_remember(question: str) -> bool:
    """Return whether later conversations should know something."""
    return _ASKS_TO_REMEMBER.search(question) is not None


MAX_EARLIER_RESULTS = 800
"""Characters of earlier results to repeat with a later one."""
MAX_CHECKED_STEPS = 4
"""Steps after which names are no longer checked: they may not be what they look like."""
_WORD = re.compile(r"\w[\w.-]*\w|\d")
_COMMON = frozenset({"the", "and", "for", "are", "was", "has", "you", "not", "but", "its", "this"})
"""Words that do not show where a text comes from; nor do words of two letters."""
_NUMBERS = {
    word: str(number)
    for number, word in enumerate(
        ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    )
}
_READING_TOOLS = frozenset({"read_file", "search_files"})


class ToolStep(Struct, frozen=True):
    """A call and its result as plain text."""

    call: ToolCall
    output: str
    failed: bool = False

    @property
    def silent(self) -> bool:
        """Whether the step succeeded without output."""
        return has_no_output(self.output)

    @property
    def label(self) -> str:
        if self.failed:
            return "Error:"
        args = call_arguments(self.call)
        match self.call.name if args else "":
            case "read_file":
                return f"{args.get('path')} says:"
            case "terminal" if not self.silent:
                return f"`{shorten_text(str(args.get('command')), MAX_QUESTION)}` printed:"
            case _:
                return "Result:"


class TurnState:
    """A turn since its question, updated message by message.

    `has_file_tools` says whether there are file tools at all, so that names can be checked.
    """

    def __init__(self, question: str = "", *, has_file_tools: bool = True) -> None:
        self.question = shorten_text(question, MAX_QUESTION)
        self._named = names_in(self.question) if has_file_tools else []
        self._pages = urls_in(question)
        self.steps: list[ToolStep] = []
        self.calls: list[ToolCall] = []

    def add_result(self, result: Result) -> ToolStep:
        matching = (tool_call for tool_call in self.calls if tool_call.id == result.call)
        call = next(matching, ToolCall(result.call, "", Raw(b"{}")))
        output, failed = plain_result(result)
        step = ToolStep(call, output, failed)
        self.steps.append(step)
        return step

    @property
    def untouched_names(self) -> list[str]:
        """Names in the question that no step has touched; empty before the first step."""
        if not self.steps or self.steps[-1].failed or len(self.steps) >= MAX_CHECKED_STEPS:
            return []
        if (
            asks_for_information(self.question)
            and [self.steps[-1].output.removeprefix("./")] == self._named
        ):
            # It found the name of the file, which was known already, but not its content.
            return self._named
        touched = "\n".join(
            f"{bytes(step.call.args).decode()}\n{step.output}" for step in self.steps
        )
        return [name for name in self._named if name not in touched]

    @property
    def is_known(self) -> bool:
        """Whether the information was read and only has to be reported."""
        last = self.steps[-1] if self.steps else None
        if last is None or last.failed or last.call.name != "read_file":
            return False
        file = str(call_arguments(last.call).get("path")).rpartition("/")[2]
        if file not in self.question:
            return False
        return (
            asks_for_information(self.question)
            and not asks_for_action(self.question)
            and not self.untouched_names
        )

    @property
    def earlier_results(self) -> str:
        """Earlier results, if they are short: they may belong together."""
        found = [step for step in self._found if step is not self.steps[-1]]
        text = "\n".join(f"{step.label} {step.output}" for step in found)
        return text if len(text) <= MAX_EARLIER_RESULTS else ""

    @property
    def _found(self) -> list[ToolStep]:
        return [step for step in self.steps if not (step.failed or step.silent)]

    @property
    def is_looping(self) -> bool:
        """Whether the last call was made before in this turn, so that a reply is due."""
        made = [_call_key(call) for call in self.calls]
        return len(made) > 1 and made[-1] in made[:-1]

    def repeated(self, calls: Sequence[ToolCall]) -> bool:
        """Return whether all these calls were made since the last change."""
        made = [_call_key(call) for call in self.calls]
        changes = [at for at, call in enumerate(self.calls) if call.name not in _READING_TOOLS]
        last = changes[-1] if changes else 0
        return bool(calls) and all(_call_key(call) in made[last:] for call in calls)

    @property
    def has_failed(self) -> bool:
        return bool(self.steps) and self.steps[-1].failed

    @property
    def unopened_pages(self) -> list[str]:
        """URLs in the question that no successful step used."""
        used = [step.call for step in self.steps if not (step.failed or _had_no_effect(step))]
        touched = "\n".join(bytes(call.args).decode() for call in used)
        return [page for page in self._pages if page not in touched]

    @property
    def is_not_remembered(self) -> bool:
        """Whether something was to be remembered, but not saved in a named file."""
        done = any(step.silent and not step.failed for step in self.steps)
        return asks_to_remember(self.question) and not (done and self._named)

    def missing_results(self, reply: str) -> str:
        """Return the results if the reply mentions nothing of them beyond the question."""
        known, replied = _significant_words(self.question), _significant_words(reply)
        news = [(step, _significant_words(step.output) - known) for step in self._found]
        if not self._found or self.steps[-1].silent or any(words & replied for _, words in news):
            return ""
        return "\n".join(
            shorten_text(step.output, MAX_EARLIER_RESULTS) for step, words in news if words
        )


def turn_state_of(messages: Sequence[Message], *, has_file_tools: bool = True) -> TurnState:
    turn = TurnState()
    for message in messages:
        match message:
            case User():
                turn = TurnState(text_of(message), has_file_tools=has_file_tools)
            case Assistant():
                turn.calls += message.calls
            case Result():
                turn.add_result(message)
    return turn


def _call_key(call: ToolCall) -> tuple[str, bytes]:
    return call.name, bytes(call.args)


def call_arguments(call: ToolCall) -> dict[str, object]:
    """Return no arguments if they are invalid."""
    try:
        return msgspec.json.decode(call.args, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _had_no_effect(step: ToolStep) -> bool:
    """Return whether a command printed nothing and wrote no file."""
    writes_file = re.search(rb">|\s-[oO]", bytes(step.call.args))
    return step.call.name == "terminal" and step.silent and not writes_file


def _significant_words(text: str) -> set[str]:
    lower = (one.group().lower().strip(".") for one in _WORD.finditer(text))
    found = (_NUMBERS.get(one, one) for one in lower)
    return {one for one in found if one.isdigit() or (len(one) > 2 and one not in _COMMON)}
