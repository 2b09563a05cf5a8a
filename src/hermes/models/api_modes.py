"""Choose the API that is used with a provider."""

from hermes.models.providers import Provider
from hermes.models.urls import host_of

CHAT = "chat_completions"
RESPONSES = "codex_responses"
ANTHROPIC = "anthropic_messages"
GEMINI = "gemini_native"
MODES = (CHAT, RESPONSES, ANTHROPIC, GEMINI)

_BY_HOST = {
    "api.openai.com": RESPONSES,
    "api.x.ai": RESPONSES,
    "api.anthropic.com": ANTHROPIC,
}
_BY_PROVIDER = {"anthropic": ANTHROPIC, "gemini": GEMINI}


def api_mode_for(provider: Provider, url: str) -> str:
    """Return the default API mode for an address."""
    if url.endswith(("/anthropic", "/anthropic/v1")):
        return ANTHROPIC
    return _BY_HOST.get(host_of(url)) or _BY_PROVIDER.get(provider.name, CHAT)


def base_url_for(mode: str, url: str) -> str:
    """Strip the OpenAI-compatible suffix, which Gemini's native API does not use."""
    if mode != GEMINI:
        return url
    return url.removesuffix("/openai").removesuffix("/v1beta")
