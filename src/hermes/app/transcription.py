"""Choose the service that transcribes people's recordings."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.ports.transcription import Transcriber
from hermes.schema.scope import Scope

if TYPE_CHECKING:
    from hermes.app.build import App

log = logging.getLogger(__name__)

LOCAL = "local"
COMMAND = "HERMES_LOCAL_STT_COMMAND"


ELEVENLABS = "elevenlabs"


class SpeechProvider(Struct, frozen=True):
    """A service; `keys` are variables, the first that is set counts."""

    url: str
    model: str
    keys: tuple[str, ...]


PROVIDERS = {
    "openai": SpeechProvider(
        "https://api.openai.com/v1", "whisper-1", ("VOICE_TOOLS_OPENAI_KEY", "OPENAI_API_KEY")
    ),
    "groq": SpeechProvider(
        "https://api.groq.com/openai/v1", "whisper-large-v3-turbo", ("GROQ_API_KEY",)
    ),
    "mistral": SpeechProvider(
        "https://api.mistral.ai/v1", "voxtral-mini-latest", ("MISTRAL_API_KEY",)
    ),
    "deepinfra": SpeechProvider(
        "https://api.deepinfra.com/v1/openai",
        "openai/whisper-large-v3-turbo",
        ("DEEPINFRA_API_KEY",),
    ),
    ELEVENLABS: SpeechProvider(
        "https://api.elevenlabs.io/v1", "scribe_v2", ("ELEVENLABS_API_KEY",)
    ),
}


def configured_transcriber(
    app: "App", providers: Mapping[str, SpeechProvider] = PROVIDERS
) -> Transcriber | None:
    """Return the configured transcriber; None if there is none."""
    settings = app.config.stt
    if not settings.enabled:
        return None
    if settings.provider == LOCAL:
        return _local_command(app)
    provider = providers[settings.provider]
    own = {
        "openai": settings.openai,
        "groq": settings.groq,
        "mistral": settings.mistral,
        "deepinfra": settings.deepinfra,
        ELEVENLABS: settings.elevenlabs,
    }[settings.provider]
    key = own.api_key or _key_variable(app, provider, own.base_url)
    if not key and not own.base_url:
        log.warning(
            "voice notes are not transcribed: set %s for stt.provider %s",
            provider.keys[0],
            settings.provider,
        )
        return None
    # Loaded only where it is used.
    from hermes.models.transcription import (  # noqa: PLC0415
        ELEVENLABS_API,
        OPENAI_API,
        TranscriptionServer,
    )

    return TranscriptionServer(
        url=own.base_url or provider.url,
        key=key,
        model=own.model or provider.model,
        language=own.language,
        api=ELEVENLABS_API if settings.provider == ELEVENLABS else OPENAI_API,
    )


def _key_variable(app: "App", provider: SpeechProvider, base_url: str) -> str:
    """Return the first variable that is set; its key only goes to the provider's own address."""
    if base_url:
        return ""
    found = (app.env.get(name, "").strip() for name in provider.keys)
    return next(filter(None, found), "")


def _local_command(app: "App") -> Transcriber | None:
    command = app.env.get(COMMAND, "").strip()
    if not command:
        return None
    from hermes.models.transcription import TranscriptionCommand  # noqa: PLC0415 - as above
    from hermes.sandbox.local import LocalSandbox  # noqa: PLC0415

    scope = Scope(profile=app.home.profile, session="", run="", workspace=str(app.home.path))
    return TranscriptionCommand(
        command,
        sandbox=LocalSandbox(app.spawner),
        env=lambda: app.child_env(scope),
        model=app.config.stt.local.model,
        language=app.config.stt.local.language,
    )
