"""Check that a model is configured and can be reached with its key."""

from collections.abc import Iterator

import anyio

from hermes.app.model_settings import model_settings
from hermes.app.models import ModelSelector
from hermes.cli.verbs.doctor.finding import (
    CheckContext,
    Finding,
    error_finding,
    finding_of_error,
    ok_finding,
    warning_finding,
)
from hermes.kit.text import similar_names
from hermes.models.discovery import is_listed, list_models
from hermes.models.embedded.download import format_size
from hermes.models.embedded.weights import (
    ModelFolder,
    find_weights,
    folder_at,
    free_memory,
    weights_catalog,
)
from hermes.models.providers import EMBEDDED
from hermes.models.resolver import ModelTarget
from hermes.models.settings import ModelOverrides
from hermes.models.urls import redacted_url
from hermes.schema.errors import BadRequest, ConfigError, ModelError
from hermes.store.blobs import FileBlobs

MODEL_TIMEOUT = 5.0
"""Seconds for the whole check."""


async def check_model(context: CheckContext) -> list[Finding]:
    home = context.home
    blobs = FileBlobs(home.cache / "blobs")
    settings = model_settings(context.config)
    selector = ModelSelector(home, context.env, settings, blobs, context.clock)
    where = "the model"
    try:
        with anyio.fail_after(MODEL_TIMEOUT):
            target = (await selector.resolve(ModelOverrides())).primary
            if target.provider == EMBEDDED:
                return list(check_embedded(folder_at(target.base_url), target.model))
            where = f"{target.provider} at {redacted_url(target.base_url)}"
            models = await list_models(target, MODEL_TIMEOUT)
    except TimeoutError:
        return [_timeout_finding(where)]
    except ConfigError as error:
        why = error.hint.removesuffix(": hermes setup")
        return [error_finding("model", _sentence(error), f"hermes setup   ({why})")]
    except BadRequest as error:
        return [_bad_request_finding(error)]
    except ModelError as error:
        return [finding_of_error("model", error, "hermes setup")]
    finally:
        await selector.aclose()
    return list(_model_finding(target, list(models)))


def _bad_request_finding(error: BadRequest) -> Finding:
    """A warning: some working servers cannot list models. An invalid address is an error."""
    if isinstance(error.__cause__, ValueError):
        return finding_of_error("model", error)
    return warning_finding("model", f"The model could not be checked: {error}.", "hermes -z hello")


def check_embedded(folder: ModelFolder, name: str) -> Iterator[Finding]:
    """Check that the embedded model is downloaded completely and fits into memory."""
    weights = find_weights(name)
    download = f"hermes setup --local --model {name}"
    if not folder.has_weights(weights):
        yield error_finding("model", f"{name} is configured but not downloaded.", download)
        return
    if not folder.has_engine:
        yield error_finding("model", "The engine for embedded models is not installed.", download)
        return
    free = free_memory()
    if free < weights.memory:
        yield warning_finding(
            "model",
            f"{name} needs {format_size(weights.memory)} of memory; only "
            f"{format_size(free)} are free.",
            "Close other programs, or use the smaller model: "
            f"hermes setup --local --model {weights_catalog()[1].name}",
        )
        return
    yield ok_finding("model", f"embedded/{name} is installed ({format_size(weights.size)})")


def _model_finding(target: ModelTarget, models: list[str]) -> Iterator[Finding]:
    if models and not is_listed(target.model, models):
        near = ", ".join(similar_names(target.model, models))
        yield warning_finding(
            "model",
            f"{target.provider} does not list {target.model!r}.",
            f"hermes model {near or 'NAME'} --provider {target.provider}",
        )
        return
    yield ok_finding("model", f"{target.provider}/{target.model} is available")


def _timeout_finding(where: str) -> Finding:
    return error_finding(
        "model",
        f"No answer from {where} within {MODEL_TIMEOUT:.0f} seconds.",
        "Check the network and the address, then: hermes model",
    )


def _sentence(error: ConfigError) -> str:
    message = str(error)
    return f"{message[:1].upper()}{message[1:]}."
