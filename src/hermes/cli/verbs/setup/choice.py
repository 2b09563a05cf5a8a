"""Save the choices of `hermes setup` without ever pairing a key with another address."""

from collections.abc import Mapping
from functools import partial

from msgspec import Struct

from hermes.app.model_settings import PROVIDER_SETTINGS, model_settings
from hermes.config.editor import change_settings, set_variable
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.models.providers import CUSTOM, Provider
from hermes.models.selection import is_configured

CUSTOM_KEY = "CUSTOM_API_KEY"
"""The variable with the key of a custom server; the settings refer to it."""


class ModelChoice(Struct, frozen=True, kw_only=True):
    """`key` is a new key; empty if one exists or none is needed."""

    provider: Provider
    base_url: str = ""
    key: str = ""
    model: str = ""


def save_choice(home: Home, env: Env, chosen: ModelChoice) -> None:
    """Write provider, address, key and model in one change of the settings.

    A new key is stored in its variable first; the settings refer to it only together with its
    address.
    """
    variable = _key_variable(chosen.provider)
    if chosen.key:
        if variable == CUSTOM_KEY:
            change_settings(home, env, _without_custom_key)
        set_variable(home, variable, chosen.key)
        env = env.overlaid({variable: chosen.key})
    change_settings(home, env, partial(_changes, chosen))


def _without_custom_key(config: Config) -> Mapping[str, str | None]:
    """Drop the reference: the variable is about to hold another server's key."""
    return {"model.api_key": None} if config.main_model.api_key else {}


def _changes(chosen: ModelChoice, config: Config) -> Mapping[str, str | None]:
    before = config.main_model
    changed = not is_configured(model_settings(config), chosen.provider.name)
    changes: dict[str, str | None] = dict.fromkeys(PROVIDER_SETTINGS) if changed else {}
    if before.base_url != chosen.base_url or chosen.key:
        changes["model.api_key"] = None
    changes["model.base_url"] = chosen.base_url or None
    if chosen.key and _key_variable(chosen.provider) == CUSTOM_KEY:
        changes["model.api_key"] = f"${{{CUSTOM_KEY}}}"
    return changes | {"model.default": chosen.model, "model.provider": chosen.provider.name}


def _key_variable(provider: Provider) -> str:
    """The variable for the key; custom addresses share CUSTOM_API_KEY."""
    if provider.name == CUSTOM.name or not provider.key_env:
        return CUSTOM_KEY
    return provider.key_env[0]
