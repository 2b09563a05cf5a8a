"""Hash and check the password of `dashboard.basic_auth`."""

import base64
import binascii
import hashlib
import hmac
import secrets

_COST, _BLOCK, _PARALLEL = 2**14, 8, 1
_MAX_MEMORY = 128 * 1024 * 1024
_MAX_ITERATIONS = 10_000_000


def hash_password(password: str) -> str:
    """`scrypt$n$r$p$salt$hash`, in base64."""
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, _COST, _BLOCK, _PARALLEL)
    encoded = (base64.b64encode(one).decode() for one in (salt, digest))
    return "$".join(["scrypt", str(_COST), str(_BLOCK), str(_PARALLEL), *encoded])


def check_password(password: str, stored: str) -> bool:
    """Whether the password matches; False for a hash of an unknown kind."""
    try:
        match stored.split("$"):
            case ["scrypt", cost, block, parallel, salt, digest]:
                found = _scrypt(
                    password, base64.b64decode(salt), int(cost), int(block), int(parallel)
                )
                return hmac.compare_digest(found, base64.b64decode(digest))
            case ["pbkdf2_sha256", rounds, salt, digest]:
                count = min(int(rounds), _MAX_ITERATIONS)
                found = hashlib.pbkdf2_hmac("sha256", password.encode(), salt.encode(), count)
                return hmac.compare_digest(found, base64.b64decode(digest))
            case _:
                return False
    except (ValueError, binascii.Error):
        return False


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=_MAX_MEMORY, dklen=32
    )
