"""People who may talk to the agent in chat apps: who they are, in which role, and changes to it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from hermes.app.chat_settings import ChatSettings
from hermes.channels import MANIFESTS
from hermes.config.editor import change_settings, set_variable, unset_variable
from hermes.config.env import Env, read_dotenv
from hermes.config.home import Home
from hermes.config.platform_blocks import other_places
from hermes.config.platforms import facts_of
from hermes.config.schema import Config
from hermes.config.values import as_mapping, format_path
from hermes.gateway.authorization import AccessRules, access_rules_from
from hermes.gateway.pairing import PairedUser, Pairing, PairingRejected, PairingRejection
from hermes.gateway.platform_settings import WILDCARD, canonical_id, parse_list, platform_variable
from hermes.gateway.roles import role_permissions_from
from hermes.kit.text import did_you_mean, plural
from hermes.schema.errors import UsageError
from hermes.schema.scope import Role

OWNERS = "allow_admin_from"
_LISTS = ("allow_from", "allowed_users", "group_allow_from", OWNERS, "group_allow_admin_from")
_VARIABLES = ("ALLOWED_USERS", "GROUP_ALLOWED_USERS")
UNEXPANDED: Mapping[str, str] = {}
"""Variables while settings are edited: `${NAME}` stays as it is in the file."""


class ChatUser(Struct, frozen=True, kw_only=True):
    """`user` is the id on the platform; everybody there if it is a wildcard."""

    platform: str
    user: str
    role: Role
    name: str = ""
    since: datetime | None = None
    is_paired: bool = False


def chat_platforms(config: Config, env: Mapping[str, str], pairing: Pairing) -> list[str]:
    """The platforms with people: enabled ones, and those with pairings."""
    from hermes.app.channels import enabled_platforms  # noqa: PLC0415 - loads the application

    paired = [one.platform for one in (*pairing.paired_users(), *pairing.pending())]
    enabled = [one for one in enabled_platforms(config, env) if not facts_of(one).sender_role]
    return list(dict.fromkeys([*enabled, *paired]))


def check_chat_platform(name: str, config: Config, more: Iterable[str] = ()) -> None:
    """Raises `UsageError` for a platform that is neither built in nor configured, nor in `more`."""
    known = sorted({*MANIFESTS, *config.platforms, *more})
    if name not in known:
        raise UsageError(
            f"Unknown platform: {name}.",
            hint=did_you_mean(name, known) or f"Available: {', '.join(MANIFESTS)}",
        )


def list_users(config: Config, env: Mapping[str, str], pairing: Pairing) -> list[ChatUser]:
    paired = {(one.platform, one.user): one for one in pairing.paired_users()}
    return [
        _person(platform, user, rules, paired.get((platform, user)))
        for platform in chat_platforms(config, env, pairing)
        for rules in [_rules(config, env, platform)]
        for user in _users(platform, rules, paired)
    ]


def approve(pairing: Pairing, platform: str, code: str) -> PairedUser:
    """Approve the user who got this code. Raises `UsageError`."""
    answer = pairing.approve(platform, code)
    if isinstance(answer, PairingRejected):
        raise _refusal(platform, answer)
    return answer


def allow(home: Home, env: Env, platform: str, user: str) -> None:
    """Add someone to the list of allowed people in `.env`."""
    user = canonical_id(platform, user)
    if not user or "," in user or not user.isprintable():
        raise UsageError(f"{user!r} is not a user id.")
    name = platform_variable(platform, _VARIABLES[0])
    listed = parse_list(env.get(name, ""))
    set_variable(home, name, ",".join(dict.fromkeys([*listed, user])))


def remove_from_variables(home: Home, env: Env, platform: str, user: str) -> Sequence[str]:
    """Remove someone from the lists in `.env`.

    Returns the variables set elsewhere that still name them, which cannot be changed from here.
    """
    own, elsewhere = read_dotenv(home.dotenv), list[str]()
    for name in (platform_variable(platform, one) for one in _VARIABLES):
        listed = parse_list(own.get(name) if name in own else env.get(name, ""))
        others = _without(platform, listed, user)
        if len(others) == len(listed):
            continue
        if name not in own:
            elsewhere.append(name)
        elif others:
            set_variable(home, name, ",".join(others))
        else:
            unset_variable(home, name)
    return elsewhere


def remove(home: Home, env: Env, pairing: Pairing, person: tuple[str, str]) -> None:
    """Revoke all access. Raises `UsageError` if a list set elsewhere still names the person."""
    platform, user = person
    pairing.revoke(platform, user)
    elsewhere = remove_from_variables(home, env, platform, user)
    change_settings(home, UNEXPANDED, lambda config: _without_user(config, platform, user))
    if elsewhere:
        raise UsageError(
            f"{user} is also in {', '.join(elsewhere)}, which is set outside {home.dotenv}.",
            hint="Remove it there; until then this person has access.",
        )


def set_owner(home: Home, person: tuple[str, str], *, is_owner: bool) -> None:
    platform, user = person

    def decide(config: Config) -> Mapping[str, str | None]:
        listed = parse_list(_extra(config, platform).get(OWNERS))
        others = _without(platform, listed, user)
        return _change(platform, OWNERS, [*others, *([user] if is_owner else [])])

    change_settings(home, UNEXPANDED, decide)


def set_role_limits(home: Home, platform: str, role: Role, limits: Mapping[str, object]) -> None:
    """Change what a role may do on a platform. Raises `ConfigError` for wrong values."""

    def decide(config: Config) -> Mapping[str, str | None]:
        roles = as_mapping(_extra(config, platform).get("roles")) or {}
        changed = {**(as_mapping(roles.get(role.value)) or {}), **limits}
        role_permissions_from({"roles": {**roles, role.value: changed}})
        return _change(platform, "roles", {**roles, role.value: changed})

    change_settings(home, UNEXPANDED, decide)


def _extra(config: Config, platform: str) -> Mapping[str, object]:
    return ChatSettings(config).platform(platform).extra


def _rules(config: Config, env: Mapping[str, str], platform: str) -> AccessRules:
    return access_rules_from(platform, env, ChatSettings(config).platform(platform))


def _users(
    platform: str, rules: AccessRules, paired: Mapping[tuple[str, str], PairedUser]
) -> list[str]:
    named = rules.users | rules.group_users | rules.owners | rules.group_owners
    own = {user for name, user in paired if name == platform}
    everybody = {WILDCARD} if rules.everybody or rules.everybody_anywhere else set[str]()
    return sorted(named | own | everybody)


def _person(platform: str, user: str, rules: AccessRules, paired: PairedUser | None) -> ChatUser:
    role = Role.GUEST if user == WILDCARD else Role.MEMBER
    if user in rules.owners | rules.group_owners and user != WILDCARD:
        role = Role.OWNER
    return ChatUser(
        platform=platform,
        user=user,
        role=role,
        name=paired.name if paired else "",
        since=paired.approved_at if paired else None,
        is_paired=paired is not None,
    )


def _without(platform: str, listed: Iterable[str], user: str) -> list[str]:
    gone = canonical_id(platform, user)
    return [one for one in listed if canonical_id(platform, one) != gone]


def _without_user(config: Config, platform: str, user: str) -> Mapping[str, str | None]:
    extra, changes = _extra(config, platform), dict[str, str | None]()
    for key in _LISTS:
        listed = parse_list(extra.get(key))
        others = _without(platform, listed, user)
        if len(others) < len(listed):
            changes |= _change(platform, key, others)
    return changes


def _change(platform: str, key: str, value: object) -> dict[str, str | None]:
    path = format_path(("platforms", platform, "extra", key))
    elsewhere = dict.fromkeys(other_places(platform, key))
    return {path: msgspec.json.encode(value).decode() if value else None, **elsewhere}


def _refusal(platform: str, answer: PairingRejected) -> UsageError:
    if answer.reason is PairingRejection.LOCKED:
        message = f"Codes for {platform} are locked after too many wrong attempts."
    elif not answer.tries_left:
        message = f"Wrong code for {platform}; codes are now locked after too many wrong attempts."
    else:
        tries = "1 try" if answer.tries_left == 1 else f"{answer.tries_left} tries"
        return UsageError(
            f"Wrong or expired code for {platform} ({tries} left).",
            hint="Codes expire after an hour; a new message to the agent creates a new one.",
        )
    minutes = plural(max(1, round(answer.wait / 60)), "minute")
    return UsageError(message, hint=f"Try again in {minutes}.")
