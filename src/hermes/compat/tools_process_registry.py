"""`tools.process_registry`: background processes of the agent, by their public names."""

import atexit
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from hermes.app.build import App, AppOptions, open_app
from hermes.config.env import Env, process_env
from hermes.config.home import resolve_home
from hermes.ports.processes import BackgroundProcess
from hermes.schema.scope import Address, Requester, Scope
from hermes.session.session_context import async_delivery_supported, get_session_env

T = TypeVar("T")


class BackgroundAgent:
    """An open agent in a background thread, from the first use until the program ends.

    Programs call plain functions and expect started processes to continue in between.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._stack = ExitStack()
        self._opened: tuple[BlockingPortal, App] | None = None

    @property
    def app(self) -> App | None:
        """None until the first use."""
        return self._opened[1] if self._opened else None

    def use(self) -> tuple[BlockingPortal, App]:
        with self._lock:
            if self._opened is None:
                env = Env(process_env())
                choices = AppOptions(workspace=str(Path.cwd()), source="library")
                opening = open_app(resolve_home(env), env, choices)
                portal = self._stack.enter_context(start_blocking_portal())
                app = self._stack.enter_context(portal.wrap_async_context_manager(opening))
                self._opened = portal, app
                atexit.register(self.close)
            return self._opened

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        portal, _ = self.use()

        async def wait() -> T:
            return await work

        return portal.call(wait)

    def close(self) -> None:
        """Stop everything still running."""
        with self._lock:
            self._opened = None
            self._stack.close()


def current_scope(app: App) -> Scope:
    """Return the caller's scope from its session context."""
    platform = get_session_env("HERMES_SESSION_PLATFORM")
    chat = get_session_env("HERMES_SESSION_CHAT_ID")
    thread = get_session_env("HERMES_SESSION_THREAD_ID") or None
    return Scope(
        profile=app.home.profile,
        session=get_session_env("HERMES_SESSION_ID") or app.conversation.session.id,
        run="",
        workspace=get_session_env("HERMES_SESSION_CWD") or str(Path.cwd()),
        address=Address(platform, chat, thread) if platform and chat else None,
        later=async_delivery_supported(),
        source=platform or "library",
        key=get_session_env("HERMES_SESSION_KEY"),
        asker=Requester(user=get_session_env("HERMES_SESSION_USER_ID")),
    )


class ProcessRegistry:
    """The registry of the background agent, by its public names."""

    def __init__(self) -> None:
        self.agent = BackgroundAgent()
        self._taken: set[str] = set()

    @property
    def pending_watchers(self) -> Sequence[Mapping[str, Any]]:
        """Watched processes of chats that no caller has taken over yet."""
        return [
            _watcher(process)
            for process in self._watched_processes()
            if process.id not in self._taken
        ]

    @pending_watchers.setter
    def pending_watchers(self, remaining: Sequence[Mapping[str, Any]]) -> None:
        """Callers remove the watchers they take over."""
        remaining_ids = {one["session_id"] for one in remaining}
        self._taken = {
            process.id for process in self._watched_processes() if process.id not in remaining_ids
        }

    def _watched_processes(self) -> list[BackgroundProcess]:
        app = self.agent.app
        running = app.processes.running if app else ()
        return [
            process
            for process in running
            if process.scope.address and (process.notify or process.watch)
        ]


def _watcher(record: BackgroundProcess) -> dict[str, Any]:
    scope = record.scope
    address = scope.address or Address("", "")
    return {
        "session_id": record.id,
        "platform": address.channel,
        "chat_id": address.chat,
        "thread_id": address.thread or "",
        "user_id": scope.asker.user,
        "session_key": scope.key,
        "notify_on_complete": record.notify,
    }


process_registry = ProcessRegistry()
