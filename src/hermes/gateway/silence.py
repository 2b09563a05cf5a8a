"""Replies by which the agent says that it has nothing to say: they are kept, but not delivered."""

import re
from enum import StrEnum

_EDGES = " \t\r\n\"'`*_~.,:;!?()<>{}\u2026\u2018\u2019\u201c\u201d-"
_SPELLED = frozenset({"SILENT", "NO REPLY"})
"""As words of a language these may be an answer, so they count only in capitals."""

_MARKED = re.compile(r"\[ ?(?:silent|no[_ ]reply) ?\]|no_reply", re.IGNORECASE)
_LONGEST = 80

_NARRATION = re.compile(
    r"(?:(?:stays|remains|keeps|is|stay|staying|remaining)\s+)?(?:silent|quiet)"
    r"|silence|says\s+nothing|saying\s+nothing|nothing\s+to\s+(?:say|add)"
    r"|no\s+(?:reply|response|answer|message|output)(?:\s+(?:needed|required|necessary))?",
    re.IGNORECASE,
)
_WRAPPED = re.compile(
    r"[*_~\s]*[(\[]\s*(?P<round>.+?)\s*[)\]][*_~\s]*|(?P<mark>[*_]{1,3})(?P<starred>[^*_]+)(?P=mark)"
)
_SPEECHLESS = re.compile(r"(?:\.|\u2026|\.\.\.|\U0001f507|\U0001f92b|\U0001f910)\ufe0f?")


class Silence(StrEnum):
    """How a reply was silent: by the word agreed for it, or by telling of it."""

    MARKER = "marker"
    NARRATION = "narration"


def silence_of(reply: str, *, narration: bool = True) -> Silence | None:
    """None when there is something to deliver. An empty reply is no silence but a failure."""
    bare = reply.strip()
    if not bare or len(bare) > _LONGEST:
        return None
    if _is_marker(bare):
        return Silence.MARKER
    return Silence.NARRATION if narration and _is_narration(bare) else None


def _is_marker(reply: str) -> bool:
    words = " ".join(reply.strip(_EDGES).split())
    return words in _SPELLED or _MARKED.fullmatch(words) is not None


def _is_narration(reply: str) -> bool:
    if _SPEECHLESS.fullmatch(reply):
        return True
    found = _WRAPPED.fullmatch(reply)
    if found is None:
        return False
    told = (found["round"] or found["starred"]).strip(" .\u2026!*_")
    return _NARRATION.fullmatch(told) is not None
