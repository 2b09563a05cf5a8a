"""Make what a program wrote for a terminal readable as text."""

import re

_ESCAPES = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # colours, cursor movement
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|[ -/]*[0-~]"
    r")"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)


def plain(text: str) -> str:
    """Without escape sequences; a return of the carriage becomes a new line."""
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text
