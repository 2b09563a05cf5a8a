"""The errors that decoding untrusted JSON can raise."""

from typing import Final

import msgspec

JSON_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""For invalid UTF-8 and very deep nesting, msgspec raises built-in errors."""
