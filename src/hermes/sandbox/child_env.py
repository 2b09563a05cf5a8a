"""Build the environment of child processes without leaking secrets.

Ssh agent forwarding and proxy passwords are only passed to the owner's commands. A variable
that is not listed here reaches a child only if the configuration names it, and never if it
holds one of the agent's own secrets.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct

from hermes.config.env import BASE_PREFIXES, BASE_VARIABLES, DEFAULT_PATH
from hermes.schema.scope import HOME_HIDDEN_VARIABLE, OWNER, Role, Scope, scope_variables

SCOPE_PREFIXES = ("HERMES_SESSION_", "HERMES_CRON_AUTO_DELIVER_")
"""Set from the scope only; values inherited by this process belong to another session."""

OWNER_VARIABLES = frozenset({"SSH_AUTH_SOCK"})


HOME_VARIABLE = "HERMES_HOME"
"""Makes `hermes`, run by a command, use the turn's profile."""


class EnvRules(Struct, frozen=True, kw_only=True):
    """`process` is our own environment; `passthrough` adds names, `withheld` overrides everything.

    `home` is the profile's.
    """

    process: Mapping[str, str]
    passthrough: Collection[str] = ()
    withheld: Collection[str] = ()
    home: str = ""


def child_env(rules: EnvRules, scope: Scope) -> dict[str, str]:
    """Build the environment of one child from the rules and the scope only."""
    env = {"PATH": DEFAULT_PATH}
    env |= {
        name: _without_password(name, value, scope)
        for name, value in rules.process.items()
        if name not in rules.withheld and not name.startswith(SCOPE_PREFIXES)
        if _is_allowed(name, rules, scope)
    }
    home = {HOME_VARIABLE: rules.home} if rules.home and scope.role is Role.OWNER else {}
    return env | scope_variables(scope) | home


def isolated_env(env: Mapping[str, str]) -> dict[str, str]:
    """The same for commands that cannot see the home; a variable tells them so."""
    hidden = {HOME_HIDDEN_VARIABLE: "1"} if HOME_VARIABLE in env else {}
    return {name: value for name, value in env.items() if name != HOME_VARIABLE} | hidden


def _without_password(name: str, value: str, scope: Scope) -> str:
    """Remove the owner's proxy account for everyone else."""
    if scope.principal == OWNER or not name.lower().endswith("_proxy"):
        return value
    scheme, separator, rest = value.rpartition("://")
    host, slash, path = rest.partition("/")
    if "@" in path:
        return ""
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def _is_allowed(name: str, rules: EnvRules, scope: Scope) -> bool:
    if name in rules.passthrough or name in BASE_VARIABLES or name.startswith(BASE_PREFIXES):
        return True
    if name in OWNER_VARIABLES:
        return scope.principal == OWNER
    return name.isupper() and name.lower() in BASE_VARIABLES
