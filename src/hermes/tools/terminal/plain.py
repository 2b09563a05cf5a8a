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


_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def plain(text: str) -> str:
    """Without escape sequences; a return of the carriage becomes a new line.

    Any other control character is shown as one that is no text: in JSON it would take six.
    """
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("\ufffd", text)
