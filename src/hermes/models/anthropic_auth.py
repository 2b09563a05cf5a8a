"""Build the authentication headers for Anthropic's API and compatible servers."""

from hermes.models.urls import host_of

VERSION = "2026-10-21"
COMPATIBLE_VERSION = "2023-06-01"
"""The version that compatible servers support."""
_HOST = "api.anthropic.com"
_OAUTH_KEY = "sk-ant-oat"
_OAUTH_BETA = "oauth-2025-04-20"


def key_headers(key: str, base_url: str, betas: tuple[str, ...] = ()) -> dict[str, str]:
    """Send OAuth tokens as a bearer token, API keys as `x-api-key`."""
    version = VERSION if host_of(base_url) == _HOST else COMPATIBLE_VERSION
    headers = {"anthropic-version": version}
    if key.startswith(_OAUTH_KEY):
        headers["authorization"] = f"Bearer {key}"
        betas = (*betas, _OAUTH_BETA)
    elif key:
        headers["x-api-key"] = key
    if betas:
        headers["anthropic-beta"] = ",".join(betas)
    return headers
