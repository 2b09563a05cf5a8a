"""The texts of the page, from one catalog."""

from functools import cache
from pathlib import Path

import msgspec

_SCRIPT_PREFIX = "js_"


def text(key: str, **values: str) -> str:
    """The text of this key. Raises `KeyError` if it is not in the catalog."""
    found = _catalog()[key]
    return found.format(**values) if values else found


def state_text(state: str) -> str:
    """The name of a state or column; one that is not in the catalog is shown as it is."""
    return _catalog().get(f"state_{state}", state)


def script_texts() -> dict[str, str]:
    """The texts that scripts show."""
    texts = _catalog().items()
    return {k.removeprefix(_SCRIPT_PREFIX): v for k, v in texts if k.startswith(_SCRIPT_PREFIX)}


@cache
def _catalog() -> dict[str, str]:
    path = Path(__file__).with_name("texts.json")
    return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
