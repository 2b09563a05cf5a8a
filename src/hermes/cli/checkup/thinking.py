"""Whether there is a model, and whether it can be reached with the key there is."""

from collections.abc import Iterator

import anyio

from hermes.app.model_settings import model_settings
from hermes.app.models import ModelDesk
from hermes.cli.checkup.finding import Finding, Patient, odd, told, well, wrong
from hermes.kit.text import alike
from hermes.models.address import shown_url
from hermes.models.discover import list_models
from hermes.models.embedded.catalogue import catalogue, weights_named
from hermes.models.embedded.fetching import in_megabytes
from hermes.models.embedded.place import Place, free_memory, place_at
from hermes.models.listed import is_listed
from hermes.models.providers import EMBEDDED
from hermes.models.resolve import Target
from hermes.models.settings import Flags
from hermes.schema.errors import BadRequest, ConfigError, ModelError
from hermes.store.blobs import FileBlobs

PATIENCE = 5.0
"""Seconds for all of it."""


async def check_model(patient: Patient) -> list[Finding]:
    home = patient.home
    blobs = FileBlobs(home.cache / "blobs")
    settings = model_settings(patient.config)
    desk = ModelDesk(home, patient.env, settings, blobs, patient.clock)
    where = "the model"
    try:
        with anyio.fail_after(PATIENCE):
            target = (await desk.resolve(Flags())).primary
            if target.provider == EMBEDDED:
                return list(check_embedded(place_at(target.base_url), target.model))
            where = f"{target.provider} at {shown_url(target.base_url)}"
            models = await list_models(target, PATIENCE)
    except TimeoutError:
        return [_too_slow(where)]
    except ConfigError as error:
        why = error.hint.removesuffix(": hermes setup")
        return [wrong("model", _sentence(error), f"hermes setup   ({why})")]
    except BadRequest as error:
        return [_unanswered(error)]
    except ModelError as error:
        return [told("model", error, "hermes setup")]
    finally:
        await desk.aclose()
    return list(_listed(target, list(models)))


def _unanswered(error: BadRequest) -> Finding:
    """Some servers answer well and have no list; an address that is none is another matter."""
    if isinstance(error.__cause__, ValueError):
        return told("model", error)
    return odd("model", f"It could not be checked: {error}.", "hermes -z hello")


def check_embedded(place: Place, name: str) -> Iterator[Finding]:
    """The model that runs inside Hermes: whether it is here whole, and has the room to run."""
    weights = weights_named(name)
    fetch = f"hermes setup --local --model {name}"
    if not place.has(weights):
        yield wrong("model", f"{name} is chosen, but it is not on this machine.", fetch)
        return
    if not place.has_engine:
        yield wrong("model", "The engine of the embedded model is not installed.", fetch)
        return
    free = free_memory()
    if free < weights.memory:
        yield odd(
            "model",
            f"{name} takes {in_megabytes(weights.memory)} of memory, of which "
            f"{in_megabytes(free)} are free.",
            "Close other programs, or take the smaller one: "
            f"hermes setup --local --model {catalogue()[1].name}",
        )
        return
    yield well("model", f"embedded/{name} is here ({in_megabytes(weights.size)})")


def _listed(target: Target, models: list[str]) -> Iterator[Finding]:
    if models and not is_listed(target.model, models):
        near = ", ".join(alike(target.model, models))
        yield odd(
            "model",
            f"{target.provider} does not list {target.model!r}.",
            f"hermes model {near or 'NAME'} --provider {target.provider}",
        )
        return
    yield well("model", f"{target.provider}/{target.model} answers")


def _too_slow(where: str) -> Finding:
    return wrong(
        "model",
        f"No answer from {where} within {PATIENCE:.0f} seconds.",
        "Check the network and the address, then: hermes model",
    )


def _sentence(error: ConfigError) -> str:
    said = str(error)
    return f"{said[:1].upper()}{said[1:]}."
