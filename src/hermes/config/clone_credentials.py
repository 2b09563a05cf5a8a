"""Credentials that a cloned profile must not share with the original.

A key of a model or a tool is sent to others and is copied. What lets callers in to a profile (the
key of its API, the secrets of its webhooks, the password of its web page) is made anew or left
out, so that a change of it in one profile closes the other as well. A bot or mailbox can be served
by one profile only, so its token is left out.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from msgspec import Struct

from hermes.config.dotenv import parse_dotenv, read_text, with_variable, without_variable
from hermes.config.editor import without_settings
from hermes.config.key_paths import KeyPath, format_path
from hermes.config.platforms import PLATFORMS
from hermes.config.variables import is_secret_name
from hermes.config.yaml_parser import read_yaml
from hermes.config.yaml_values import as_mapping
from hermes.kit.files import write_atomic

API_KEY, WEBHOOK_SECRET = "API_SERVER_KEY", "WEBHOOK_SECRET"
SUBSCRIPTIONS = "webhook_subscriptions.json"

_REGENERATED: Mapping[str, tuple[str, ...]] = {
    API_KEY: ("platforms", "api_server"),
    WEBHOOK_SECRET: ("platforms", "webhook"),
}
_SHARED_PLATFORMS = {"hass", "homeassistant"}
"""Its token is that of a service which the tools use, too."""
_OUTGOING_TABLES = {"model_routes"}
"""Tables inside of a platform with keys for others."""
_NO_SECRET = "INSECURE_NO_AUTH"  # noqa: S105 - it says that there is none

_ACCOUNT_VARIABLES = frozenset(
    f"{one.prefix}_{suffix}"
    for one in PLATFORMS
    for suffix, _, secret in one.variables
    if secret and one.prefix.lower() not in _SHARED_PLATFORMS
)


class ProfileCredentials(Struct, frozen=True, kw_only=True):
    """What of a home is not copied: variables, settings, files; `renewed` gets new values."""

    variables: tuple[str, ...] = ()
    settings: tuple[KeyPath, ...] = ()
    files: tuple[str, ...] = ()
    renewed: tuple[str, ...] = ()

    @property
    def removed(self) -> Sequence[str]:
        named = [name for name in self.variables if name not in self.renewed]
        return [*named, *map(format_path, self.settings), *self.files]


def profile_credentials(home: Path, *, everything: bool = False) -> ProfileCredentials:
    """Those of a home. Raises `ConfigError` when its files cannot be read.

    `everything` is for a clone of the whole home, which would have further files.
    """
    dotenv, config = home / ".env", home / "config.yaml"
    assigned = [one.name for one in parse_dotenv(read_text(dotenv), str(dotenv)) if one.value]
    names = {*_ACCOUNT_VARIABLES, *_REGENERATED}
    variables = tuple(name for name in dict.fromkeys(assigned) if name in names)
    settings = tuple(_secret_settings(read_yaml(read_text(config), config)[0]))
    return ProfileCredentials(
        variables=variables,
        settings=settings,
        files=(SUBSCRIPTIONS,) if everything and (home / SUBSCRIPTIONS).exists() else (),
        renewed=tuple(
            name
            for name, place in _REGENERATED.items()
            if name in variables or any(path[: len(place)] == place for path in settings)
        ),
    )


def replace_credentials(copy: Path, original: Path) -> None:
    """Take them out of the copy of a home, and put new values where it needs some.

    Errors name the files of the `original`: the copy is deleted when this fails.
    """
    own = profile_credentials(copy)
    dotenv, config = copy / ".env", copy / "config.yaml"
    if own.variables or own.renewed:
        text = read_text(dotenv)
        for name in own.variables:
            text = without_variable(text, name, str(dotenv))
        for name in own.renewed:
            text = with_variable(text, name, secrets.token_hex(32), str(dotenv))
        write_atomic(dotenv, text.encode(), mode=0o600)
    if own.settings:
        text = without_settings(read_text(config), original / "config.yaml", own.settings)
        write_atomic(config, text.encode())


def _secret_settings(document: object) -> Iterator[KeyPath]:
    root = _table(document)
    for name, platform in _table(root.get("platforms")).items():
        if name not in _SHARED_PLATFORMS:
            yield from _secrets_in(platform, ("platforms", name))
    for name, section in _table(root.get("dashboard")).items():
        yield from _secrets_in(section, ("dashboard", name))


def _secrets_in(value: object, at: KeyPath) -> Iterator[KeyPath]:
    if isinstance(value, list):
        for index, inside in enumerate(cast("list[object]", value)):
            yield from _secrets_in(inside, (*at, index))
        return
    for name, inside in _table(value).items():
        path = (*at, name)
        if isinstance(inside, dict | list):
            if name not in _OUTGOING_TABLES:
                yield from _secrets_in(cast("object", inside), path)
        elif inside and inside != _NO_SECRET and (is_secret_name(name) or name == "password_hash"):
            yield path


def _table(value: object) -> Mapping[str, object]:
    return {str(name): inside for name, inside in (as_mapping(value) or {}).items()}
