"""Server addresses: normalize and redact them, and choose the API and its headers."""

import re

from hermes.kit.redact import MASK
from hermes.models.providers import Provider

CHAT = "chat_completions"
RESPONSES = "codex_responses"
ANTHROPIC = "anthropic_messages"
GEMINI = "gemini_native"
API_MODES = (CHAT, RESPONSES, ANTHROPIC, GEMINI)
ANTHROPIC_VERSION = "2026-10-21"
COMPATIBLE_ANTHROPIC_VERSION = "2023-06-01"
"""The version that compatible servers support."""

_ANTHROPIC_HOST = "api.anthropic.com"
_MODES_BY_HOST = {"api.openai.com": RESPONSES, "api.x.ai": RESPONSES, _ANTHROPIC_HOST: ANTHROPIC}
_MODES_BY_PROVIDER = {"anthropic": ANTHROPIC, "gemini": GEMINI}
_OAUTH_KEY_PREFIX = "sk-ant-oat"
_OAUTH_BETA = "oauth-2025-04-20"
_LOCAL_HOST = re.compile(
    r"localhost|0\.0\.0\.0|\[::1?\]|[\w-]+(?:\.[\w-]+)*\.(?:local|lan|internal)"
    r"|(?:127|10)(?:\.\d{1,3}){3}|192\.168(?:\.\d{1,3}){2}"
    r"|172\.(?:1[6-9]|2\d|3[01])(?:\.\d{1,3}){2}"
)


def host_of(url: str) -> str:
    """Return host and port."""
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2].lower()


def is_local(url: str) -> bool:
    """Return whether the host is this machine or in a private network."""
    return bool(_LOCAL_HOST.fullmatch(re.sub(r":\d+$", "", host_of(url))))


def redacted_url(url: str) -> str:
    """Return the URL without secrets, for display."""
    url = re.sub(r"(?<=://)[^/?#]*@", f"{MASK}@", url)
    return re.sub(r"\?.+", f"?{MASK}", url, flags=re.DOTALL)


def normalize_url(url: str) -> str:
    """Add a scheme, strip the API path, and add `/v1` to a local `host:port`."""
    url = url.strip().rstrip("/")
    if "://" not in url:
        url = f"http://{url}"
    for tail in ("/chat/completions", "/responses", "/messages"):
        url = url.removesuffix(tail).rstrip("/")
    bare = "/" not in url.partition("://")[2]
    url = url.replace("://0.0.0.0", "://127.0.0.1")
    return f"{url}/v1" if bare and is_local(url) else url


def api_mode_for(provider: Provider, url: str) -> str:
    if url.endswith(("/anthropic", "/anthropic/v1")):
        return ANTHROPIC
    return _MODES_BY_HOST.get(host_of(url)) or _MODES_BY_PROVIDER.get(provider.name, CHAT)


def native_gemini_url(url: str) -> str:
    """Strip the OpenAI-compatible suffix, which Gemini's native API does not use."""
    return url.removesuffix("/openai").removesuffix("/v1beta")


def gemini_version(base_url: str) -> str:
    """Return the path of the API version, unless the address contains one."""
    return "" if "/v1" in base_url else "/v1"


def anthropic_headers(key: str, base_url: str, betas: tuple[str, ...] = ()) -> dict[str, str]:
    """Send OAuth tokens as a bearer token, API keys as `x-api-key`."""
    own = host_of(base_url) == _ANTHROPIC_HOST
    headers = {"anthropic-version": ANTHROPIC_VERSION if own else COMPATIBLE_ANTHROPIC_VERSION}
    if key.startswith(_OAUTH_KEY_PREFIX):
        headers["authorization"] = f"Bearer {key}"
        betas = (*betas, _OAUTH_BETA)
    elif key:
        headers["x-api-key"] = key
    if betas:
        headers["anthropic-beta"] = ",".join(betas)
    return headers
