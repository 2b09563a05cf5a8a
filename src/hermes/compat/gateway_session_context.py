"""`gateway.session_context`: the variables of a session, as views of the one context we bind."""

from typing import Final

from hermes.config.env import set_process_value
from hermes.session import session_context
from hermes.session.session_context import (
    ASYNC_DELIVERY,
    UNSET,
    VARIABLES,
    async_delivery_supported,
    clear_session_vars,
    declare_stateless_channel,
    get_session_env,
    reset_session_vars,
    session_context_engaged,
    set_session_vars,
)

__all__ = [
    "async_delivery_supported",
    "clear_session_vars",
    "declare_stateless_channel",
    "get_session_env",
    "reset_session_vars",
    "session_context_engaged",
    "set_current_session_id",
    "set_session_vars",
]

_UNSET: Final = UNSET
_VAR_MAP: Final = {
    name: variable for name, variable in VARIABLES.items() if name != "HERMES_SESSION_CWD"
}
_SESSION_PLATFORM: Final = _VAR_MAP["HERMES_SESSION_PLATFORM"]
_SESSION_SOURCE: Final = _VAR_MAP["HERMES_SESSION_SOURCE"]
_SESSION_CHAT_ID: Final = _VAR_MAP["HERMES_SESSION_CHAT_ID"]
_SESSION_CHAT_NAME: Final = _VAR_MAP["HERMES_SESSION_CHAT_NAME"]
_SESSION_THREAD_ID: Final = _VAR_MAP["HERMES_SESSION_THREAD_ID"]
_SESSION_USER_ID: Final = _VAR_MAP["HERMES_SESSION_USER_ID"]
_SESSION_USER_NAME: Final = _VAR_MAP["HERMES_SESSION_USER_NAME"]
_SESSION_KEY: Final = _VAR_MAP["HERMES_SESSION_KEY"]
_SESSION_ID: Final = _VAR_MAP["HERMES_SESSION_ID"]
_SESSION_MESSAGE_ID: Final = _VAR_MAP["HERMES_SESSION_MESSAGE_ID"]
_SESSION_PROFILE: Final = _VAR_MAP["HERMES_SESSION_PROFILE"]
_CRON_AUTO_DELIVER_PLATFORM: Final = _VAR_MAP["HERMES_CRON_AUTO_DELIVER_PLATFORM"]
_CRON_AUTO_DELIVER_CHAT_ID: Final = _VAR_MAP["HERMES_CRON_AUTO_DELIVER_CHAT_ID"]
_CRON_AUTO_DELIVER_THREAD_ID: Final = _VAR_MAP["HERMES_CRON_AUTO_DELIVER_THREAD_ID"]
_SESSION_ASYNC_DELIVERY: Final = ASYNC_DELIVERY


def set_current_session_id(session_id: str) -> None:
    """Change the session of this context, and of old code that reads the environment."""
    set_process_value("HERMES_SESSION_ID", session_id)
    session_context.set_current_session_id(session_id)


def __getattr__(name: str) -> bool:
    if name == "_session_context_engaged":
        return session_context_engaged()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
