"""Run the full-screen chat and print the end of the conversation afterwards."""

import asyncio
import os
import re
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from errno import EIO
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

from msgspec import structs

from hermes.cli.boundary import print_error, silence_stdout
from hermes.cli.context import CliContext
from hermes.cli.verbs.chat import conversation_options, display_options_of, has_gateway
from hermes.config.env import Env
from hermes.config.schema import Config
from hermes.ipc import client as local
from hermes.kit.clock import SystemClock
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter, SessionSummary
from hermes.schema.shell import ShellResult
from hermes.schema.terminal import ConversationState, Greeting, LineReply, RecentHistory
from hermes.tui import client as tui
from hermes.tui.app import UiSettings, run_ui
from hermes.tui.attention import notification_sequence
from hermes.tui.display_text import continued_jobs_text

if TYPE_CHECKING:
    from hermes.cli.shell_escape import UserShell

_MAX_LISTED = 200
_MAX_HITS = 30
_HIT_MARKS = re.compile(">>>|<<<")
_MAX_LINES = 400
"""Lines of the conversation that are printed after the screen closes."""
FIRST_RUN_NOTE = "New here? Ask “What is in this folder?”, or press F1 for the keys."
"""Shown in a home without sessions."""
ConnectAgent: TypeAlias = Callable[[], AbstractContextManager[local.AgentClient]]
"""Connects to an agent for the duration of the context."""


def run_chat(args: Namespace, context: CliContext, *, headless: bool = False) -> int:
    """Show the screen immediately and connect to the agent in the background."""
    start = structs.replace(conversation_options(args), person=True, screen=True)
    home, config = context.home(), context.load_config().config
    setting = UiSettings(
        history=home.path / "cli_history",
        clock=SystemClock(),
        theme=theme_name(config, context.env),
        auto_theme=terminal_theme(context.env),
        display=display_options_of(config),
        notification=notification_sequence(context.env),
        signals=True,
        headless=headless,
    )

    def find() -> AbstractContextManager[local.AgentClient]:
        from hermes.ipc.connect import connect

        return connect(home, context.env, start, partial(has_gateway, home))

    with closing(TerminalClient(find, context)) as client:
        ended = run_ui(client, setting)
        state = client.state
        continued = 0 if client.unfinished_jobs else state.background_jobs
        _print_ending(context, state, ended.text, continued)
    if ended.error is not None:
        print_error(ended.error)
    return ended.code


def theme_name(config: Config, env: Env) -> str:
    """The theme from the settings, or the one that fits the terminal's background."""
    skin = config.display.skin
    if skin in {"dark", "light"}:
        return skin
    return terminal_theme(env)


def terminal_theme(env: Env) -> str:
    """The theme that fits the terminal's background, as far as it reports it."""
    background = (env.get("COLORFGBG") or "").rpartition(";")[2]
    return "light" if background in {"7", "15"} else "dark"


def _print_ending(
    context: CliContext, now: ConversationState, text: str, continued: int = 0
) -> None:
    """Print the end of the conversation on the restored screen, and the tasks that continue."""
    lines = text.splitlines()
    if len(lines) > _MAX_LINES:
        lines = [f"… {len(lines) - _MAX_LINES:,} earlier lines …", *lines[-_MAX_LINES:]]
    if continued:
        lines.append(continued_jobs_text(continued))
    if now.started:
        lines.append(f"Resume: hermes -r {now.session}")
    try:
        context.stdout.write("".join(line + "\n" for line in lines))
        context.stdout.flush()
    except OSError as error:
        if error.errno != EIO:
            raise
        # The terminal was closed; the session is stored.
        silence_stdout()


class TerminalClient:
    """Adapts an agent connection to the client interface of the terminal UI."""

    def __init__(self, find: ConnectAgent, context: CliContext) -> None:
        self._find = find
        self._context = context
        self._open = ExitStack()
        self._opening = Lock()
        self._found: local.AgentClient | None = None
        self._first = () if context.home().has_sessions else (FIRST_RUN_NOTE,)

    def open(self) -> None:
        with self._opening:
            self._found = self._open.enter_context(self._find())

    def close(self) -> None:
        """Close the connection; waits for one that is still being opened."""
        with self._opening:
            self._open.close()

    @property
    def _agent(self) -> local.AgentClient:
        if self._found is None:
            raise RuntimeError("not connected yet")
        return self._found

    @property
    def greeting(self) -> Greeting:
        if self._found is None:
            return Greeting(model="", folder="")
        greeting = self._found.greeting
        return structs.replace(greeting, notes=(*greeting.notes, *self._first))

    @property
    def state(self) -> ConversationState:
        return ConversationState(session="") if self._found is None else self._found.state

    @property
    def unfinished_jobs(self) -> int:
        return 0 if self._found is None else self._found.unfinished_jobs

    def submit(
        self, parts: tui.MessageParts, images: Sequence[str], show: Callable[[Event], None]
    ) -> Outcome:
        paths = tuple(os.fsencode(path) for path in images)
        return self._agent.submit(local.UserInput(parts, paths), show)

    def run_shell(self, command: str, show: Callable[[str], None]) -> ShellResult:
        return self._shell.run(command, self._agent.greeting.folder, show)

    def clipboard_image(self) -> str:
        from hermes.cli.shell_escape import clipboard_image

        return clipboard_image(self._context.env, self._context.home().cache / "pasted")

    def answer(self, question: str, text: str) -> None:
        self._agent.answer(question, text)

    def steer(self, message_id: str, text: str) -> None:
        self._agent.steer(message_id, text)

    def has_news(self) -> bool:
        return self._agent.has_news()

    def command(self, line: str) -> LineReply:
        return self._agent.command(line)

    def recent_history(self) -> RecentHistory:
        return self._agent.recent_history()

    def cost(self, ended: RunEnded) -> float | None:
        return self._agent.usage_report(ended).estimated_cost_usd

    def interrupt(self) -> None:
        if "_shell" in self.__dict__:
            self._shell.interrupt()
        self._agent.interrupt()

    @cached_property
    def _shell(self) -> "UserShell":
        from hermes.cli.shell_escape import UserShell

        return UserShell(self._context.env)

    def compose_text(self, draft: str) -> str:
        from hermes.cli.editor import compose_text

        return compose_text(draft, self._context.env)

    def sessions(self, query: str) -> Sequence[tui.SessionOption]:
        return asyncio.run(self._sessions(query))

    async def _sessions(self, query: str) -> Sequence[tui.SessionOption]:
        from hermes.app.storage import open_archive

        home = self._context.home()
        if not home.has_sessions:
            return []
        async with open_archive(home, SystemClock()) as store:
            archive = store.archive_for(OWNER)
            summaries = await archive.list(SessionFilter(min_messages=1), _MAX_LISTED)
            if not query.strip():
                return [_session_option(summary) for summary in summaries]
            found = [summary for summary in summaries if _matches(summary, query)]
            snippets: dict[str, str] = {}
            for hit in (await archive.search(query, _MAX_HITS)).hits:
                snippets.setdefault(hit.session.id, _HIT_MARKS.sub("", hit.snippet))
        matched = {summary.session.id for summary in found}
        found += [
            summary for summary in summaries if summary.session.id in snippets.keys() - matched
        ]
        # A session whose title matches needs no snippet.
        return [
            _session_option(
                summary, "" if summary.session.id in matched else snippets[summary.session.id]
            )
            for summary in found
        ]

    def models(self) -> Sequence[tui.ModelOption]:
        return asyncio.run(self._models())

    async def _models(self) -> Sequence[tui.ModelOption]:
        from hermes.app.model_settings import model_settings
        from hermes.app.models import find_available

        config, root = self._context.load_config().config, self._context.home().root
        found: list[tui.ModelOption] = []
        for offer in await find_available(
            model_settings(config, root), self._context.profile_env().get
        ):
            provider = offer.provider
            found += [tui.ModelOption(provider=provider, model=model) for model in offer.models]
            if offer.error:
                found.append(tui.ModelOption(provider=provider, error=offer.error))
        return found


def _matches(summary: SessionSummary, words: str) -> bool:
    session = summary.session
    text = f"{session.id} {session.title} {summary.preview}".lower()
    return all(word in text for word in words.lower().split())


def _session_option(summary: SessionSummary, found: str = "") -> tui.SessionOption:
    session = summary.session
    return tui.SessionOption(
        id=session.id,
        title=session.title or summary.preview or "(no text)",
        messages=summary.messages,
        last_at=summary.last_at,
        snippet=found,
    )
