"""How a key is shown to Anthropic."""

VERSION = "2023-06-01"
_OAUTH_KEY = "sk-ant-oat"
_OAUTH_BETA = "oauth-2025-04-20"


def key_headers(key: str, betas: tuple[str, ...] = ()) -> dict[str, str]:
    """A token from a login goes another way than a key."""
    headers = {"anthropic-version": VERSION}
    if key.startswith(_OAUTH_KEY):
        headers["authorization"] = f"Bearer {key}"
        betas = (*betas, _OAUTH_BETA)
    elif key:
        headers["x-api-key"] = key
    if betas:
        headers["anthropic-beta"] = ",".join(betas)
    return headers
