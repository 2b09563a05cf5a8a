"""Compare an answer that says files were changed with what happened in the turn."""

import re
from collections.abc import Mapping

from hermes.ports.tool import Tool
from hermes.schema.messages import Result, ToolCall
from hermes.schema.tools import Effect

NOTHING_CHANGED = "No file was changed in this turn."

_VERBS = (
    "fixed|changed|updated|edited|created|deleted|removed|written|wrote|added|renamed|modified|"
    "implemented|replaced|saved|corrected|moved|refactored|patched"
)
_THINGS = (
    r"files?|tests?|code|bugs?|functions?|methods?|class(?:es)?|scripts?|lines?|folders?|"
    r"director(?:y|ies)|modules?|imports?|config(?:uration)?|\S+\.[a-z]{1,5}"
)
_CLAIM = re.compile(
    rf"\bI(?:['\u2019]ve| have)? (?:now |just |also |successfully )*(?:{_VERBS})\b"
    rf"[^.!?\n]*?\b(?:{_THINGS})\b"
    rf"|\b(?:{_THINGS})\b[^.!?\n]{{0,40}}\b(?:has|have|is|are) (?:now|been|successfully)"
    rf"(?: now| been| successfully)* (?:{_VERBS})\b"
    rf"|^\W*(?:done\W+)?(?:{_VERBS})\b(?:[^.!?\n]*?\b(?:{_THINGS})\b|\W*$)",
    re.IGNORECASE | re.MULTILINE,
)
_NEGATION = re.compile(
    r"\b(?:not|no|nothing|never|cannot|can't|didn't|couldn't|wasn't|unable)\b", re.IGNORECASE
)
_CODE = re.compile(r"^\s*(?:```|~~~)", re.MULTILINE)
MAX_LOOKED_AT = 4_000


def claims_change(text: str) -> bool:
    """Whether an answer says that it changed files. Code in the answer may be the change itself."""
    text = text[:MAX_LOOKED_AT]
    if _CODE.search(text):
        return False
    sentences = (text[_start(text, found.start()) : found.end()] for found in _CLAIM.finditer(text))
    return any(not _NEGATION.search(sentence) for sentence in sentences)


def _start(text: str, at: int) -> int:
    """Where the sentence begins that contains the position."""
    return max(text.rfind(end, 0, at) for end in (".", "!", "?", "\n")) + 1


class TurnEffects:
    """What the calls of a turn that succeeded may have changed."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools
        self.can_change_files = any(tool.spec.changes_files for tool in tools.values())
        self.files = False  # a tool that changes files was used
        self.others = False  # something that is not a file was changed

    def add(self, call: ToolCall, result: Result) -> None:
        tool = self._tools.get(call.name)
        if result.failed:
            return
        if tool is None:
            self.others = True
        elif tool.spec.changes_files:
            self.files = True
        elif tool.spec.effect is not Effect.READ:
            self.others = True
