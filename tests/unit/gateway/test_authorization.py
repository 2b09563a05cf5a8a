"""Access decisions for every combination of settings and senders."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hermes.config.platforms import PLATFORMS
from hermes.config.sections.messaging import Platform
from hermes.gateway.authorization import (
    AccessDecision,
    AccessReason,
    AccessRules,
    Allowed,
    Ignored,
    OfferPairing,
    Sender,
    access_rules_from,
    decide_access,
    principal_of,
    sender_of,
)
from hermes.ports.channel import InboundDetails
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Role
from hermes.session.keys import SessionSource
from support.cases import cases

ME, OTHER, CHAT = "111", "222", "-900"

CHAT_TYPES = ("dm", "group")
SENDERS = ("person", "bot", "bot that names us", "nobody")
ALLOW_BOTS = ("", "mentions", "all")
LISTS = ("", OTHER, ME, f"{OTHER},*")
DENIED = ("", OTHER, ME)
SWITCHES = tuple(product((False, True), repeat=4))
"""Paired, allow-all on the platform, allow-all in the gateway, group listed."""


def source(chat_type: str, sender: str) -> SessionSource:
    """The display name is the id of a listed user, which must not matter."""
    return SessionSource(
        platform="telegram",
        chat_id=CHAT if chat_type == "group" else ME,
        chat_type=chat_type,
        chat_name=OTHER,
        user_id=None if sender == "nobody" else ME,
        user_name=OTHER,
        is_bot=sender.startswith("bot"),
    )


def oracle(
    chat_type: str, sender: str, bots: str, users: str, denied: str, switches: tuple[bool, ...]
) -> tuple[str, str]:
    """The same rules in another form: what each fact admits, and whom."""
    paired, everybody, anywhere, chat = switches
    has_id, is_bot, group = sender != "nobody", sender.startswith("bot"), chat_type == "group"
    if denied == ME and has_id:
        return "ignored", "denied"
    opens: set[str] = set()
    if group and chat and not is_bot:
        opens.add("1 chat_listed guest")
    if is_bot and (bots == "all" or (bots == "mentions" and "names" in sender)):
        opens.add("2 bot_allowed guest")
    if users == ME and has_id:
        opens.add("4 listed member")
    if has_id and not is_bot:
        opens |= {"3 everybody guest"} if everybody else set()
        opens |= {"5 anybody_listed guest"} if "*" in users else set()
        opens |= {"6 paired member"} if paired else set()
        opens |= {"7 everybody_anywhere guest"} if anywhere else set()
    if opens:
        role = "member" if any("member" in way for way in opens) else "guest"
        return role, min(opens).split()[1]
    if is_bot or not has_id:
        return "ignored", "unknown_bot" if is_bot else "no_id"
    if group:
        return "ignored", "unknown_user_in_group"
    return "ignored" if users or chat else "pair", "unknown_user"


def as_tuple(verdict: AccessDecision) -> tuple[str, str]:
    match verdict:
        case Allowed(role, reason):
            return role.value, reason.value
        case OfferPairing(reason):
            return "pair", reason.value
        case Ignored(reason):
            return "ignored", reason.value


def test_access_decisions_match_reference_table() -> None:
    rows = 0
    seen: set[tuple[str, str]] = set()
    for row in product(CHAT_TYPES, SENDERS, ALLOW_BOTS, LISTS, DENIED, SWITCHES):
        chat_type, who, bots, users, denied, (paired, everybody, anywhere, chat) = row
        env = {
            "TELEGRAM_ALLOW_BOTS": bots,
            "TELEGRAM_ALLOWED_USERS": users,
            "TELEGRAM_DENIED_USERS": denied,
            "TELEGRAM_ALLOW_ALL_USERS": "true" if everybody else "",
            "GATEWAY_ALLOW_ALL_USERS": "1" if anywhere else "0",
            "TELEGRAM_GROUP_ALLOWED_CHATS": CHAT if chat else "",
            "DISCORD_ALLOWED_USERS": "*",
        }
        rules = structs.replace(
            access_rules_from("telegram", env), paired=frozenset({ME if paired else OTHER})
        )
        sender = sender_of(source(chat_type, who), InboundDetails(mentions="names" in who))
        found = as_tuple(decide_access(sender, rules))
        assert found == oracle(chat_type, who, bots, users, denied, row[-1]), row
        seen.add(found)
        rows += 1
    assert rows == 4608
    assert len(seen) == 17


@cases("platform", [one.prefix.lower() for one in PLATFORMS] + ["plugin"])
@cases("chat_type", ["dm", "group", "channel", "thread", "forum"])
def test_default_settings_admit_no_one(platform: str, chat_type: str) -> None:
    rules = access_rules_from(platform, {})
    sender = sender_of(
        SessionSource(platform=platform, chat_id=CHAT, chat_type=chat_type, user_id=ME)
    )
    assert not isinstance(decide_access(sender, rules), Allowed)


ids = st.sampled_from([ME, OTHER, "*", "333"])
some = st.frozensets(ids, max_size=3)
all_rules = st.builds(
    AccessRules,
    denied=st.frozensets(st.sampled_from([OTHER, "333"])),
    authenticated_role=st.sampled_from([None, None, Role.GUEST]),
    relay=st.booleans(),
    chats=st.frozensets(st.sampled_from([CHAT, "-901", "*"])),
    bots=st.sampled_from(["none", "mentions", "all"]),
    everybody=st.booleans(),
    users=some,
    group_users=some,
    roles=st.frozensets(st.sampled_from(["r1", "r2"])),
    paired=st.frozensets(st.sampled_from([ME, OTHER])),
    everybody_anywhere=st.booleans(),
    owners=some,
    group_owners=some,
    pairing=st.booleans(),
)
senders = st.builds(
    Sender,
    platform=st.just("telegram"),
    ids=st.sampled_from([(), (ME,), (OTHER,), (ME, "444")]),
    chat=st.sampled_from(["", CHAT, ME]),
    direct=st.booleans(),
    roles=st.sampled_from([(), ("r1",)]),
    bot=st.booleans(),
    mentions=st.booleans(),
    relayed=st.booleans(),
)


@given(senders, all_rules)
def test_denied_sender_is_always_ignored(sender: Sender, rules: AccessRules) -> None:
    for denied in (*sender.ids, "*"):
        closed = structs.replace(rules, denied=rules.denied | {denied})
        assert decide_access(sender, closed) == Ignored(AccessReason.DENIED)


@given(senders, all_rules)
def test_pairing_is_offered_only_to_people_in_direct_chats(
    sender: Sender, rules: AccessRules
) -> None:
    if isinstance(decide_access(sender, rules), OfferPairing):
        assert rules.pairing
        assert sender.direct
        assert sender.ids
        assert not sender.bot


@given(senders, all_rules)
def test_owner_must_be_named_by_id_for_the_chat_type(sender: Sender, rules: AccessRules) -> None:
    verdict = decide_access(sender, rules)
    named = rules.owners if sender.direct else rules.group_owners
    is_owner = isinstance(verdict, Allowed) and verdict.role is Role.OWNER
    assert is_owner == (
        isinstance(verdict, Allowed) and not sender.bot and bool(named & set(sender.ids))
    )


@given(senders, all_rules, all_rules)
def test_additional_rules_never_revoke_access(
    sender: Sender, rules: AccessRules, more: AccessRules
) -> None:
    wider = structs.replace(
        rules,
        users=rules.users | more.users,
        chats=rules.chats | more.chats,
        paired=rules.paired | more.paired,
        everybody=rules.everybody or more.everybody,
    )
    before, after = decide_access(sender, rules), decide_access(sender, wider)
    if isinstance(before, Allowed):
        order = [Role.GUEST, Role.MEMBER, Role.OWNER]
        assert isinstance(after, Allowed)
        assert order.index(after.role) >= order.index(before.role)


def verdict(
    env: dict[str, str], extra: dict[str, object] | None = None, **variables: object
) -> tuple[str, str]:
    defaults: dict[str, object] = {"platform": "telegram", "user_id": ME, "chat_id": ME}
    sender = sender_of(SessionSource(**defaults | variables))
    rules = access_rules_from(sender.platform, env, Platform(extra=extra or {}))
    return as_tuple(decide_access(sender, rules))


def test_second_stable_id_counts_for_allow_and_deny() -> None:
    assert verdict({"TELEGRAM_ALLOWED_USERS": "uuid"}, user_id_alt="uuid") == ("member", "listed")
    env = {"TELEGRAM_ALLOWED_USERS": ME, "TELEGRAM_DENIED_USERS": "uuid"}
    assert verdict(env, user_id_alt="uuid") == ("ignored", "denied")


def test_gateway_lists_apply_to_all_platforms_or_one() -> None:
    assert verdict({"GATEWAY_ALLOWED_USERS": ME})[0] == "member"
    assert verdict({"GATEWAY_ALLOWED_USERS": f"telegram:{ME}"})[0] == "member"
    assert verdict({"GATEWAY_ALLOWED_USERS": f"discord:{ME}"})[0] == "ignored"
    env = {"GATEWAY_DENIED_USERS": ME, "TELEGRAM_ALLOWED_USERS": ME}
    assert verdict(env) == ("ignored", "denied")


def test_lists_are_read_from_settings() -> None:
    assert verdict({}, {"allow_from": [111]}) == ("member", "listed")
    assert verdict({}, {"allow_from": ["*"], "deny_from": [111]}) == ("ignored", "denied")
    in_group = {"chat_type": "group", "chat_id": CHAT}
    assert verdict({}, {"group_allow_from": ["111"]}, **in_group) == ("member", "listed")
    assert verdict({}, {"group_allow_from": ["111"]})[0] == "ignored"
    assert verdict({}, {"group_allowed_chats": [-900]}, **in_group) == ("guest", "chat_listed")
    assert verdict(
        {"QQ_GROUP_ALLOWED_USERS": "g1"}, platform="qqbot", chat_type="group", chat_id="g1"
    )[0] == ("guest")


def test_administrators_are_admitted_as_owners() -> None:
    extra: dict[str, object] = {"allow_admin_from": [111], "allow_from": [111]}
    assert verdict({}, extra) == ("owner", "listed")
    assert verdict({}, extra, chat_type="group", chat_id=CHAT) == ("member", "listed")
    assert verdict({}, {"allow_admin_from": [111]}) == ("owner", "named_owner")
    assert verdict({"TELEGRAM_ALLOW_ALL_USERS": "true"}, {"allow_admin_from": "*"})[0] == "guest"


def test_listed_user_is_member_on_open_platform() -> None:
    env = {"TELEGRAM_ALLOWED_USERS": ME, "TELEGRAM_ALLOW_ALL_USERS": "yes"}
    assert verdict(env) == ("member", "everybody")


@cases(
    ("env", "extra", "platform", "found"),
    [
        ({}, {}, "telegram", "pair"),
        ({"TELEGRAM_ALLOWED_USERS": OTHER}, {}, "telegram", "ignored"),
        (
            {"TELEGRAM_ALLOWED_USERS": OTHER},
            {"unauthorized_dm_behavior": "pair"},
            "telegram",
            "pair",
        ),
        ({}, {"unauthorized_dm_behavior": "ignore"}, "telegram", "ignored"),
        ({}, {}, "email", "ignored"),
        ({}, {"unauthorized_dm_behavior": "Pair"}, "email", "pair"),
    ],
)
def test_unknown_user_is_offered_pairing_when_enabled(
    env: dict[str, str], extra: dict[str, object], platform: str, found: str
) -> None:
    assert verdict(env, extra, platform=platform) == (found, "unknown_user")


def test_policies_open_and_close_kinds_of_chats() -> None:
    in_group = {"chat_type": "group", "chat_id": CHAT}
    listed: dict[str, object] = {"allow_from": [111]}
    assert verdict({}, {"dm_policy": "open"}) == ("guest", "everybody")
    assert verdict({}, {"dm_policy": "open"}, **in_group)[0] == "ignored"
    assert verdict({}, {"group_policy": "Open"}, **in_group) == ("guest", "everybody")
    assert verdict({}, {"dm_policy": "open", "deny_from": [111]}) == ("ignored", "denied")
    assert verdict({}, {"dm_policy": "disabled", **listed}) == ("ignored", "chats_disabled")
    assert verdict({}, {"dm_policy": "disabled", **listed}, **in_group) == ("member", "listed")
    assert verdict({}, {"dm_policy": "allowlist"}) == ("ignored", "unknown_user")
    assert verdict({}, {"dm_policy": "pairing", "allow_from": [OTHER]}) == ("pair", "unknown_user")
    assert verdict({}, {"group_policy": "pairing"}, **in_group)[0] == "ignored"
    with pytest.raises(ConfigError, match="dm_policy: 'opne'"):
        verdict({}, {"dm_policy": "opne"})


def test_policies_may_be_variables() -> None:
    in_group = {"chat_type": "group", "chat_id": CHAT}
    closed: dict[str, object] = {"dm_policy": "disabled", "group_policy": "disabled"}
    assert verdict({"TELEGRAM_DM_POLICY": " Open "}, closed) == ("guest", "everybody")
    assert verdict({"TELEGRAM_GROUP_POLICY": "open"}, closed, **in_group)[0] == "guest"
    with pytest.raises(ConfigError, match="dm_policy: 'opne'"):
        verdict({"TELEGRAM_DM_POLICY": "opne"}, {})


def test_general_setting_disables_pairing() -> None:
    sender = sender_of(SessionSource(platform="telegram", user_id=ME))
    assert decide_access(
        sender, access_rules_from("telegram", {}, unauthorized="ignore")
    ) == Ignored(AccessReason.UNKNOWN_USER)


def test_authenticated_platforms_need_no_list() -> None:
    assert verdict({}, platform="webhook", chat_type="webhook") == ("guest", "authenticated")
    assert verdict({}, platform="homeassistant", user_id=None) == ("member", "authenticated")
    assert verdict({"WEBHOOK_DENIED_USERS": ME}, platform="webhook") == ("ignored", "denied")


def test_relay_is_trusted_only_when_configured() -> None:
    sender = sender_of(SessionSource(platform="telegram", user_id=ME), InboundDetails(relayed=True))
    assert as_tuple(decide_access(sender, access_rules_from("telegram", {}, relay=True))) == (
        "member",
        "relayed",
    )
    assert as_tuple(decide_access(sender, access_rules_from("telegram", {}))) == (
        "pair",
        "unknown_user",
    )


def test_server_roles_admit_people_but_not_bots() -> None:
    rules = access_rules_from("discord", {"DISCORD_ALLOWED_ROLES": "r1,r2"})
    person = SessionSource(platform="discord", user_id=ME, chat_type="group", chat_id="c")
    assert as_tuple(decide_access(sender_of(person, InboundDetails(roles=("r2",))), rules)) == (
        "member",
        "role_listed",
    )
    assert (
        as_tuple(decide_access(sender_of(person, InboundDetails(roles=("r3",))), rules))[0]
        == "ignored"
    )
    bot = structs.replace(person, is_bot=True)
    assert as_tuple(decide_access(sender_of(bot, InboundDetails(roles=("r2",))), rules)) == (
        "ignored",
        "unknown_bot",
    )


def test_phone_number_formats_are_equivalent() -> None:
    env = {"WHATSAPP_ALLOWED_USERS": "+15551234567"}
    jid = "15551234567:3@s.whatsapp.net"
    assert verdict(env, platform="whatsapp", user_id=jid) == ("member", "listed")


def test_local_part_of_email_is_not_an_id() -> None:
    env = {"EMAIL_ALLOWED_USERS": "ann,Bob@Example.org"}
    assert verdict(env, platform="email", user_id="ann@evil.example")[0] == "ignored"
    assert verdict(env, platform="email", user_id="bob@example.org")[0] == "member"


@pytest.mark.parametrize(("word", "bots"), [("true", "all"), ("None", "none"), ("ALL", "all")])
def test_bot_setting_values(word: str, bots: str) -> None:
    assert access_rules_from("slack", {"SLACK_ALLOW_BOTS": word}).bots == bots


def test_principals_are_distinct_per_platform() -> None:
    ann = sender_of(SessionSource(platform="telegram", user_id=ME, chat_id=CHAT))
    assert principal_of("telegram", ann, Role.OWNER) == "owner"
    assert principal_of("telegram", ann, Role.MEMBER) == f"telegram:{ME}"
    unnamed = sender_of(SessionSource(platform="telegram", chat_id=CHAT, chat_type="group"))
    assert principal_of("telegram", unnamed, Role.GUEST) == f"telegram:{CHAT}"
