"""The environment of a child: what a program needs, who it works for, and no secret of ours.

The forwarding of an ssh agent is a capability, so only the owner's commands get it, and only
they get the password of a proxy. A variable that is not named here reaches a child only when
the configuration names it, and one that holds a secret of the house not even then.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct

from hermes.schema.scope import HOME_HIDDEN_VARIABLE, OWNER, Role, Scope, scope_variables

BASE_VARIABLES = frozenset(
    {
        "COLORTERM",
        "HOME",
        "LANG",
        "LANGUAGE",
        "LOGNAME",
        "PATH",
        "SHELL",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TERM",
        "TMPDIR",
        "TZ",
        "USER",
        "all_proxy",
        "ftp_proxy",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    }
)
BASE_PREFIXES = ("LC_", "XDG_")
SCOPE_PREFIXES = ("HERMES_SESSION_", "HERMES_CRON_AUTO_DELIVER_")
"""What only the scope may say; what our own process was started with is somebody else's."""

OWNER_VARIABLES = frozenset({"SSH_AUTH_SOCK"})
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


HOME_VARIABLE = "HERMES_HOME"
"""So that a `hermes` in a command is of the same profile as the turn."""


class EnvRules(Struct, frozen=True, kw_only=True):
    """`process` is our own environment; `passthrough` adds names, `withheld` beats everything.

    `home` is that of the profile.
    """

    process: Mapping[str, str]
    passthrough: Collection[str] = ()
    withheld: Collection[str] = ()
    home: str = ""


def child_env(rules: EnvRules, scope: Scope) -> dict[str, str]:
    """A fresh mapping for one child; nothing but `rules` and `scope` decides what is in it."""
    env = {"PATH": DEFAULT_PATH}
    env |= {
        name: _without_password(name, value, scope)
        for name, value in rules.process.items()
        if name not in rules.withheld and not name.startswith(SCOPE_PREFIXES)
        if _is_allowed(name, rules, scope)
    }
    ours = {HOME_VARIABLE: rules.home} if rules.home and scope.role is Role.OWNER else {}
    return env | scope_variables(scope) | ours


def isolated_env(env: Mapping[str, str]) -> dict[str, str]:
    """The same where the home cannot be seen: whoever looks for it there is told so."""
    hidden = {HOME_HIDDEN_VARIABLE: "1"} if HOME_VARIABLE in env else {}
    return {name: value for name, value in env.items() if name != HOME_VARIABLE} | hidden


def base_env(process: Mapping[str, str]) -> dict[str, str]:
    """For a program of the owner's that works for no scope: what any program needs."""
    plain = {
        name: process[name]
        for name in process
        if name in BASE_VARIABLES or name.startswith(BASE_PREFIXES)
    }
    return {"PATH": DEFAULT_PATH, **plain}


def _without_password(name: str, value: str, scope: Scope) -> str:
    """The account at a proxy is the owner's; others are told where the proxy is."""
    if scope.principal == OWNER or not name.lower().endswith("_proxy"):
        return value
    scheme, mark, rest = value.rpartition("://")
    place, slash, path = rest.partition("/")
    if "@" in path:
        return ""
    return f"{scheme}{mark}{place.rpartition('@')[2]}{slash}{path}"


def _is_allowed(name: str, rules: EnvRules, scope: Scope) -> bool:
    if name in rules.passthrough or name in BASE_VARIABLES or name.startswith(BASE_PREFIXES):
        return True
    if name in OWNER_VARIABLES:
        return scope.principal == OWNER
    return name.isupper() and name.lower() in BASE_VARIABLES
