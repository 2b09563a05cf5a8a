"""Messages configured by the owner that precede every conversation."""

import json
from collections.abc import Sequence
from pathlib import Path

from hermes.config.home import Home
from hermes.config.yaml_values import as_list, as_mapping
from hermes.kit.files import read_regular_file
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Assistant, Message, Stop, Text, User

SETTING = "prefill_messages_file"
EXAMPLE = '[{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]'


def read_prefill(home: Home, name: str) -> Sequence[Message]:
    """Relative paths are inside the home. Raises `ConfigError`."""
    path = home.path / Path(name).expanduser()
    try:
        content: object = json.loads(read_regular_file(path))
    except OSError as error:
        raise _invalid_file(path, error.strerror or "it cannot be read") from error
    except ValueError as error:
        raise _invalid_file(path, "it is not valid JSON") from error
    entries = as_list(content)
    if entries is None:
        raise _invalid_file(path, "it is not a list")
    return [_message(entry, number, path) for number, entry in enumerate(entries, 1)]


def _message(entry: object, number: int, path: Path) -> Message:
    fields = as_mapping(entry) or {}
    role, text = fields.get("role"), fields.get("content")
    if not isinstance(text, str) or not text.strip():
        raise _invalid_file(path, f"the `content` of entry {number} is not a text")
    # Fixed ids, so that the provider can cache the start of each request.
    name, parts = f"prefill_{number}", (Text(text),)
    match role:
        case "user":
            return User(name, parts)
        case "assistant":
            return Assistant(name, parts, Stop.END)
        case _:
            raise _invalid_file(path, f"the role of entry {number} is neither user nor assistant")


def _invalid_file(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"Cannot use {path} (set by {SETTING}): {why}.",
        hint=f"Use the form {EXAMPLE}, or remove the setting: hermes config unset {SETTING}",
    )
