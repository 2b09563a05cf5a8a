"""One-time codes that people read in one place and type in another; stored as hashes."""

import hashlib
import secrets

from hermes.kit.errors import UsageError

ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
CODE_LENGTH = 8


def new_code() -> str:
    """Return a random code of 40 bits."""
    return "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))


def hash_code(code: str, salt: bytes) -> str:
    return hashlib.scrypt(code.encode(), salt=salt, n=2**12, r=8, p=1, dklen=32).hex()


def normalized_code(text: str, kind: str) -> str:
    """Return a typed code in upper case, without spaces and hyphens. Raises `UsageError`."""
    normalized = "".join(text.split()).replace("-", "").upper()
    if len(normalized) != CODE_LENGTH or any(char not in ALPHABET for char in normalized):
        raise UsageError(
            f"{text!r} is not a {kind} code.",
            hint=f"A code has {CODE_LENGTH} letters and digits, and never 0, 1, I or O.",
        )
    return normalized
