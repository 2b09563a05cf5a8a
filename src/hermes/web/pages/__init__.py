"""The pages: each module renders one and handles its actions with the application's functions."""

from collections.abc import Callable

from hermes.web.context import Route, WebContext
from hermes.web.middleware import WebMiddleware
from hermes.web.pages import (
    approvals,
    board,
    channels,
    chat,
    events,
    hooks,
    jobs,
    learning,
    login,
    logs,
    mcp_servers,
    oidc_login,
    passkey_login,
    people,
    profiles,
    sessions,
    settings,
    skill,
    system,
    task,
    task_answer,
    task_files,
    usage,
)

_PAGES = (
    events, chat, sessions, approvals, jobs, board, task, task_answer, task_files, logs, usage,
    learning, skill, settings, channels, people, profiles, mcp_servers, hooks, system,
)  # fmt: skip


def all_routes(context: WebContext, middleware: Callable[[], WebMiddleware]) -> list[Route]:
    return [
        *login.routes(context, middleware),
        *passkey_login.routes(context, middleware),
        *oidc_login.routes(context, middleware),
        *(route for page in _PAGES for route in page.routes(context)),
    ]
