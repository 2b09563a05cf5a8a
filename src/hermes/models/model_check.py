"""Check that a provider has the chosen model.

A name that the provider does not list is rejected, with similar names as suggestions. If the
models cannot be listed, the name is accepted with a warning.
"""

from collections.abc import Collection

import anyio

from hermes.kit.text import similar_names
from hermes.models.discovery import list_models
from hermes.models.providers import EMBEDDED
from hermes.models.resolver import ModelTarget
from hermes.schema.errors import ConfigError, ModelError, UsageError

LIST_TIMEOUT = 5.0
"""Seconds to wait for the provider's list."""
_MAX_SUGGESTIONS = 3


async def verify_model(target: ModelTarget) -> str:
    """Return a warning if the name could not be checked, else an empty string.

    Raises `UsageError` or `ConfigError` if there is no such model.
    """
    name = target.model
    try:
        with anyio.fail_after(LIST_TIMEOUT):
            listed = await list_models(target, LIST_TIMEOUT)
    except TimeoutError:
        return unverified_message(
            name, f"{target.provider} did not respond within {LIST_TIMEOUT:.0f} seconds"
        )
    except ModelError as error:
        return unverified_message(name, str(error))
    if target.provider == EMBEDDED and name not in listed:
        raise ConfigError(
            f"{name} is not installed on this machine.",
            hint=f"Download it: hermes setup --local --model {name}",
        )
    if not listed:
        return unverified_message(name, f"{target.provider} does not list its models")
    check_listed(target.provider, name, listed)
    return ""


def unverified_message(name: str, reason: str) -> str:
    return f"{name} could not be checked ({reason.rstrip('.')}); to check it later: hermes doctor"


def check_listed(provider: str, name: str, listed: Collection[str]) -> None:
    """Raise `UsageError` for a name that is missing from a non-empty list."""
    if not listed or is_listed(name, listed):
        return
    offered = nearest_models(name, listed) or "List its models with `hermes model`"
    raise UsageError(
        not_listed_message(provider, name),
        hint=f"{offered}; to use the name anyway, add --force",
    )


def not_listed_message(provider: str, name: str) -> str:
    return f"{provider} does not list the model {name!r}."


def nearest_models(name: str, listed: Collection[str]) -> str:
    """Return similar names as a sentence, or an empty string."""
    near = ", ".join(similar_names(name, listed, _MAX_SUGGESTIONS))
    return f"Similar models: {near}" if near else ""


def is_listed(name: str, listed: Collection[str]) -> bool:
    """Return whether a name is listed, ignoring Ollama's `:latest` and router variants."""
    return name in listed or f"{name}:latest" in listed or name.rpartition(":")[0] in listed
