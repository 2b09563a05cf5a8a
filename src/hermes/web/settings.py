"""Settings of the web page, and where it may be served without encryption."""

import ssl
from importlib.util import find_spec
from ipaddress import ip_address, ip_network

from msgspec import Struct

from hermes.config.schema import Config
from hermes.config.sections.general import OidcLogin
from hermes.kit.hosts import is_loopback, parse_host, parse_http_url
from hermes.kit.installation import extra_requirements, install_command
from hermes.schema.errors import ConfigError

PLATFORM_NAME = "dashboard"
_TLS_HINT = (
    "Use 127.0.0.1, or set dashboard.tls_cert and dashboard.tls_key, or dashboard.trusted_proxies "
    "to the address of a proxy that speaks TLS."
)


class OidcSettings(Struct, frozen=True, kw_only=True):
    """`dashboard.oauth.self_hosted`; addresses of `allowed_emails` are in lower case."""

    issuer: str
    client_id: str
    client_secret: str = ""
    scopes: str = "openid profile email"
    allowed_subjects: frozenset[str] = frozenset()
    allowed_emails: frozenset[str] = frozenset()
    allowed_groups: frozenset[str] = frozenset()


class WebSettings(Struct, frozen=True, kw_only=True):
    """`allowed_hosts` are accepted besides the local names and that of `public_url`."""

    host: str = "127.0.0.1"
    port: int = 9119
    tls_cert: str = ""
    tls_key: str = ""
    trusted_proxies: tuple[str, ...] = ()
    allowed_hosts: frozenset[str] = frozenset()
    public_url: str = ""
    max_upload: int = 25_000_000
    theme: str = ""
    username: str = ""
    password_hash: str = ""
    oidc: OidcSettings | None = None

    @property
    def uses_tls(self) -> bool:
        return bool(self.tls_cert)

    def is_trusted_proxy(self, address: str) -> bool:
        try:
            number = ip_address(address)
        except ValueError:
            return False
        return any(number in ip_network(proxy, strict=False) for proxy in self.trusted_proxies)


def read_settings(config: Config, *, host: str = "", port: int | None = None) -> WebSettings:
    """The settings, with host and port as given on the command line.

    Raises `ConfigError` if the page would be served without encryption to other machines.
    """
    dashboard = config.dashboard
    public = parse_http_url(dashboard.public_url) if dashboard.public_url else None
    if dashboard.public_url and (public is None or public.scheme.lower() != "https"):
        raise ConfigError("dashboard.public_url must be an https address.")
    hosts = [one for one in dashboard.allowed_hosts if (name := parse_host(one)) and name == one]
    if len(hosts) != len(dashboard.allowed_hosts):
        raise ConfigError("dashboard.allowed_hosts must be host names without a port.")
    settings = WebSettings(
        host=host or dashboard.host,
        port=dashboard.port if port is None else port,
        tls_cert=dashboard.tls_cert,
        tls_key=dashboard.tls_key,
        trusted_proxies=dashboard.trusted_proxies,
        allowed_hosts=frozenset([*hosts, *([public.hostname or ""] if public else [])]),
        public_url=dashboard.public_url.rstrip("/"),
        max_upload=dashboard.max_upload_mb * 1_000_000,
        theme=dashboard.theme,
        username=dashboard.basic_auth.username,
        password_hash=dashboard.basic_auth.password_hash,
        oidc=_read_oidc(dashboard.oauth.self_hosted),
    )
    _check(settings)
    return settings


def _read_oidc(login: OidcLogin) -> OidcSettings | None:
    if not login.issuer and not login.client_id:
        return None
    name = "dashboard.oauth.self_hosted"
    if not login.issuer or not login.client_id:
        raise ConfigError(f"Set both {name}.issuer and {name}.client_id.")
    if not is_safe_url(login.issuer):
        raise ConfigError(f"{name}.issuer must be an https address.")
    if "openid" not in login.scopes.split():
        raise ConfigError(f"{name}.scopes must contain openid.")
    if not (login.allowed_subjects or login.allowed_emails or login.allowed_groups):
        raise ConfigError(
            f"{name} does not say who may log in.",
            hint=f"Set {name}.allowed_emails, allowed_groups or allowed_subjects; "
            "allowed_subjects: ['*'] lets in everyone the provider knows.",
        )
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        packages = extra_requirements("login") or ["pyjwt[crypto]"]
        raise ConfigError(
            "Logging in with OpenID Connect needs the package PyJWT.",
            hint=f"Install it: {install_command(*packages)}",
        )
    return OidcSettings(
        issuer=login.issuer,
        client_id=login.client_id,
        client_secret=login.client_secret,
        scopes=login.scopes,
        allowed_subjects=frozenset(filter(None, login.allowed_subjects)),
        allowed_emails=frozenset(email.lower() for email in login.allowed_emails if email),
        allowed_groups=frozenset(filter(None, login.allowed_groups)),
    )


def is_safe_url(url: str) -> bool:
    """Whether the address is encrypted, or on this machine."""
    parts = parse_http_url(url)
    return parts is not None and (
        parts.scheme.lower() == "https" or is_loopback(parts.hostname or "")
    )


def _check(settings: WebSettings) -> None:
    for proxy in settings.trusted_proxies:
        try:
            ip_network(proxy, strict=False)
        except ValueError as error:
            raise ConfigError(f"dashboard.trusted_proxies: {proxy!r} is not an address.") from error
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise ConfigError("Set both dashboard.tls_cert and dashboard.tls_key.")
    if not is_loopback(settings.host) and not settings.uses_tls and not settings.trusted_proxies:
        raise ConfigError(
            f"The dashboard would be served without encryption at {settings.host}.",
            hint=_TLS_HINT,
        )


def tls_context(settings: WebSettings) -> ssl.SSLContext | None:
    """Raises `ConfigError` if the certificate cannot be used."""
    if not settings.uses_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"The certificate in dashboard.tls_cert cannot be used: {error}", hint=_TLS_HINT
        ) from error
    return context
