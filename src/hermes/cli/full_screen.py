"""The terminal UI brought together with an agent, and the terminal afterwards."""

import asyncio
import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from errno import EIO
from functools import partial
from threading import Lock
from typing import TypeAlias, assert_never

from msgspec import structs

from hermes.cli.boundary import complain, silence_stdout
from hermes.cli.context import CliContext
from hermes.cli.export.plain import flat
from hermes.cli.start import gateway_lives, start_of
from hermes.cli.taste_settings import taste_of
from hermes.config.dotenv import env_of
from hermes.config.env import Env
from hermes.config.load import load_config
from hermes.config.schema import Config
from hermes.kit.clock import SystemClock
from hermes.local import partner as local
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Digest, SessionFilter
from hermes.tui import companion as tui
from hermes.tui.app import Setting, show

_LISTED = 200
_FOUND = 30
_MARKS = re.compile(">>>|<<<")
_KEPT = 400
"""Lines of what was said that are left in the terminal afterwards."""
FIRST = "New here? Ask “What is in this folder?”, or press F1 for the keys."
"""For whoever has never said anything in this home."""


Find: TypeAlias = Callable[[], AbstractContextManager[local.Partner]]
"""Finds somebody to talk to, for as long as the context lasts."""


def talk(args: Namespace, context: CliContext, *, headless: bool = False) -> int:
    """The screen comes first, the agent while the person begins to type."""
    start = structs.replace(start_of(args), person=True, screen=True)
    home = context.home()
    config = load_config(home, env_of(home.dotenv, context.env)).config
    setting = Setting(
        history=home.path / "cli_history",
        clock=SystemClock(),
        look=look_of(config, context.env),
        taste=taste_of(config),
        signals=True,
        headless=headless,
    )

    def find() -> AbstractContextManager[local.Partner]:
        from hermes.local.meet import meet

        return meet(home, context.env, start, partial(gateway_lives, home))

    with closing(AtTerminal(find, context)) as companion:
        ended = show(companion, setting)
        _leave(context, companion.now, ended.text)
    if ended.trouble is not None:
        complain(ended.trouble)
    return ended.code


def look_of(config: Config, env: Env) -> str:
    """As the settings say, else as the terminal says of itself, else dark."""
    skin = config.display.skin
    if skin in {"dark", "light"}:
        return skin
    ground = (env.get("COLORFGBG") or "").rpartition(";")[2]
    return "light" if ground in {"7", "15"} else "dark"


def _leave(context: CliContext, now: tui.Now, text: str) -> None:
    """The screen of before comes back: the end of what was said goes there."""
    lines = text.splitlines()
    if len(lines) > _KEPT:
        lines = [f"… {len(lines) - _KEPT:,} lines before …", *lines[-_KEPT:]]
    if now.started:
        lines.append(f"Go on later with: hermes -r {now.session}")
    try:
        context.stdout.write("".join(line + "\n" for line in lines))
        context.stdout.flush()
    except OSError as error:
        if error.errno != EIO:
            raise
        # The terminal was closed: nobody is left to tell, and all of it is kept.
        silence_stdout()


class AtTerminal:
    """An agent as the terminal UI knows it."""

    def __init__(self, find: Find, context: CliContext) -> None:
        self._find = find
        self._context = context
        self._open = ExitStack()
        self._opening = Lock()
        self._found: local.Partner | None = None
        self._commands: Mapping[str, str] = {}
        self._first = () if context.home().state_db.exists() else (FIRST,)

    def open(self) -> None:
        with self._opening:
            self._found = self._open.enter_context(self._find())
            self._commands = _explained(self._found.greeting.commands)

    def close(self) -> None:
        """Whoever leaves at once may have to wait for what is being opened."""
        with self._opening:
            self._open.close()

    @property
    def _partner(self) -> local.Partner:
        if self._found is None:
            raise RuntimeError("nobody was found yet")
        return self._found

    @property
    def hello(self) -> tui.Hello:
        if self._found is None:
            return tui.Hello(model="", folder="")
        greeting = self._found.greeting
        trouble = greeting.trouble
        return tui.Hello(
            model=greeting.model,
            folder=greeting.folder,
            notes=(*greeting.notes, *self._first),
            warnings=greeting.warnings,
            commands=self._commands,
            trouble=flat(trouble.message) if trouble else "",
            hint=trouble.hint if trouble else "",
        )

    @property
    def now(self) -> tui.Now:
        if self._found is None:
            return tui.Now(session="")
        return tui.Now(**structs.asdict(self._found.state))

    def say(self, parts: tui.Parts, show: Callable[[Event], None]) -> Outcome:
        return self._partner.say(local.Question(parts), show)

    def answer(self, question: str, words: str) -> None:
        self._partner.answer(question, words)

    def steer(self, word: str, text: str) -> None:
        self._partner.steer(word, text)

    def news(self) -> bool:
        return self._partner.news()

    def command(self, line: str) -> tui.Done:
        reply = self._partner.command(line)
        match reply:
            case local.Back(told=told):
                # The screen shows more than a recap.
                return tui.Back(told)
            case local.Told(text=text, clear=clear, clip=clip, undone=undone):
                return tui.Shown(text, clear, clip, undone)
            case local.Ask(parts=parts, told=told, undone=undone):
                return tui.Speak(parts, told, undone)
            case local.Leave():
                return tui.Bye()
            case local.OnScreen(what=what, words=words):
                return tui.OnScreen(what, words)
            case local.Plain():
                return tui.Words()
            case _:
                assert_never(reply)

    def before(self) -> tui.Before:
        past = self._partner.past()
        return tui.Before(rows=past.rows, cut=past.cut, asked=past.asked, more=past.more)

    def cost(self, ended: RunEnded) -> float | None:
        return self._partner.report(ended).estimated_cost_usd

    def interrupt(self) -> None:
        self._partner.interrupt()

    def composed(self, draft: str) -> str:
        from hermes.cli.editor import composed

        return composed(draft, self._context.env)

    def sessions(self, words: str) -> Sequence[tui.Past]:
        return asyncio.run(self._sessions(words))

    async def _sessions(self, words: str) -> Sequence[tui.Past]:
        from hermes.app.archive import open_archive

        home = self._context.home()
        if not home.state_db.exists():
            return []
        async with open_archive(home, SystemClock()) as store:
            archive = store.seen_by(OWNER)
            digests = await archive.list(SessionFilter(min_messages=1), _LISTED)
            if not words.strip():
                return [_past(one) for one in digests]
            fitting = [one for one in digests if _fits(one, words)]
            said: dict[str, str] = {}
            for hit in await archive.search(words, _FOUND):
                said.setdefault(hit.session.id, _MARKS.sub("", hit.snippet))
        named = {one.session.id for one in fitting}
        fitting += [one for one in digests if one.session.id in said.keys() - named]
        # One whose name fits needs no other reason to be there.
        return [
            _past(one, "" if one.session.id in named else said[one.session.id]) for one in fitting
        ]

    def models(self) -> Sequence[tui.Offered]:
        return asyncio.run(self._models())

    async def _models(self) -> Sequence[tui.Offered]:
        from hermes.app.model_settings import model_settings
        from hermes.app.models import with_weights
        from hermes.app.offers import reachable

        home = self._context.home()
        env = env_of(home.dotenv, self._context.env)
        settings = with_weights(model_settings(load_config(home, env).config), home)
        offers = await reachable(settings, env.get)
        found: list[tui.Offered] = []
        for offer in offers:
            provider = offer.provider
            found += [tui.Offered(provider=provider, model=model) for model in offer.models]
            if offer.trouble:
                found.append(tui.Offered(provider=provider, trouble=offer.trouble))
        return found


def _explained(names: Sequence[str]) -> Mapping[str, str]:
    """What each command is for; other names of one come last."""
    from hermes.commands.registry import standard_commands

    known = standard_commands().commands
    own = {one.name: one.summary for one in known}
    other = {name: f"the same as /{one.name}" for one in known for name in one.aliases}
    explained = own | other
    order = sorted(names, key=lambda name: (name in other, name))
    return {name: explained.get(name, "") for name in order}


def _fits(digest: Digest, words: str) -> bool:
    session = digest.session
    text = f"{session.id} {session.title} {digest.preview}".lower()
    return all(word in text for word in words.lower().split())


def _past(digest: Digest, found: str = "") -> tui.Past:
    session = digest.session
    return tui.Past(
        id=session.id,
        about=session.title or digest.preview or "(no words)",
        messages=digest.messages,
        last_at=digest.last_at,
        found=found,
    )
