"""The arguments of a call as somebody else wrote them down: read once, and written anew by us.

What is passed on unread can hold a second call, a line break or a number that nobody can
read, and whoever writes it into a larger text or a row makes that unreadable with it.
"""

import msgspec
from msgspec import Raw

NO_ARGUMENTS = Raw(b"{}")


def parse_arguments(written: Raw) -> tuple[Raw, str]:
    """Valid JSON, or empty JSON and the original text.

    Some models write the arguments as text that holds JSON, or null for none.
    """
    try:
        found: object = msgspec.json.decode(written)
        if isinstance(found, str) and found:
            found = msgspec.json.decode(found)
            if not isinstance(found, dict):
                return NO_ARGUMENTS, _text(written)
        return (NO_ARGUMENTS if found in (None, "") else Raw(msgspec.json.encode(found))), ""
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return NO_ARGUMENTS, _text(written)


def _text(written: Raw) -> str:
    return bytes(written).decode("utf-8", "replace") or "(nothing)"
