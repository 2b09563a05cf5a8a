"""Expose a turn's scope to foreign code: plugins, foreign tools, old programs.

Our own code takes the `Scope` and never reads these variables. In a task that never bound
anything they have the values of the process environment; after a turn they are empty. A task
inherits what its starter had bound, so each handler starts with `reset_session_vars`.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Final, NamedTuple, TypeAlias, cast

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
UNSET: Final = object()
"""The value of a variable that was never bound in a context."""
_BOUND: Final = ContextVar[Mapping[str, object] | Scope]("HERMES_SESSION", default={})  # noqa: B039 - never changed
"""All variables together, never changed in place.

A scope is converted to variables only when one is read, which few turns do.
"""
ASYNC_DELIVERY: Final = ContextVar[object]("HERMES_SESSION_ASYNC_DELIVERY", default=UNSET)
"""Whether results can be delivered after the turn; unset means yes."""


_MISSING: Final = object()


class _Latch:
    engaged = False


def session_context_engaged() -> bool:
    return _Latch.engaged


def set_session_vars(  # noqa: PLR0917 - the public interface
    platform: str = "",
    source: str = "",
    chat_id: str = "",
    chat_name: str = "",
    thread_id: str = "",
    user_id: str = "",
    user_name: str = "",
    session_key: str = "",
    session_id: str = "",
    message_id: str = "",
    profile: str = "",
    cwd: str = "",
    async_delivery: bool = True,
) -> Tokens:
    """Bind this context to a session; variables not given are set to empty.

    `async_delivery` says whether messages can be delivered to the session after the turn.
    """
    _Latch.engaged = True
    values = (
        *(platform, source, chat_id, chat_name, thread_id, user_id, user_name),
        *(session_key, session_id, message_id, profile, cwd),
    )
    token = ASYNC_DELIVERY.set(bool(async_delivery))
    return [token, _bind(dict(zip(_TURN, values, strict=True)))]


def declare_stateless_channel() -> None:
    """No later delivery in this context; binds no session."""
    ASYNC_DELIVERY.set(False)


def clear_session_vars(tokens: Tokens = ()) -> None:
    """Set every variable to empty, overriding the process environment."""
    _bind(dict.fromkeys(_TURN, ""))
    ASYNC_DELIVERY.set(UNSET)


def reset_session_vars() -> None:
    """Drop what this task inherited, as if nothing had been bound."""
    _BOUND.set(dict.fromkeys(_ALL, UNSET))
    ASYNC_DELIVERY.set(UNSET)


def set_current_session_id(session_id: str) -> None:
    """Update the session id when the conversation in this context changes sessions."""
    _bind({"HERMES_SESSION_ID": session_id})


def set_cron_delivery(platform: str = "", chat_id: str = "", thread_id: str = "") -> None:
    """Set where the result of the scheduled job in this context is delivered."""
    _bind(dict(zip(_CRON, (platform, chat_id, thread_id), strict=True)))


def get_session_env(name: str, default: str = "") -> str:
    """The value bound here, or that of the process if nothing was ever bound."""
    value = _bound().get(name, UNSET)
    return process_value(name, default) if value is UNSET else cast("str", value)


def async_delivery_supported() -> bool:
    """False only if a channel without later delivery has bound this context."""
    supported = ASYNC_DELIVERY.get()
    return supported is UNSET or bool(supported)


def session_env() -> dict[str, str]:
    """The non-empty variables, for a child process of foreign code."""
    bound = _bound().items()
    return {name: str(value) for name, value in bound if value is not UNSET and value}


class SessionVariable:
    """One variable of the bound context, with the interface of a `ContextVar`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get(self, default: object = UNSET) -> object:
        return _bound().get(self.name, default)

    def set(self, value: object) -> "VariableToken":
        previous = _bound().get(self.name, _MISSING)
        return VariableToken(self, previous, _bind({self.name: value}))

    def reset(self, token: "VariableToken") -> None:
        """Restore the value before the `set` that returned the token, of this variable only.

        Raises as a `ContextVar` does if the token was used, or is of another variable or context.
        """
        if token.var is not self:
            raise ValueError(f"the token was created by {token.var.name}, not by {self.name}")
        bound = dict(_bound())
        _BOUND.reset(token.binding)
        bound[self.name] = token.previous
        if token.previous is _MISSING:
            del bound[self.name]
        _BOUND.set(bound)


class VariableToken(NamedTuple):
    """What `SessionVariable.set` replaced."""

    var: SessionVariable
    previous: object
    binding: Token[Mapping[str, object] | Scope]


VARIABLES: Final = {name: SessionVariable(name) for name in _ALL}


@contextmanager
def bound_scope(scope: Scope) -> Generator[None]:
    """Bind this context to a turn during the block."""
    before, later = _BOUND.get(), ASYNC_DELIVERY.get()
    _Latch.engaged = True
    _BOUND.set(scope)
    ASYNC_DELIVERY.set(scope.later)
    try:
        yield
    finally:
        _BOUND.set(before)
        ASYNC_DELIVERY.set(later)


def _bound() -> Mapping[str, object]:
    bound = _BOUND.get()
    if isinstance(bound, Scope):
        values = scope_variables(bound)
        return {name: values.get(name, "") for name in _ALL}
    return bound


def _bind(values: Mapping[str, object]) -> Token[Mapping[str, object] | Scope]:
    return _BOUND.set({**_bound(), **values})
