"""Generate unique ids that sort by time; they are not secret."""

import random
import secrets
import time
from datetime import datetime

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_SHIFTS = tuple(range(120, -1, -10))


def new_id(prefix: str) -> str:
    """48 bits of milliseconds and 80 random bits in Crockford's base32."""
    # Not from the kernel: that would release the GIL, and getting it back is slow under load.
    chance = random.getrandbits(80)
    n = (time.time_ns() // 1_000_000) << 80 | chance
    return f"{prefix}_" + "".join([_PAIRS[(n >> shift) & 1023] for shift in _SHIFTS])


def new_session_id(now: datetime) -> str:
    """`20260131_235959_a1b2c3`, the form users know from their existing sessions."""
    return f"{now:%Y%m%d_%H%M%S}_{secrets.token_hex(3)}"
