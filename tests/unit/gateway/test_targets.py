"""Delivery targets and the addresses they resolve to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.config.sections.messaging import HomeChannel, Platform
from hermes.gateway.targets import (
    AllHomesTarget,
    ChatTarget,
    HomeTarget,
    LocalTarget,
    OriginTarget,
    ResolvedTargets,
    Target,
    UnresolvedReason,
    UnresolvedTarget,
    home_channels,
    home_names,
    parse_targets,
    resolve_targets,
)
from hermes.kit.errors import UsageError
from hermes.schema.scope import Address
from support.cases import cases

HOMES = {"telegram": Address("telegram", "1"), "slack": Address("slack", "C9", "17.5")}
HERE = Address("discord", "5", "6")


@cases(
    ("text", "target"),
    [
        ("origin", OriginTarget()),
        (" Local ", LocalTarget()),
        ("ALL", AllHomesTarget()),
        ("Telegram", HomeTarget("telegram")),
        ("whatsapp_cloud", HomeTarget("whatsapp_cloud")),
        ("telegram:-100123", ChatTarget("telegram", "-100123")),
        ("telegram:-100123:17", ChatTarget("telegram", "-100123", "17")),
        ("telegram:-100123:", ChatTarget("telegram", "-100123")),
        ("slack:C1:1700000000.1", ChatTarget("slack", "C1", "1700000000.1")),
        ("discord:#general", ChatTarget("discord", "#general")),
        ("discord:#general:123", ChatTarget("discord", "#general", "123")),
        ("email:ann@example.org", ChatTarget("email", "ann@example.org")),
        ("signal:+15551234567", ChatTarget("signal", "+15551234567")),
        ("matrix:!room:example.org", ChatTarget("matrix", "!room:example.org")),
        ("matrix:!room:localhost:8448", ChatTarget("matrix", "!room:localhost:8448")),
        ("matrix:!room:example.org:$event", ChatTarget("matrix", "!room:example.org", "$event")),
        ("matrix:#lobby:example.org", ChatTarget("matrix", "#lobby:example.org")),
        ("matrix:@ann:example.org", ChatTarget("matrix", "@ann:example.org")),
    ],
)
def test_parse_target(text: str, target: Target) -> None:
    assert parse_targets(text) == (target,)


@cases("text", ["", " , ", ":5", "telegram:", "telegram::", "telegram::5", "a b", "9"])
def test_invalid_target_is_reported(text: str) -> None:
    with pytest.raises(UsageError, match="is not a delivery target") as caught:
        parse_targets(text)
    assert "platform:chat" in caught.value.hint


def test_list_keeps_order_and_removes_duplicates() -> None:
    assert parse_targets("telegram, origin,,telegram:5,TELEGRAM,origin") == (
        *(HomeTarget("telegram"), OriginTarget(), ChatTarget("telegram", "5")),
    )


def resolve(text: str, **options: object) -> ResolvedTargets:
    return resolve_targets(parse_targets(text), HOMES, **{"origin": HERE, **options})


def test_targets_resolve_to_addresses() -> None:
    assert resolve("origin,telegram,slack:C1") == ResolvedTargets(
        (HERE, Address("telegram", "1"), Address("slack", "C1"))
    )
    assert resolve("all").addresses == tuple(HOMES.values())
    assert resolve("local") == ResolvedTargets(local=True)


def test_same_address_is_listed_once() -> None:
    assert resolve("telegram,telegram:1,all,slack:C9:17.5").addresses == tuple(HOMES.values())


def test_missing_origin_falls_back_to_first_home() -> None:
    assert resolve("origin", origin=None) == ResolvedTargets((Address("telegram", "1"),))


@cases(
    ("text", "why"),
    [
        ("origin", UnresolvedReason.NO_ORIGIN),
        ("all", UnresolvedReason.NO_HOME_ANYWHERE),
        ("discord", UnresolvedReason.NO_HOME),
        ("pigeon", UnresolvedReason.UNKNOWN_PLATFORM),
        ("pigeon:5", UnresolvedReason.UNKNOWN_PLATFORM),
    ],
)
def test_unresolved_target_is_reported_and_goes_to_a_file(text: str, why: UnresolvedReason) -> None:
    (target,) = parse_targets(text)
    found = resolve_targets([target], {}, platforms=["discord"])
    assert found == ResolvedTargets(local=True, unresolved=(UnresolvedTarget(target, why),))


def test_unresolved_target_does_not_affect_others() -> None:
    found = resolve("pigeon,telegram")
    assert found.addresses == (Address("telegram", "1"),)
    assert found.local


def test_homes_come_from_variables_and_settings() -> None:
    env = {
        "TELEGRAM_HOME_CHANNEL": " -1001 ",
        "TELEGRAM_HOME_CHANNEL_THREAD_ID": "7",
        "EMAIL_HOME_ADDRESS": "me@example.org",
        "MATRIX_HOME_ROOM": "!a:example.org",
        "SIGNAL_HOME_CHANNEL": "not asked for",
    }
    platforms = {
        "slack": Platform(home_channel=HomeChannel(chat_id="C1", thread_id="5")),
        "telegram": Platform(home_channel="other"),
        "email": Platform(),
        "matrix": Platform(),
        "discord": Platform(home_channel="99:100"),
        "irc": Platform(home_channel=HomeChannel(name="nowhere")),
        "sms": Platform(home_channel=" "),
    }
    assert home_channels(env, platforms) == {
        "slack": Address("slack", "C1", "5"),
        "telegram": Address("telegram", "-1001", "7"),
        "email": Address("email", "me@example.org"),
        "matrix": Address("matrix", "!a:example.org"),
        "discord": Address("discord", "99", "100"),
    }


def test_home_of_a_channel_without_settings_is_found() -> None:
    env = {"TELEGRAM_HOME_CHANNEL": "5", "TELEGRAM_HOME_CHANNEL_NAME": "Team"}
    assert home_channels(env, {}) == {}
    assert home_channels(env, {}, ["telegram", "irc"]) == {"telegram": Address("telegram", "5")}


def test_home_has_the_name_that_people_gave_it() -> None:
    stored = Platform(home_channel=HomeChannel(chat_id="1", name="Old"))
    platforms = {"telegram": stored, "slack": stored, "irc": Platform()}
    env = {"TELEGRAM_HOME_CHANNEL_NAME": "Team"}
    assert home_names(env, platforms) == {"telegram": "Team", "slack": "Old"}


names = st.sampled_from(["telegram", "slack", "matrix"])
chats = st.from_regex(r"[A-Za-z0-9.+_/-]{1,12}", fullmatch=True)
targets = st.one_of(
    st.sampled_from([OriginTarget(), LocalTarget(), AllHomesTarget()]),
    st.builds(HomeTarget, names),
    st.builds(ChatTarget, names, chats, st.one_of(st.none(), chats)),
)


def format_target(target: Target) -> str:
    match target:
        case OriginTarget():
            return "origin"
        case LocalTarget():
            return "local"
        case AllHomesTarget():
            return "all"
        case HomeTarget(platform):
            return platform
        case ChatTarget(platform, chat, thread):
            return ":".join(part for part in (platform, chat, thread) if part)


@given(st.lists(targets, min_size=1))
def test_targets_round_trip(given_targets: list[Target]) -> None:
    text = ", ".join(map(format_target, given_targets))
    assert parse_targets(text) == tuple(dict.fromkeys(given_targets))


@given(st.lists(targets), st.booleans())
def test_no_target_is_silently_dropped(given_targets: list[Target], has_origin: bool) -> None:
    found = resolve_targets(given_targets, HOMES, origin=HERE if has_origin else None)
    assert len(set(found.addresses)) == len(found.addresses)
    nowhere = {one.target for one in found.unresolved}
    assert nowhere == {
        t
        for t in given_targets
        if isinstance(t, HomeTarget | ChatTarget) and t.platform == "matrix"
    }
    assert found.local == (LocalTarget() in given_targets or bool(nowhere))


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        targets = parse_targets(text)
    except UsageError:
        return
    assert targets
    assert len(set(targets)) == len(targets)
