"""Parse tool call arguments from outside and encode them again.

Arguments passed on unparsed could contain a second call, a line break or an invalid number, and
corrupt the message or row they become part of.
"""

import msgspec
from msgspec import Raw

NO_ARGUMENTS = Raw(b"{}")


def parse_arguments(written: Raw) -> tuple[Raw, str]:
    """Return valid JSON, or an empty object and the original text.

    Some models write the arguments as a string that contains JSON, or as null.
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
