"""Ids that sort by time and never collide."""

import secrets
import time
from datetime import datetime

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_id(prefix: str) -> str:
    """48 bits of milliseconds, 80 bits of chance, in Crockford's base32."""
    n = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    return prefix + "_" + "".join(_ALPHABET[(n >> shift) & 31] for shift in range(125, -1, -5))


def new_session_id(now: datetime) -> str:
    """`20260131_235959_a1b2c3`, the form users know from their existing sessions."""
    return f"{now:%Y%m%d_%H%M%S}_{secrets.token_hex(3)}"
