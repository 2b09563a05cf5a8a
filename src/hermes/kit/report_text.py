"""Shorten reports that were written for the model, for people to read."""

import re

from hermes.kit.terminal_text import headline, single_line
from hermes.kit.text import one_line

REPORT_START = "[IMPORTANT: "
_SENTENCE_END = re.compile(r"\.\s+(?=[A-Z])")
_PROCESS_REPORT = re.compile(
    r"\[IMPORTANT: Background process \S+ (?P<end>[^\n]+)\nCommand: (?P<command>[^\n]+)"
    r"(?:\nOutput[^\n]*\n<out-\w+>\n(?P<output>.*)\n</out-\w+>)?",
    re.DOTALL,
)
_POSTED = re.compile(
    r"This was delivered to this chat from elsewhere\.[^\n]*\n"
    r"<data-(?P<tag>\w+)>(?P<text>.*)</data-(?P=tag)>",
    re.DOTALL,
)


def posted_text(text: str) -> str:
    """Return text posted to a chat from elsewhere, without the surrounding note to the model."""
    return text if (found := _POSTED.fullmatch(text)) is None else found["text"]


def report_text(text: str, width: int) -> str:
    """Return a report on one line; for a background process, with its command and last output."""
    if (posted := posted_text(text)) != text:
        return one_line(single_line(posted), width)
    if (found := _PROCESS_REPORT.match(text)) is None:
        return headline(text, width)
    end = _SENTENCE_END.split(found["end"])[0].rstrip(".")
    last = (found["output"] or "").rstrip().rpartition("\n")[2]
    shown = f"{found['command']} {end}" + (f": {last}" if last else "")
    return one_line(single_line(shown), width)
