"""Parse, normalize and redact server addresses."""

import re

from hermes.kit.redact import MASK

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


def has_password(url: str) -> bool:
    """Return whether the URL contains a user name or password."""
    return "@" in url.partition("://")[2].partition("/")[0]


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
