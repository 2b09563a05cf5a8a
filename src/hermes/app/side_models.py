"""The models for side tasks: which one a slot of the settings names, and how often it is tried."""

from hermes.config.schema import Config
from hermes.config.sections.models import AuxiliarySlot
from hermes.models.settings import Flags


def wish_of(config: Config, slot: AuxiliarySlot) -> Flags | None:
    """None where the slot names no model: then the usual one is asked, or none at all."""
    if not slot.model:
        return None
    return Flags(
        model=slot.model,
        provider="" if slot.provider == "auto" else slot.provider,
        base_url=slot.base_url,
        api_key=slot.api_key,
        tries=tries_of(config),
    )


def summary_wish(config: Config) -> Flags | None:
    """For summaries; their model has an older name in the settings, too."""
    old, slot = config.compression, config.auxiliary.compression
    if slot.model or not old.summary_model:
        return wish_of(config, slot)
    provider = "" if old.summary_provider == "auto" else old.summary_provider
    return Flags(
        model=old.summary_model,
        provider=provider,
        base_url=old.summary_base_url,
        tries=tries_of(config),
    )


def tries_of(config: Config) -> int:
    return 1 + config.auxiliary.transient_retries
