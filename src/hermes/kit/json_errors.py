"""What decoding JSON from outside can raise."""

from typing import Final

import msgspec

JSON_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Invalid UTF-8 and very deep nesting are not errors of msgspec's own."""
