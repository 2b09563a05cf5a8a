"""The environment of a child: what a program needs, who it works for, and no secret of ours.

The forwarding of an ssh agent is a capability, so only the owner's commands get it, and only
they get the password of a proxy. A variable that is not named here reaches a child only when
the configuration names it, and one that holds a secret of the house not even then.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct

from hermes.schema.scope import HOME_IS_HIDDEN, OWNER, Role, Scope, variables

PLAIN = frozenset(
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
FAMILIES = ("LC_", "XDG_")
SCOPED = ("HERMES_SESSION_", "HERMES_CRON_AUTO_DELIVER_")
"""What only the scope may say; what our own process was started with is somebody else's."""

OWNERS = frozenset({"SSH_AUTH_SOCK"})
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


OUR_HOME = "HERMES_HOME"
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
        if name not in rules.withheld and not name.startswith(SCOPED)
        if _allowed(name, rules, scope)
    }
    ours = {OUR_HOME: rules.home} if rules.home and scope.role is Role.OWNER else {}
    return env | variables(scope) | ours


def behind_a_wall(env: Mapping[str, str]) -> dict[str, str]:
    """The same where the home cannot be seen: whoever looks for it there is told so."""
    hidden = {HOME_IS_HIDDEN: "1"} if OUR_HOME in env else {}
    return {name: value for name, value in env.items() if name != OUR_HOME} | hidden


def bare_env(process: Mapping[str, str]) -> dict[str, str]:
    """For a program of the owner's that works for no scope: what any program needs."""
    plain = {name: process[name] for name in process if name in PLAIN or name.startswith(FAMILIES)}
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


def _allowed(name: str, rules: EnvRules, scope: Scope) -> bool:
    if name in rules.passthrough or name in PLAIN or name.startswith(FAMILIES):
        return True
    if name in OWNERS:
        return scope.principal == OWNER
    return name.isupper() and name.lower() in PLAIN
