"""What stands below an answer in a chat: files that were not changed after all, and a footer."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from hermes.kit.text import one_line
from hermes.schema.messages import Assistant, Message, Result, ToolCall, Usage, text_of

FILE_TOOLS = frozenset({"write_file", "patch"})
MAX_REASON = 160
"""Characters of the reason."""
MAX_FILES = 5
"""How many files are named."""
_PATCHED_FILE = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)


class _FileArguments(Struct, frozen=True):
    """As much of a call as names the files that it was to change."""

    path: str = ""
    patch: str = ""


class AnswerFooter(Struct, frozen=True, kw_only=True):
    """`fields` are what the footer tells; `window` says how much a model sees at once.

    `verifies`: an answer may claim more than was done, so files are named that a tool could not
    change and that no later call did.
    """

    verifies: bool = False
    fields: tuple[str, ...] = ()
    folder: str = ""
    home: str = ""
    window: Callable[[str, str], int] = lambda model, provider: 0

    def below(self, said: Sequence[Message]) -> str:
        """For a turn in which this was said; empty where there is nothing to add."""
        parts = [_warning(failed_file_changes(said)) if self.verifies else "", self._footer(said)]
        return "\n\n".join(part for part in parts if part)

    def _footer(self, said: Sequence[Message]) -> str:
        last = next((one for one in reversed(said) if isinstance(one, Assistant)), None)
        if last is None or not self.fields:
            return ""
        facts = {
            "model": last.model,
            "context_pct": self._filled(last.usage, last.model, last.provider),
            "cwd": self._short_folder,
        }
        return " · ".join(fact for name in self.fields if (fact := facts.get(name, "")))

    def _filled(self, usage: Usage, model: str, provider: str) -> str:
        window = self.window(model, provider)
        tokens = usage.input + usage.output
        return f"{min(round(100 * tokens / window), 100)}%" if window and tokens else ""

    @property
    def _short_folder(self) -> str:
        home, folder = self.home.rstrip("/"), self.folder
        if home and (folder == home or folder.startswith(f"{home}/")):
            return "~" + folder.removeprefix(home)
        return folder


def failed_file_changes(said: Sequence[Message]) -> Mapping[str, str]:
    """The files that a tool was to change and no call did, with the last reason."""
    calls: dict[str, ToolCall] = {}
    found: dict[str, str] = {}
    for message in said:
        if isinstance(message, Assistant):
            calls |= {call.id: call for call in message.calls if call.name in FILE_TOOLS}
        elif isinstance(message, Result) and (call := calls.get(message.call)):
            for path in _paths(call):
                found.pop(path, None)
                if message.failed:
                    found[path] = one_line(text_of(message), MAX_REASON)
    return found


def _paths(call: ToolCall) -> Iterator[str]:
    try:
        asked = msgspec.json.decode(call.args, type=_FileArguments)
    except msgspec.DecodeError:
        return
    for path in [asked.path, *_PATCHED_FILE.findall(asked.patch)]:
        if path.strip():
            yield os.path.normpath(path.strip())


def _warning(files: Mapping[str, str]) -> str:
    if not files:
        return ""
    lines = [f"⚠ {path} was not changed: {why}" for path, why in [*files.items()][:MAX_FILES]]
    more = len(files) - MAX_FILES
    return "\n".join([*lines, *([f"⚠ nor were {more} more"] if more > 0 else [])])
