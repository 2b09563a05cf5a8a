"""Replace or drop the credentials that a cloned profile must not share with the original.

Model and tool keys are copied. Credentials for access to the profile itself (API key, webhook
secrets, dashboard password) are regenerated or dropped, so that each profile has its own. A bot or
mailbox can be served by one profile only, so its token is dropped.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from msgspec import Struct

from hermes.config.editor import without_settings
from hermes.config.env import parse_dotenv, read_text, with_variable, without_variable
from hermes.config.platform_blocks import platform_blocks
from hermes.config.platforms import PLATFORMS
from hermes.config.values import KeyPath, as_mapping, format_path
from hermes.config.variables import is_secret_name
from hermes.config.yaml_parser import read_yaml
from hermes.kit.files import write_atomic

API_KEY, WEBHOOK_SECRET = "API_SERVER_KEY", "WEBHOOK_SECRET"
SUBSCRIPTIONS = "webhook_subscriptions.json"

_REGENERATED: Mapping[str, str] = {API_KEY: "api_server", WEBHOOK_SECRET: "webhook"}
"""Variables with the key of a platform."""
_SHARED = {
    name
    for platform in PLATFORMS
    if platform.shared
    for name in (platform.platform, platform.prefix.lower())
}
_OUTGOING_TABLES = {"model_routes"}
"""Platform tables with keys for outgoing requests."""
_NO_SECRET = "INSECURE_NO_AUTH"  # noqa: S105 - means no secret

_ACCOUNT_VARIABLES = frozenset(
    f"{platform.prefix}_{suffix}"
    for platform in PLATFORMS
    for suffix, _, secret in platform.variables
    if secret and not platform.shared
)


class ProfileCredentials(Struct, frozen=True, kw_only=True):
    """What is not copied from a home; `renewed` variables get new values."""

    variables: tuple[str, ...] = ()
    settings: tuple[KeyPath, ...] = ()
    files: tuple[str, ...] = ()
    renewed: tuple[str, ...] = ()

    @property
    def removed(self) -> Sequence[str]:
        named = [name for name in self.variables if name not in self.renewed]
        return [*named, *map(format_path, self.settings), *self.files]


def profile_credentials(home: Path, *, everything: bool = False) -> ProfileCredentials:
    """Find a home's credentials. Raises `ConfigError` if its files cannot be read.

    `everything` is for a clone of the whole home, which has more files.
    """
    dotenv, config = home / ".env", home / "config.yaml"
    assigned = [
        assignment.name
        for assignment in parse_dotenv(read_text(dotenv), str(dotenv))
        if assignment.value
    ]
    names = {*_ACCOUNT_VARIABLES, *_REGENERATED}
    variables = tuple(name for name in dict.fromkeys(assigned) if name in names)
    settings = tuple(_secret_settings(read_yaml(read_text(config), config)[0]))
    return ProfileCredentials(
        variables=variables,
        settings=settings,
        files=(SUBSCRIPTIONS,) if everything and (home / SUBSCRIPTIONS).exists() else (),
        renewed=tuple(
            name
            for name, platform in _REGENERATED.items()
            if name in variables or any(_is_in(path, platform) for path in settings)
        ),
    )


def replace_credentials(copy: Path, original: Path) -> None:
    """Remove the credentials from a copied home and generate new ones.

    Errors name the files of the `original`, because the copy is deleted on failure.
    """
    credentials = profile_credentials(copy)
    dotenv, config = copy / ".env", copy / "config.yaml"
    if credentials.variables or credentials.renewed:
        text = read_text(dotenv)
        for name in credentials.variables:
            text = without_variable(text, name, str(dotenv))
        for name in credentials.renewed:
            text = with_variable(text, name, secrets.token_hex(32), str(dotenv))
        write_atomic(dotenv, text.encode(), mode=0o600)
    if credentials.settings:
        text = without_settings(read_text(config), original / "config.yaml", credentials.settings)
        write_atomic(config, text.encode())


def _secret_settings(document: object) -> Iterator[KeyPath]:
    root = _table(document)
    for name, place, block in platform_blocks(root):
        if name not in _SHARED:
            yield from _secrets_in(block, place)
    for name, section in _table(root.get("dashboard")).items():
        yield from _secrets_in(section, ("dashboard", name))


def _is_in(path: KeyPath, platform: str) -> bool:
    places: tuple[KeyPath, ...] = (("platforms", platform), ("gateway", "platforms", platform))
    return any(path[: len(place)] == place for place in places)


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
