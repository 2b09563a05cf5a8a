"""What a person in a chat may do as owner, member or guest: which tools and commands, how often."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from hermes.config.sections.types import Count, FreeTable, NameList
from hermes.gateway.platform_settings import WILDCARD, parse_list
from hermes.kit.clock import Clock
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Role
from hermes.schema.tools import MCP_PREFIX, Effect, ToolSpec
from hermes.session.keys import DIRECT_CHAT

ALWAYS_ALLOWED = frozenset({"help", "whoami", "approve", "deny"})
"""Commands that everybody who is let in may use; whose answer counts is decided elsewhere."""

GUEST_COMMANDS = frozenset(
    {"start", "new", "reset", "retry", "undo", "stop", "title", "status", "usage", "queue", "steer"}
)
"""What a guest may use where no administrator is named: it concerns nobody but the guest."""

HOUR = 3600.0
DAY = 24 * HOUR


class Quota(Struct, frozen=True):
    """How many turns; None is without limit."""

    per_hour: int | None = None
    per_day: int | None = None


class RolePermissions(Struct, frozen=True):
    """`toolsets` None means all that the platform offers; whether those of MCP servers, too.

    They work with what the owner has given to them: where a role is not the owner's, it has those
    of servers that its toolsets name.
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
"""Whoever has the secret is no crowd: such a platform says itself how often it is called."""


class _RoleSettings(Struct, frozen=True, forbid_unknown_fields=True):
    toolsets: NameList | UnsetType | None = UNSET
    effects: frozenset[Effect] | UnsetType = UNSET
    turns_per_hour: Count | UnsetType | None = UNSET
    turns_per_day: Count | UnsetType | None = UNSET


def role_permissions_from(
    extra: FreeTable, usual: Mapping[Role, RolePermissions] = DEFAULT_PERMISSIONS
) -> Mapping[Role, RolePermissions]:
    """The powers of each role on a platform: the usual ones, changed by `roles` in its settings."""
    try:
        given = msgspec.convert(extra.get("roles") or {}, dict[Role, _RoleSettings], strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"The setting `roles` of a platform is wrong: {error}",
            hint="Under owner, member or guest it takes toolsets, effects, turns_per_hour and "
            "turns_per_day.",
        ) from error
    return {role: _changed(usual[role], given.get(role)) for role in Role}


def _changed(powers: RolePermissions, given: _RoleSettings | None) -> RolePermissions:
    if given is None:
        return powers
    quota = powers.quota
    if given.turns_per_hour is not UNSET:
        quota = structs.replace(quota, per_hour=given.turns_per_hour)
    if given.turns_per_day is not UNSET:
        quota = structs.replace(quota, per_day=given.turns_per_day)
    return RolePermissions(
        effects=powers.effects if given.effects is UNSET else given.effects,
        toolsets=powers.toolsets if given.toolsets is UNSET else given.toolsets,
        quota=quota,
        servers=powers.servers,
    )


def permitted_tools(
    powers: RolePermissions,
    specs: Iterable[ToolSpec],
    tools_of: Callable[[Iterable[str]], Iterable[str]],
) -> list[ToolSpec]:
    """The tools that remain; `tools_of` knows which tools the toolsets hold."""
    names = None if powers.toolsets is None else frozenset(tools_of(powers.toolsets))
    return [
        spec
        for spec in specs
        if spec.effect in powers.effects and _is_permitted(spec.name, names, powers)
    ]


def _is_permitted(tool: str, names: frozenset[str] | None, powers: RolePermissions) -> bool:
    if names is None:
        return powers.servers or not tool.startswith(MCP_PREFIX)
    return tool in names


class CommandAccess(Struct, frozen=True):
    """Who may use which slash commands in one kind of chat; open until an owner is named."""

    gated: bool = False
    permitted: frozenset[str] = frozenset()

    def may_run(self, role: Role, command: str) -> bool:
        """`command` is the command's own name, not an alias; skills and shortcuts count too."""
        name = _command_name(command)
        if role is Role.OWNER or name in ALWAYS_ALLOWED or name in self.permitted:
            return True
        if self.gated:
            return False
        return role is Role.MEMBER or name in GUEST_COMMANDS


def command_access(extra: FreeTable, chat_type: str) -> CommandAccess:
    """From `allow_admin_from` and `user_allowed_commands`; groups have lists of their own.

    A direct chat without a list of commands uses that of the groups, never their administrators.
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
    """Some platforms allow no hyphen in a command and write a line instead."""
    return text.strip().removeprefix("/").lower().replace("_", "-")


class QuotaExceeded(Struct, frozen=True):
    """The limit that is reached, and after how many seconds there is room again."""

    limit: int
    window: float
    wait: float


class TurnCounter:
    """Counts turns in windows that slide; remembers a bounded number of people."""

    def __init__(self, clock: Clock, most_people: int = 10_000) -> None:
        self._clock = clock
        self._most_people = most_people
        self._turns: OrderedDict[str, deque[float]] = OrderedDict()

    def knows(self, who: str) -> bool:
        return who in self._turns

    def recall(self, who: str, ages: Iterable[float]) -> None:
        """Count turns that began so many seconds ago."""
        now = self._clock.monotonic()
        turns = deque(sorted(now - age for age in ages if age < DAY))
        self._remember(who, turns, now)

    def take(self, who: str, quota: Quota) -> QuotaExceeded | None:
        """None when the turn may begin; it is then counted. A refused turn is not."""
        windows = [
            (limit, window)
            for limit, window in ((quota.per_hour, HOUR), (quota.per_day, DAY))
            if limit is not None
        ]
        if not windows:
            return None
        now = self._clock.monotonic()
        turns = self._turns.pop(who, None) or deque[float]()
        while turns and turns[0] <= now - DAY:
            turns.popleft()
        refusals = [
            refused for limit, window in windows if (refused := _refused(turns, now, limit, window))
        ]
        if not refusals:
            turns.append(now)
        self._remember(who, turns, now)
        return max(refusals, key=lambda refused: refused.wait, default=None)

    def _remember(self, who: str, turns: deque[float], now: float) -> None:
        if turns:
            self._turns[who] = turns
        while self._turns:
            oldest = next(iter(self._turns.values()))
            if len(self._turns) <= self._most_people and oldest[-1] > now - DAY:
                return
            self._turns.popitem(last=False)

    @property
    def people(self) -> int:
        """How many are remembered now."""
        return len(self._turns)


def _refused(turns: deque[float], now: float, limit: int, window: float) -> QuotaExceeded | None:
    if limit == 0:
        return QuotaExceeded(limit, window, window)
    if len(turns) < limit or turns[-limit] <= now - window:
        return None
    return QuotaExceeded(limit, window, turns[-limit] + window - now)
