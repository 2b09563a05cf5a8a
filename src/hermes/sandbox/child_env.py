"""The environment of a child: what a program needs, who it works for, and no secret of ours.

The forwarding of an ssh agent is a capability, so only the owner's commands get it. A
variable that is not named here reaches a child only when the configuration names it, and one
that holds a secret of the house not even then.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct

from hermes.schema.scope import OWNER, Scope

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
SESSION = "HERMES_SESSION_"
OWNERS = frozenset({"SSH_AUTH_SOCK"})
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class EnvRules(Struct, frozen=True, kw_only=True):
    """`process` is our own environment; `passthrough` adds names, `withheld` beats everything."""

    process: Mapping[str, str]
    passthrough: Collection[str] = ()
    withheld: Collection[str] = ()


def child_env(rules: EnvRules, scope: Scope) -> dict[str, str]:
    """A fresh mapping for one child; nothing but `rules` and `scope` decides what is in it."""
    env = {"PATH": DEFAULT_PATH}
    env |= {
        name: value
        for name, value in rules.process.items()
        if name not in rules.withheld and not name.startswith(SESSION)
        if _allowed(name, rules, scope)
    }
    return env | _session(scope)


def _allowed(name: str, rules: EnvRules, scope: Scope) -> bool:
    if name in rules.passthrough or name in PLAIN or name.startswith(FAMILIES):
        return True
    if name in OWNERS:
        return scope.principal == OWNER
    return name.isupper() and name.lower() in PLAIN


def _session(scope: Scope) -> dict[str, str]:
    values = {
        "HERMES_SESSION_ID": scope.session,
        "HERMES_SESSION_PROFILE": scope.profile,
        "HERMES_SESSION_USER_ID": scope.principal,
    }
    if scope.address is not None:
        values["HERMES_SESSION_PLATFORM"] = scope.address.channel
        values["HERMES_SESSION_CHAT_ID"] = scope.address.chat
        if scope.address.thread is not None:
            values["HERMES_SESSION_THREAD_ID"] = scope.address.thread
    return values
