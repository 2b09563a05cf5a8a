"""Expose a turn's scope to foreign code: plugins, foreign tools, old programs.

Our own code takes the `Scope` and never reads these variables. In a task that never bound
anything they have the values of the process environment; after a turn they are empty. A task
inherits what its starter had bound, so each handler starts with `reset_session_vars`.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Final, TypeAlias

from hermes.config.env import process_value
from hermes.schema.scope import Scope, scope_variables

Tokens: TypeAlias = Sequence[object]
"""Returned by the setters for older callers; clearing does not need it."""


def _names(prefix: str, *names: str) -> tuple[str, ...]:
    return tuple(prefix + name for name in names)


_TURN: Final = _names(
    "HERMES_SESSION_",
    "PLATFORM", "SOURCE", "CHAT_ID", "CHAT_NAME", "THREAD_ID", "USER_ID", "USER_NAME",
    "KEY", "ID", "MESSAGE_ID", "PROFILE", "CWD",
)  # fmt: skip
_CRON: Final = _names("HERMES_CRON_AUTO_DELIVER_", "PLATFORM", "CHAT_ID", "THREAD_ID")
_ALL: Final = (*_TURN, *_CRON)
_BOUND: Final = ContextVar[Mapping[str, str] | Scope]("HERMES_SESSION", default={})  # noqa: B039 - never changed
"""All variables together, never changed in place.

A scope is converted to variables only when one is read, which few turns do.
"""
_ASYNC_DELIVERY: Final = ContextVar[bool]("HERMES_SESSION_ASYNC_DELIVERY", default=True)


class _Latch:
    engaged = False


def session_context_engaged() -> bool:
    return _Latch.engaged


def set_session_vars(
    *, session_key: str = "", session_id: str = "", async_delivery: bool = True, **others: str
) -> Tokens:
    """Bind this context to a session; variables not given are set to empty.

    The others are platform, source, chat_id, chat_name, thread_id, user_id, user_name,
    message_id, profile and cwd. `async_delivery` says whether messages can be delivered to the
    session after the turn.
    """
    given = {"HERMES_SESSION_KEY": session_key, "HERMES_SESSION_ID": session_id}
    given |= {f"HERMES_SESSION_{name.upper()}": value for name, value in others.items()}
    if unknown := given.keys() - set(_TURN):
        raise TypeError(f"unknown session variables: {', '.join(sorted(unknown))}")
    _Latch.engaged = True
    token = _ASYNC_DELIVERY.set(bool(async_delivery))
    return [token, _bind({name: given.get(name) or "" for name in _TURN})]


def clear_session_vars(tokens: Tokens = ()) -> None:
    """Set every variable to empty, overriding the process environment."""
    _bind(dict.fromkeys(_TURN, ""))
    _ASYNC_DELIVERY.set(True)


def reset_session_vars() -> None:
    """Drop what this task inherited, as if nothing had been bound."""
    _BOUND.set({})
    _ASYNC_DELIVERY.set(True)


def set_current_session_id(session_id: str) -> None:
    """Update the session id when the conversation in this context changes sessions."""
    _bind({"HERMES_SESSION_ID": session_id})


def set_cron_delivery(platform: str = "", chat_id: str = "", thread_id: str = "") -> None:
    """Set where the result of the scheduled job in this context is delivered."""
    _bind(dict(zip(_CRON, (platform, chat_id, thread_id), strict=True)))


def get_session_env(name: str, default: str = "") -> str:
    """The value bound here, or that of the process if nothing was ever bound."""
    value = _bound().get(name)
    return process_value(name, default) if value is None else value


def async_delivery_supported() -> bool:
    """False only if a channel without later delivery has bound this context."""
    return _ASYNC_DELIVERY.get()


def session_env() -> dict[str, str]:
    """The non-empty variables, for a child process of foreign code."""
    return {name: value for name, value in _bound().items() if value}


class BoundScope:
    """Binds this context to a turn during the block."""

    __slots__ = ("_before", "_later", "_scope")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        self._before, self._later = _BOUND.get(), _ASYNC_DELIVERY.get()
        _Latch.engaged = True
        _BOUND.set(self._scope)
        _ASYNC_DELIVERY.set(self._scope.later)

    def __exit__(self, *_: object) -> None:
        _BOUND.set(self._before)
        _ASYNC_DELIVERY.set(self._later)


def _bound() -> Mapping[str, str]:
    bound = _BOUND.get()
    if isinstance(bound, Scope):
        values = scope_variables(bound)
        return {name: values.get(name, "") for name in _ALL}
    return bound


def _bind(values: Mapping[str, str]) -> object:
    return _BOUND.set({**_bound(), **values})
