"""Ids of calls that every provider takes, wherever they were made."""

import re
from hashlib import sha256

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def plain_call_id(identity: str) -> str:
    """Other providers' ids may hold what this one refuses; the same id becomes the same again."""
    if _PLAIN.fullmatch(identity):
        return identity
    return f"call_{sha256(identity.encode()).hexdigest()[:24]}"
