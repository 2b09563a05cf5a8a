"""Decide who may talk to the agent, from stable user ids; deny by default."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from hermes.config.platforms import facts_of
from hermes.config.sections import FreeTable
from hermes.config.sections.messaging import Platform
from hermes.gateway.platform_settings import (
    WILDCARD,
    canonical_id,
    ids_of,
    is_true,
    lower_text,
    parse_list,
    platform_variable,
)
from hermes.gateway.roles import admins_in, authenticated_role
from hermes.ports.channel import InboundDetails
from hermes.schema.errors import ConfigError
from hermes.schema.scope import OWNER, Role, own_channel, platform_of
from hermes.session.keys import DIRECT_CHAT, SessionSource

Bots: TypeAlias = Literal["none", "mentions", "all"]
ChatPolicy: TypeAlias = Literal["", "open", "allowlist", "pairing", "disabled"]
"""Who may write in this kind of chat; by default (empty), only people whom another rule admits."""
Ids: TypeAlias = frozenset[str]

_NO_IDS: Ids = frozenset()


class Sender(Struct, frozen=True, kw_only=True):
    """The sender of a message, by what the platform guarantees (no self-chosen names).

    `ids` are all stable ids of the person; the first is the canonical one.
    """

    platform: str
    ids: tuple[str, ...] = ()
    chat: str = ""
    direct: bool = True
    roles: tuple[str, ...] = ()
    bot: bool = False
    mentions: bool = False
    relayed: bool = False


class AccessRules(Struct, frozen=True, kw_only=True):
    """Who is admitted on one platform. The defaults admit no one."""

    denied: Ids = _NO_IDS
    authenticated_role: Role | None = None
    relay: bool = False
    chats: Ids = _NO_IDS
    bots: Bots = "none"
    everybody: bool = False
    users: Ids = _NO_IDS
    group_users: Ids = _NO_IDS
    roles: Ids = _NO_IDS
    paired: Ids = _NO_IDS
    everybody_anywhere: bool = False
    owners: Ids = _NO_IDS
    group_owners: Ids = _NO_IDS
    pairing: bool = False
    direct_policy: ChatPolicy = ""
    group_policy: ChatPolicy = ""


class AccessReason(StrEnum):
    """Reason for a decision; the first eleven admit, in the order they are checked."""

    AUTHENTICATED = "authenticated"
    RELAYED = "relayed"
    CHAT_LISTED = "chat_listed"
    BOT_ALLOWED = "bot_allowed"
    EVERYBODY = "everybody"
    LISTED = "listed"
    ANYBODY_LISTED = "anybody_listed"
    ROLE_LISTED = "role_listed"
    PAIRED = "paired"
    EVERYBODY_ANYWHERE = "everybody_anywhere"
    NAMED_OWNER = "named_owner"
    DENIED = "denied"
    CHATS_DISABLED = "chats_disabled"
    UNKNOWN_BOT = "unknown_bot"
    NO_ID = "no_id"
    UNKNOWN_USER_IN_GROUP = "unknown_user_in_group"
    UNKNOWN_USER = "unknown_user"


class Allowed(Struct, frozen=True):
    role: Role
    reason: AccessReason


class OfferPairing(Struct, frozen=True):
    """The sender is unknown, but may request a pairing code."""

    reason: AccessReason = AccessReason.UNKNOWN_USER


class Ignored(Struct, frozen=True):
    reason: AccessReason


AccessDecision: TypeAlias = Allowed | OfferPairing | Ignored


def decide_access(sender: Sender, rules: AccessRules) -> AccessDecision:
    """Apply the deny lists, then the first rule that admits the sender; reject anyone else."""
    if WILDCARD in rules.denied or not rules.denied.isdisjoint(sender.ids):
        return Ignored(AccessReason.DENIED)
    if (rules.direct_policy if sender.direct else rules.group_policy) == "disabled":
        return Ignored(AccessReason.CHATS_DISABLED)
    if rules.authenticated_role is not None:
        role = Role.OWNER if _is_owner(sender, rules) else rules.authenticated_role
        return Allowed(role, AccessReason.AUTHENTICATED)
    for reason, lets_in in _ALLOW_RULES:
        if lets_in(sender, rules):
            return Allowed(_role(sender, rules), reason)
    return _unknown(sender, rules)


def _unknown(sender: Sender, rules: AccessRules) -> Ignored | OfferPairing:
    if sender.bot:
        return Ignored(AccessReason.UNKNOWN_BOT)
    if not sender.ids:
        return Ignored(AccessReason.NO_ID)
    if not sender.direct:
        return Ignored(AccessReason.UNKNOWN_USER_IN_GROUP)
    return OfferPairing() if rules.pairing else Ignored(AccessReason.UNKNOWN_USER)


def principal_of(channel: str, sender: Sender, role: Role) -> str:
    """Return the principal that the sender reads past sessions as."""
    if role is Role.OWNER:
        return OWNER
    return f"{channel}:{sender.ids[0] if sender.ids else sender.chat}"


_NO_DETAILS = InboundDetails()


def sender_of(source: SessionSource, about: InboundDetails = _NO_DETAILS) -> Sender:
    """Build a Sender from what the platform guarantees."""
    candidates = (source.user_id, source.user_id_alt)
    ids = dict.fromkeys(canonical_id(source.platform, user) for user in candidates if user)
    return Sender(
        platform=source.platform,
        ids=tuple(user for user in ids if user),
        chat=source.chat_id,
        direct=source.chat_type == DIRECT_CHAT,
        roles=about.roles,
        bot=source.is_bot,
        mentions=about.mentions,
        relayed=about.relayed,
    )


def access_rules_from(
    channel: str,
    env: Mapping[str, str],
    settings: Platform | None = None,
    *,
    unauthorized: str = "pair",
    relay: bool = False,
) -> AccessRules:
    """Build the rules of a platform or one of its accounts from variables and settings.

    The platform's variables belong to its first account, except for the list of denied users.
    `unauthorized` is the setting `unauthorized_dm_behavior`; `relay` says whether a relay that
    checks senders itself is configured.
    """
    platform = platform_of(channel)
    own_env: Mapping[str, str] = env if own_channel(channel) == platform else {}
    var = partial(_variable, platform, own_env)
    extra = (settings or Platform()).extra
    anywhere = _ids_for_platform(platform, env.get("GATEWAY_ALLOWED_USERS", ""))
    listed = (extra.get("allow_from"), extra.get("allowed_users"))
    denied = ids_of(platform, _variable(platform, env, "DENIED_USERS"), extra.get("deny_from"))
    rules = AccessRules(
        denied=denied | _ids_for_platform(platform, env.get("GATEWAY_DENIED_USERS", "")),
        authenticated_role=authenticated_role(platform),
        relay=relay,
        chats=_texts(var("GROUP_ALLOWED_CHATS"), extra.get("group_allowed_chats")),
        bots=_bots(var("ALLOW_BOTS") or lower_text(extra, "allow_bots")),
        everybody=is_true(var("ALLOW_ALL_USERS")),
        users=anywhere | ids_of(platform, var("ALLOWED_USERS"), *listed),
        group_users=ids_of(platform, var("GROUP_ALLOWED_USERS"), extra.get("group_allow_from")),
        roles=_texts(var("ALLOWED_ROLES"), extra.get("allowed_roles")),
        everybody_anywhere=is_true(env.get("GATEWAY_ALLOW_ALL_USERS", "")),
        owners=ids_of(platform, admins_in(extra, DIRECT_CHAT)),
        group_owners=ids_of(platform, admins_in(extra, "group")),
        direct_policy=_chat_policy("dm_policy", var("DM_POLICY"), extra),
        group_policy=_chat_policy("group_policy", var("GROUP_POLICY"), extra),
    )
    return structs.replace(rules, pairing=_offers_pairing(platform, extra, rules, unauthorized))


def _variable(platform: str, env: Mapping[str, str], suffix: str) -> str:
    return env.get(platform_variable(platform, suffix), "")


def _is_relayed(sender: Sender, rules: AccessRules) -> bool:
    return sender.relayed and rules.relay


def _is_in_listed_chat(sender: Sender, rules: AccessRules) -> bool:
    if sender.direct or sender.bot or not sender.chat:
        return False
    # Existing configurations also list groups among a group's users.
    return WILDCARD in rules.chats or sender.chat in rules.chats | rules.group_users


def _is_allowed_bot(sender: Sender, rules: AccessRules) -> bool:
    return sender.bot and (rules.bots == "all" or (rules.bots == "mentions" and sender.mentions))


def _is_listed(sender: Sender, rules: AccessRules) -> bool:
    """Match the exact id; a bot can be admitted this way too."""
    return not _users(sender, rules).isdisjoint(sender.ids)


def _has_listed_role(sender: Sender, rules: AccessRules) -> bool:
    return _is_person(sender) and not rules.roles.isdisjoint(sender.roles)


def _is_paired(sender: Sender, rules: AccessRules) -> bool:
    return _is_person(sender) and not rules.paired.isdisjoint(sender.ids)


def _is_owner(sender: Sender, rules: AccessRules) -> bool:
    """Match the exact id; a wildcard never makes anyone an owner."""
    owners = rules.owners if sender.direct else rules.group_owners
    return not sender.bot and not owners.isdisjoint(sender.ids)


_ALLOW_RULES: tuple[tuple[AccessReason, Callable[[Sender, AccessRules], bool]], ...] = (
    (AccessReason.RELAYED, _is_relayed),
    (AccessReason.CHAT_LISTED, _is_in_listed_chat),
    (AccessReason.BOT_ALLOWED, _is_allowed_bot),
    (AccessReason.EVERYBODY, lambda sender, rules: _is_open(sender, rules) and _is_person(sender)),
    (AccessReason.LISTED, _is_listed),
    (
        AccessReason.ANYBODY_LISTED,
        lambda sender, rules: WILDCARD in _users(sender, rules) and _is_person(sender),
    ),
    (AccessReason.ROLE_LISTED, _has_listed_role),
    (AccessReason.PAIRED, _is_paired),
    (
        AccessReason.EVERYBODY_ANYWHERE,
        lambda sender, rules: rules.everybody_anywhere and _is_person(sender),
    ),
    (AccessReason.NAMED_OWNER, _is_owner),
)


def _is_open(sender: Sender, rules: AccessRules) -> bool:
    policy = rules.direct_policy if sender.direct else rules.group_policy
    return rules.everybody or policy == "open"


def _is_person(sender: Sender) -> bool:
    return bool(sender.ids) and not sender.bot


def _users(sender: Sender, rules: AccessRules) -> Ids:
    return rules.users if sender.direct else rules.users | rules.group_users


def _role(sender: Sender, rules: AccessRules) -> Role:
    """Members must be named; users admitted by an open rule are guests."""
    if _is_owner(sender, rules):
        return Role.OWNER
    named = (_is_relayed, _is_listed, _has_listed_role, _is_paired)
    return Role.MEMBER if any(rule(sender, rules) for rule in named) else Role.GUEST


def _ids_for_platform(platform: str, text: str) -> Ids:
    """Parse a list for all platforms; `platform:id` applies to that platform only."""
    entries = [entry.removeprefix(f"{platform}:") for entry in parse_list(text)]
    return ids_of(platform, entries)


def _texts(*values: object) -> Ids:
    return frozenset(entry for value in values for entry in parse_list(value))


def _bots(text: str) -> Bots:
    word = text.strip().lower()
    if word == "mentions":
        return "mentions"
    return "all" if word == "all" or is_true(word) else "none"


_PAIRING = {"pairing": "pair", "allowlist": "ignore"}


def _chat_policy(name: str, variable: str, extra: FreeTable) -> ChatPolicy:
    """Read a policy. Raises `ConfigError` for an unknown word: it must not open or close a chat."""
    value = extra.get(name)
    word = variable.strip().lower() or ("" if value is None else str(value).strip().lower())
    try:
        return msgspec.convert(word, ChatPolicy)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"Invalid value for the platform setting {name}: {word!r}.",
            hint="Use open, allowlist, pairing or disabled.",
        ) from error


def _offers_pairing(platform: str, extra: FreeTable, rules: AccessRules, general: str) -> bool:
    """The platform's own setting wins; with an allow list, unknown users get no reply."""
    if own := lower_text(extra, "unauthorized_dm_behavior") or _PAIRING.get(rules.direct_policy):
        return own == "pair"
    limited = bool(rules.users or rules.group_users or rules.chats)
    return general.strip().lower() == "pair" and not limited and facts_of(platform).pairing
