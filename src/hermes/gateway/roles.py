"""Permissions of owners, members and guests: tools, commands and turn quotas."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from hermes.config.platforms import facts_of
from hermes.config.sections import Count, FreeTable, NameList
from hermes.gateway.platform_settings import WILDCARD, parse_list
from hermes.kit.clock import Clock
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Role
from hermes.schema.tools import MCP_PREFIX, Effect, ToolSpec
from hermes.session.keys import DIRECT_CHAT

ALWAYS_ALLOWED = frozenset({"help", "whoami", "link", "approve", "deny"})
"""Commands for every admitted user; whose answer counts is decided elsewhere."""

GUEST_COMMANDS = frozenset(
    {"start", "new", "reset", "retry", "undo", "stop", "title", "status", "usage", "queue", "steer"}
    | {"kanban"}
)
"""Commands for guests when no administrator is named.

They only affect the guest's session; with /kanban, a guest answers tasks that are assigned to them.
"""

HOUR = 3600.0
DAY = 24 * HOUR


class Quota(Struct, frozen=True):
    """Maximum number of turns; None means unlimited."""

    per_hour: int | None = None
    per_day: int | None = None


class RolePermissions(Struct, frozen=True):
    """What a role may use; `toolsets` None means all that the platform offers.

    MCP servers act with the owner's credentials, so other roles only get those that their toolsets
    name.
    """

    effects: frozenset[Effect] = frozenset(Effect)
    toolsets: tuple[str, ...] | None = None
    quota: Quota = Quota()
    servers: bool = False


DEFAULT_PERMISSIONS: Mapping[Role, RolePermissions] = {
    Role.OWNER: RolePermissions(servers=True),
    Role.MEMBER: RolePermissions(),
    Role.GUEST: RolePermissions(
        frozenset({Effect.READ}), ("safe",), Quota(per_hour=20, per_day=100)
    ),
}


AUTHENTICATED_PERMISSIONS: Mapping[Role, RolePermissions] = {
    **DEFAULT_PERMISSIONS,
    Role.GUEST: structs.replace(DEFAULT_PERMISSIONS[Role.GUEST], quota=Quota()),
}
"""Callers with the secret have no turn quota: such platforms limit requests themselves."""


class _RoleSettings(Struct, frozen=True, forbid_unknown_fields=True):
    toolsets: NameList | UnsetType | None = UNSET
    effects: frozenset[Effect] | UnsetType = UNSET
    turns_per_hour: Count | UnsetType | None = UNSET
    turns_per_day: Count | UnsetType | None = UNSET


def role_permissions_from(
    extra: FreeTable, defaults: Mapping[Role, RolePermissions] = DEFAULT_PERMISSIONS
) -> Mapping[Role, RolePermissions]:
    """Return the permissions of each role: the defaults, changed by the platform's `roles`."""
    try:
        settings = msgspec.convert(
            extra.get("roles") or {}, dict[Role, _RoleSettings], strict=False
        )
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"Invalid platform setting `roles`: {error}",
            hint="Under owner, member or guest, set toolsets, effects, turns_per_hour or "
            "turns_per_day.",
        ) from error
    changed = {
        role: _changed(defaults[role], role_settings) for role, role_settings in settings.items()
    }
    return {**defaults, **changed}


def _changed(permissions: RolePermissions, settings: _RoleSettings) -> RolePermissions:
    quota = permissions.quota
    if settings.turns_per_hour is not UNSET:
        quota = structs.replace(quota, per_hour=settings.turns_per_hour)
    if settings.turns_per_day is not UNSET:
        quota = structs.replace(quota, per_day=settings.turns_per_day)
    return structs.replace(
        permissions,
        effects=permissions.effects if settings.effects is UNSET else settings.effects,
        toolsets=permissions.toolsets if settings.toolsets is UNSET else settings.toolsets,
        quota=quota,
    )


def permitted_tools(
    permissions: RolePermissions,
    specs: Iterable[ToolSpec],
    tools_of: Callable[[Iterable[str]], Iterable[str]],
) -> list[ToolSpec]:
    """Filter the tools; `tools_of` returns the tools of the given toolsets."""
    permitted = [spec for spec in specs if spec.effect in permissions.effects]
    if permissions.toolsets is not None:
        names = frozenset(tools_of(permissions.toolsets))
        return [spec for spec in permitted if spec.name in names]
    if permissions.servers:
        return permitted
    return [spec for spec in permitted if not spec.name.startswith(MCP_PREFIX)]


class CommandAccess(Struct, frozen=True):
    """Who may use which slash commands in one kind of chat; open until an owner is named."""

    gated: bool = False
    permitted: frozenset[str] = frozenset()

    def may_run(self, role: Role, command: str) -> bool:
        """`command` is the canonical name, not an alias; skills and shortcuts count too."""
        name = _command_name(command)
        if role is Role.OWNER or name in ALWAYS_ALLOWED or name in self.permitted:
            return True
        if self.gated:
            return False
        return role is Role.MEMBER or name in GUEST_COMMANDS


def command_access(extra: FreeTable, chat_type: str) -> CommandAccess:
    """Read `allow_admin_from` and `user_allowed_commands`, which groups have separately.

    A direct chat without a command list uses the groups' list, but never their administrators.
    """
    group_list = extra.get(_key("user_allowed_commands", "group"))
    permitted = extra.get(_key("user_allowed_commands", chat_type)) or group_list
    admins = admins_in(extra, chat_type)
    return CommandAccess(
        gated=bool(admins) and WILDCARD not in admins,
        permitted=frozenset(map(_command_name, parse_list(permitted))),
    )


def admins_in(extra: FreeTable, chat_type: str) -> tuple[str, ...]:
    return parse_list(extra.get(_key("allow_admin_from", chat_type)))


def _key(name: str, chat_type: str) -> str:
    return name if chat_type == DIRECT_CHAT else f"group_{name}"


def _command_name(text: str) -> str:
    """Normalize the name; some platforms use "_" because they allow no hyphens."""
    return text.strip().removeprefix("/").lower().replace("_", "-")


class QuotaExceeded(Struct, frozen=True):
    """The limit that was reached, and the seconds until the next turn is allowed."""

    limit: int
    window: float
    wait: float


class TurnCounter:
    """Counts turns in sliding windows for a bounded number of users."""

    def __init__(self, clock: Clock, max_users: int = 10_000) -> None:
        self._clock = clock
        self._max_users = max_users
        self._turns: OrderedDict[str, deque[float]] = OrderedDict()

    def knows(self, user: str) -> bool:
        return user in self._turns

    def recall(self, user: str, ages: Iterable[float]) -> None:
        """Count turns that began `ages` seconds ago."""
        now = self._clock.monotonic()
        turns = deque(sorted(now - age for age in ages if age < DAY))
        self._remember(user, turns, now)

    def take(self, user: str, quota: Quota) -> QuotaExceeded | None:
        """Count the turn and return None, or return the exceeded quota without counting it."""
        if quota == Quota():
            return None
        now = self._clock.monotonic()
        turns = self._turns.pop(user, None) or deque[float]()
        while turns and turns[0] <= now - DAY:
            turns.popleft()
        windows = ((quota.per_hour, HOUR), (quota.per_day, DAY))
        checks = (_exceeded(turns, now, limit, window) for limit, window in windows)
        exceeded = [check for check in checks if check is not None]
        if not exceeded:
            turns.append(now)
        self._remember(user, turns, now)
        return max(exceeded, key=lambda check: check.wait, default=None)

    def _remember(self, user: str, turns: deque[float], now: float) -> None:
        if turns:
            self._turns[user] = turns
        while self._turns:
            oldest = next(iter(self._turns.values()))
            if len(self._turns) <= self._max_users and oldest[-1] > now - DAY:
                return
            self._turns.popitem(last=False)

    @property
    def users(self) -> int:
        return len(self._turns)


def _exceeded(
    turns: deque[float], now: float, limit: int | None, window: float
) -> QuotaExceeded | None:
    if limit == 0:
        return QuotaExceeded(limit, window, window)
    if limit is None or len(turns) < limit or turns[-limit] <= now - window:
        return None
    return QuotaExceeded(limit, window, turns[-limit] + window - now)


def authenticated_role(platform: str) -> Role | None:
    """The role of all senders of a platform that authenticates them with a secret."""
    role = facts_of(platform).sender_role
    return Role(role) if role else None
