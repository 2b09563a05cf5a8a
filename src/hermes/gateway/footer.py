"""Build a chat answer's footer: failed file changes, model, context use, working directory."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from hermes.kit.text import one_line
from hermes.schema.messages import Assistant, Message, Result, ToolCall, text_of

FILE_TOOLS = frozenset({"write_file", "patch"})
MAX_REASON = 160
MAX_FILES = 5
_PATCHED_FILE = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)


class _FileArguments(Struct, frozen=True):
    path: str = ""
    patch: str = ""


class AnswerFooter(Struct, frozen=True, kw_only=True):
    """`fields` are the parts to show; `window` returns a model's context size.

    `show_failed_files` lists files that a tool failed to change and no later call changed, because
    the answer may claim otherwise.
    """

    show_failed_files: bool = False
    fields: tuple[str, ...] = ()
    folder: str = ""
    home: str = ""
    window: Callable[[str, str], int] = lambda model, provider: 0

    def text_for(self, messages: Sequence[Message]) -> str:
        failed: Mapping[str, str] = {}
        if self.show_failed_files and any(isinstance(message, Result) for message in messages):
            failed = failed_file_changes(messages)
        parts = [_warning(failed) if failed else "", self._footer(messages) if self.fields else ""]
        return "\n\n".join(part for part in parts if part)

    def _footer(self, messages: Sequence[Message]) -> str:
        last = next(
            (message for message in reversed(messages) if isinstance(message, Assistant)), None
        )
        if last is None:
            return ""
        facts = {
            "model": last.model,
            "context_pct": self._context_use(last),
            "cwd": self._short_folder,
        }
        return " · ".join(fact for name in self.fields if (fact := facts.get(name, "")))

    def _context_use(self, answer: Assistant) -> str:
        window = self.window(answer.model, answer.provider)
        tokens = answer.usage.input + answer.usage.output
        return f"{min(round(100 * tokens / window), 100)}%" if window and tokens else ""

    @property
    def _short_folder(self) -> str:
        home, folder = self.home.rstrip("/"), self.folder
        if home and (folder == home or folder.startswith(f"{home}/")):
            return "~" + folder.removeprefix(home)
        return folder


def failed_file_changes(messages: Sequence[Message]) -> Mapping[str, str]:
    """Return files that a tool failed to change and no later call changed, with the last reason."""
    calls: dict[str, ToolCall] = {}
    found: dict[str, str] = {}
    for message in messages:
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
        arguments = msgspec.json.decode(call.args, type=_FileArguments)
    except msgspec.DecodeError:
        return
    for path in [arguments.path, *_PATCHED_FILE.findall(arguments.patch)]:
        if path.strip():
            yield os.path.normpath(path.strip())


def _warning(files: Mapping[str, str]) -> str:
    lines = [f"⚠ {path} was not changed: {reason}" for path, reason in files.items()]
    if (more := len(files) - MAX_FILES) > 0:
        lines[MAX_FILES:] = [f"⚠ and {more} more"]
    return "\n".join(lines)
