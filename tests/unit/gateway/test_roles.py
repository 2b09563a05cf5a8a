"""Permissions of roles: tools, commands and turns per hour and day."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.app.chat_settings import ChatSettings
from hermes.config.schema import Config
from hermes.config.sections.messaging import Platform
from hermes.gateway.roles import (
    ALWAYS_ALLOWED,
    DAY,
    DEFAULT_PERMISSIONS,
    GUEST_COMMANDS,
    HOUR,
    Quota,
    QuotaExceeded,
    Role,
    TurnCounter,
    command_access,
    permitted_tools,
    role_permissions_from,
)
from hermes.kit.errors import ConfigError
from hermes.schema.tools import Effect, ToolSpec
from support.cases import cases

TOOLS = [
    ToolSpec("web_search", "", {}, Effect.READ),
    ToolSpec("read_file", "", {}, Effect.READ),
    ToolSpec("write_file", "", {}, Effect.WRITE),
    ToolSpec("terminal", "", {}, Effect.OUTSIDE),
]
TOOLSETS = {"safe": ["web_search"], "file": ["read_file", "write_file"]}


def tools_of(names: Iterable[str]) -> list[str]:
    return [tool for name in names for tool in TOOLSETS[name]]


def tools_for(role: Role, extra: dict[str, object] | None = None) -> list[str]:
    return [
        spec.name
        for spec in permitted_tools(role_permissions_from(extra or {})[role], TOOLS, tools_of)
    ]


def test_guest_cannot_read_or_write_files() -> None:
    assert tools_for(Role.OWNER) == tools_for(Role.MEMBER) == [spec.name for spec in TOOLS]
    assert tools_for(Role.GUEST) == ["web_search"]


def test_mcp_tools_require_a_named_toolset() -> None:
    def of(role: Role, member: dict[str, object]) -> list[str]:
        powers = role_permissions_from({"roles": {"member": member}})[role]
        tools = [*TOOLS, ToolSpec("mcp__hub__list", "", {}, Effect.READ)]
        sets = {**TOOLSETS, "hub": ["mcp__hub__list"]}
        found = permitted_tools(
            powers, tools, lambda names: [one for name in names for one in sets[name]]
        )
        return [spec.name for spec in found if spec.name.startswith("mcp__")]

    assert of(Role.OWNER, {}) == ["mcp__hub__list"]
    assert of(Role.MEMBER, {}) == of(Role.MEMBER, {"toolsets": None}) == []
    assert of(Role.MEMBER, {"toolsets": ["file"], "turns_per_day": 3}) == []
    assert of(Role.MEMBER, {"toolsets": ["file", "hub"]}) == ["mcp__hub__list"]


def test_settings_change_only_the_named_role() -> None:
    extra: dict[str, object] = {
        "roles": {
            "guest": {"toolsets": ["safe", "file"], "turns_per_hour": 5},
            "member": {"effects": ["read", "write"], "turns_per_day": 50, "toolsets": None},
        }
    }
    assert tools_for(Role.GUEST, extra) == ["web_search", "read_file"]
    assert tools_for(Role.MEMBER, extra) == ["web_search", "read_file", "write_file"]
    powers = role_permissions_from(extra)
    assert powers[Role.GUEST].quota == Quota(5, 100)
    assert powers[Role.MEMBER].quota == Quota(None, 50)
    assert powers[Role.OWNER] == DEFAULT_PERMISSIONS[Role.OWNER]


@cases(
    "roles",
    [{"king": {}}, {"guest": {"tools": []}}, {"guest": {"turns_per_hour": -1}}, {"guest": 3}, [1]],
)
def test_invalid_settings_are_reported(roles: object) -> None:
    with pytest.raises(ConfigError, match="`roles`") as caught:
        role_permissions_from({"roles": roles})
    assert "turns_per_hour" in caught.value.hint


def test_members_may_run_commands_until_an_owner_is_named() -> None:
    access = command_access({}, "dm")
    assert access.may_run(Role.MEMBER, "/restart")
    assert access.may_run(Role.OWNER, "restart")
    assert not access.may_run(Role.GUEST, "restart")
    assert all(access.may_run(Role.GUEST, name) for name in GUEST_COMMANDS | ALWAYS_ALLOWED)


def test_named_owner_restricts_others_to_the_list() -> None:
    access = command_access(
        {"allow_admin_from": "1", "user_allowed_commands": ["/Status", "reload-mcp"]}, "dm"
    )
    for role in (Role.MEMBER, Role.GUEST):
        assert access.may_run(role, "status")
        assert access.may_run(role, "/reload_mcp")
        assert access.may_run(role, "help")
        assert access.may_run(role, "whoami")
        assert not access.may_run(role, "model")
        assert not access.may_run(role, "some-shortcut-nobody-registered")
    assert access.may_run(Role.OWNER, "some-shortcut-nobody-registered")


def test_groups_have_separate_lists() -> None:
    extra: dict[str, object] = {
        "group_allow_admin_from": [2],
        "group_user_allowed_commands": "status",
    }
    for chat_type in ("group", "channel", "thread", "forum"):
        access = command_access(extra, chat_type)
        assert access.gated
        assert access.may_run(Role.MEMBER, "status")
        assert not access.may_run(Role.MEMBER, "model")
    direct = command_access(extra, "dm")
    assert not direct.gated
    gated = command_access({**extra, "allow_admin_from": [1]}, "dm")
    assert gated.may_run(Role.MEMBER, "status")
    assert not gated.may_run(Role.MEMBER, "model")


def test_direct_chat_commands_do_not_apply_to_groups() -> None:
    extra = {"user_allowed_commands": "yolo", "group_allow_admin_from": "1"}
    assert not command_access(extra, "group").may_run(Role.MEMBER, "yolo")


def test_wildcard_administrator_restricts_nothing() -> None:
    assert not command_access({"allow_admin_from": "*"}, "dm").gated


class ManualClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 0.0

    def monotonic(self) -> float:
        return self.time


def turn_counter(most_people: int = 100) -> tuple[TurnCounter, ManualClock]:
    hand = ManualClock()
    return TurnCounter(hand, most_people), hand


def test_exceeded_quota_reports_the_wait() -> None:
    turns, clock = turn_counter()
    quota = Quota(per_hour=2)
    assert turns.take("ann", quota) is None
    clock.time = 600
    assert turns.take("ann", quota) is None
    clock.time = 900
    assert turns.take("ann", quota) == QuotaExceeded(2, HOUR, 2700)
    assert turns.take("bob", quota) is None
    clock.time = 900 + 2700
    assert turns.take("ann", quota) is None


def test_longer_wait_is_reported() -> None:
    turns, _ = turn_counter()
    quota = Quota(per_hour=1, per_day=1)
    assert turns.take("ann", quota) is None
    assert turns.take("ann", quota) == QuotaExceeded(1, DAY, DAY)


def test_zero_quota_refuses_every_turn() -> None:
    turns, _ = turn_counter()
    assert turns.take("ann", Quota(per_hour=0)) == QuotaExceeded(0, HOUR, HOUR)
    assert turns.users == 0


def test_users_without_quota_are_not_remembered() -> None:
    turns, _ = turn_counter()
    assert all(turns.take("ann", Quota()) is None for _ in range(1000))
    assert turns.users == 0


limits = st.one_of(st.none(), st.integers(0, 4))
quotas = st.builds(Quota, limits, limits)
steps = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([0.0, 1.0, 1799.5, HOUR, 7 * HOUR]))
)


@given(quotas, steps)
def test_window_never_exceeds_its_limit(quota: Quota, steps: list[tuple[str, float]]) -> None:
    turns, clock = turn_counter()
    taken: dict[str, list[float]] = {"a": [], "b": []}
    for user, later in steps:
        clock.time += later
        windows = [(quota.per_hour, HOUR), (quota.per_day, DAY)]
        full = [
            limit is not None and sum(1 for at in taken[user] if at > clock.time - window) >= limit
            for limit, window in windows
        ]
        refused = turns.take(user, quota)
        assert (refused is not None) == any(full)
        if refused is None:
            taken[user].append(clock.time)
        else:
            assert 0 < refused.wait <= DAY


@given(
    st.integers(1, 20), st.lists(st.tuples(st.integers(0, 200), st.floats(0, DAY)), max_size=300)
)
def test_memory_is_bounded(most: int, steps: list[tuple[int, float]]) -> None:
    turns, clock = turn_counter(most)
    for user, later in steps:
        clock.time += later
        turns.take(str(user), Quota(per_day=3))
        assert turns.users <= most


def test_users_are_forgotten_after_a_day() -> None:
    turns, clock = turn_counter()
    for number in range(50):
        turns.take(str(number), Quota(per_day=3))
    clock.time = DAY + 1
    turns.take("ann", Quota(per_day=3))
    assert turns.users == 1


@pytest.mark.parametrize(
    ("platform", "roles", "quota"),
    [
        ("telegram", {}, Quota(20, 100)),
        ("webhook", {}, Quota()),
        ("webhook", {"guest": {"turns_per_hour": 5}}, Quota(5)),
    ],
)
def test_authenticated_platform_has_only_the_configured_quota(
    platform: str, roles: dict[str, dict[str, int]], quota: Quota
) -> None:
    config = Config(platforms={platform: Platform(extra={"roles": roles})})
    assert ChatSettings(config).permissions(platform, Role.GUEST).quota == quota
