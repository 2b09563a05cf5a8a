"""Settings as they may be shown: every secret in them masked."""

from collections.abc import Iterator

from hermes.config.shapes import as_list, as_mapping
from hermes.config.variables import is_secret
from hermes.kit.redact import MASK, Redactor

_SECRET_NAMES = frozenset({"apikey", "authorization", "key", "password", "secret", "token"})
_SECRET_ENDINGS = ("api_key", "_token", "_secret", "_password", "password_hash")
_PLACES_OF_KEYS = frozenset({"ssh_key", "key_env"})


def masked(value: object, redactor: Redactor, name: str = "") -> object:
    """The same value with secrets masked, by the name they stand under and by what they are."""
    if (mapping := as_mapping(value)) is not None:
        return {key: masked(item, redactor, str(key)) for key, item in mapping.items()}
    if (entries := as_list(value)) is not None:
        return [masked(item, redactor, name) for item in entries]
    if not isinstance(value, str) or not value:
        return value
    return MASK if _names_secret(name) else redactor.redact(value)


def secrets_in(value: object, name: str = "") -> Iterator[str]:
    """Every text that stands under the name of a secret, wherever in the settings."""
    if (mapping := as_mapping(value)) is not None:
        for key, item in mapping.items():
            yield from secrets_in(item, str(key))
    elif (entries := as_list(value)) is not None:
        for item in entries:
            yield from secrets_in(item, name)
    elif isinstance(value, str) and value and _names_secret(name):
        # Several keys may share a setting; each is sent, and must be masked, alone.
        yield value
        yield from (key.strip().removeprefix("Bearer ") for key in value.split(","))


def _names_secret(name: str) -> bool:
    small = name.lower()
    if small in _PLACES_OF_KEYS:
        return False
    by_name = small in _SECRET_NAMES or small.endswith(_SECRET_ENDINGS)
    return by_name or (name.isupper() and is_secret(name))
