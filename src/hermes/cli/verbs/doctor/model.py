"""Check that a model is configured and can be reached with its key."""

import anyio

from hermes.app.model_settings import model_settings
from hermes.app.models import ModelSelector
from hermes.app.storage import open_blobs
from hermes.cli.verbs.doctor.finding import CheckContext, Finding
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
from hermes.runtimes.codex.settings import codex_is_installed, codex_program, codex_runs_turns
from hermes.schema.errors import BadRequest, ConfigError, ModelError

MODEL_TIMEOUT = 5.0
"""Seconds for the whole check."""


def _codex_finding(context: CheckContext) -> Finding | None:
    """Report codex if it runs the turns: it has its own login and needs no key here."""
    if not codex_runs_turns(context.config):
        return None
    program = codex_program(context.env)
    if not codex_is_installed(context.env):
        fix = "Install it (npm package @openai/codex) or set CODEX_PATH"
        return Finding.error("model", f"codex runs the turns, but {program} was not found.", fix)
    return Finding.ok("model", f"codex runs the turns ({program})")


async def check_model(context: CheckContext) -> list[Finding]:
    codex = _codex_finding(context)
    return await _check_own_model(context) if codex is None else [codex]


async def _check_own_model(context: CheckContext) -> list[Finding]:
    home = context.home
    blobs = open_blobs(home)
    settings = model_settings(context.config, home.root)
    selector = ModelSelector(home, context.env, settings, blobs, context.clock)
    where = "the model"
    try:
        with anyio.fail_after(MODEL_TIMEOUT):
            target = (await selector.resolve(ModelOverrides())).primary
            if target.provider == EMBEDDED:
                return [_embedded_finding(folder_at(target.base_url), target.model)]
            where = f"{target.provider} at {redacted_url(target.base_url)}"
            models = await list_models(target, MODEL_TIMEOUT)
    except TimeoutError:
        says = f"No answer from {where} within {MODEL_TIMEOUT:.0f} seconds."
        fix = "Check the network and the address, then: hermes model"
        return [Finding.error("model", says, fix)]
    except ConfigError as error:
        why = error.hint.removesuffix(": hermes setup")
        message = str(error).rstrip(".")
        says = f"{message[:1].upper()}{message[1:]}."
        return [Finding.error("model", says, f"hermes setup   ({why})")]
    except BadRequest as error:
        return [_bad_request_finding(error)]
    except ModelError as error:
        return [Finding.from_error("model", error, "hermes setup")]
    finally:
        await selector.aclose()
    return [_model_finding(target, list(models))]


def _bad_request_finding(error: BadRequest) -> Finding:
    """A warning: some working servers cannot list models. An invalid address is an error."""
    if isinstance(error.__cause__, ValueError):
        return Finding.from_error("model", error)
    return Finding.warning("model", f"The model could not be checked: {error}.", "hermes -z hello")


def _embedded_finding(folder: ModelFolder, name: str) -> Finding:
    """Check that the embedded model is downloaded completely and fits into memory."""
    weights = find_weights(name)
    download = f"hermes setup --local --model {name}"
    if not folder.has_weights(weights):
        return Finding.error("model", f"{name} is configured but not downloaded.", download)
    if not folder.has_engine:
        return Finding.error("model", "The engine for embedded models is not installed.", download)
    if (free := free_memory()) < weights.memory:
        return Finding.warning(
            "model",
            f"{name} needs {format_size(weights.memory)} of memory; only "
            f"{format_size(free)} are free.",
            "Close other programs, or use the smaller model: "
            f"hermes setup --local --model {weights_catalog()[1].name}",
        )
    return Finding.ok("model", f"embedded/{name} is installed ({format_size(weights.size)})")


def _model_finding(target: ModelTarget, models: list[str]) -> Finding:
    if models and not is_listed(target.model, models):
        near = ", ".join(similar_names(target.model, models))
        fix = f"hermes model {near or 'NAME'} --provider {target.provider}"
        return Finding.warning("model", f"{target.provider} does not list {target.model!r}.", fix)
    return Finding.ok("model", f"{target.provider}/{target.model} is available")
