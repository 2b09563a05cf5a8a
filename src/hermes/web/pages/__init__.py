"""The pages: each module renders one and handles its actions with the application's functions."""

from collections.abc import Callable

from hermes.web.context import Route, WebContext
from hermes.web.middleware import WebMiddleware
from hermes.web.pages import (
    approvals,
    board,
    chat,
    events,
    jobs,
    learning,
    login,
    logs,
    oidc_login,
    passkey_login,
    sessions,
    settings,
    system,
    task,
    usage,
)

_PAGES = (
    events, chat, sessions, approvals, jobs, board, task, logs, usage, learning, settings, system,
)  # fmt: skip


def all_routes(context: WebContext, middleware: Callable[[], WebMiddleware]) -> list[Route]:
    return [
        *login.routes(context, middleware),
        *passkey_login.routes(context, middleware),
        *oidc_login.routes(context, middleware),
        *(route for page in _PAGES for route in page.routes(context)),
    ]
