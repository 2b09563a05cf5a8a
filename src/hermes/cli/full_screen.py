"""The terminal UI brought together with an agent, and the terminal afterwards."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import assert_never

import anyio
from msgspec import structs

from hermes.cli.boundary import complain
from hermes.cli.context import CliContext
from hermes.cli.export.plain import flat
from hermes.cli.start import start_of
from hermes.config.dotenv import env_of
from hermes.config.load import load_config
from hermes.kit.clock import SystemClock
from hermes.local import partner as local
from hermes.local.meet import meet
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Digest, SessionFilter
from hermes.tui import companion as tui
from hermes.tui.app import Setting, show

_LISTED = 200
_FOUND = 30
_KEPT = 400
"""Lines of what was said that are left in the terminal afterwards."""


def talk(args: Namespace, context: CliContext) -> int:
    start = structs.replace(start_of(args), person=True, screen=True)
    home = context.home()
    with meet(home, context.env, start) as partner:
        setting = Setting(
            history=home.path / "cli_history",
            clock=SystemClock(),
            look=look_of(context),
            signals=True,
        )
        ended = show(AtTerminal(partner, context), setting)
        _leave(context, partner, ended.text)
    if ended.trouble is not None:
        complain(ended.trouble)
    return ended.code


def look_of(context: CliContext) -> str:
    """As the settings say, else as the terminal says of itself, else dark."""
    home = context.home()
    skin = load_config(home, env_of(home.dotenv, context.env)).config.display.skin
    if skin in {"dark", "light"}:
        return skin
    ground = (context.env.get("COLORFGBG") or "").rpartition(";")[2]
    return "light" if ground in {"7", "15"} else "dark"


def _leave(context: CliContext, partner: local.Partner, text: str) -> None:
    """The screen of before comes back: the end of what was said goes there."""
    lines = text.splitlines()
    if len(lines) > _KEPT:
        lines = [f"… {len(lines) - _KEPT:,} lines before …", *lines[-_KEPT:]]
    if partner.state.started:
        lines.append(f"Go on later with: hermes -r {partner.state.session}")
    context.stdout.write("".join(line + "\n" for line in lines))
    context.stdout.flush()


class AtTerminal:
    """An agent as the terminal UI knows it."""

    def __init__(self, partner: local.Partner, context: CliContext) -> None:
        self._partner = partner
        self._context = context
        greeting = partner.greeting
        trouble = greeting.trouble
        self.hello = tui.Hello(
            model=greeting.model,
            folder=greeting.folder,
            notes=greeting.notes,
            warnings=greeting.warnings,
            commands=greeting.commands,
            trouble=flat(trouble.message) if trouble else "",
            hint=trouble.hint if trouble else "",
            recap=greeting.recap,
        )

    @property
    def now(self) -> tui.Now:
        return tui.Now(**structs.asdict(self._partner.state))

    def say(self, parts: tui.Parts, show: Callable[[Event], None]) -> Outcome:
        return self._partner.say(local.Question(parts), show)

    def answer(self, question: str, words: str) -> None:
        self._partner.answer(question, words)

    def news(self) -> bool:
        return self._partner.news()

    def command(self, line: str) -> tui.Done:
        reply = self._partner.command(line)
        match reply:
            case local.Told(text=text, clear=clear, clip=clip):
                return tui.Shown(text, clear, clip)
            case local.Ask(parts=parts, told=told):
                return tui.Speak(parts, told)
            case local.Leave():
                return tui.Bye()
            case local.Plain():
                return tui.Words()
            case _:
                assert_never(reply)

    def cost(self, ended: RunEnded) -> float | None:
        return self._partner.report(ended).estimated_cost_usd

    def interrupt(self) -> None:
        self._partner.interrupt()

    def sessions(self, words: str) -> Sequence[tui.Past]:
        return anyio.run(self._sessions, words)

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
            said = {hit.session.id for hit in await archive.search(words, _FOUND)}
        named = {one.session.id for one in fitting}
        fitting += [one for one in digests if one.session.id in said - named]
        return [_past(one) for one in fitting]

    def models(self) -> Sequence[tui.Offered]:
        return anyio.run(self._models)

    async def _models(self) -> Sequence[tui.Offered]:
        from hermes.app.model_settings import model_settings
        from hermes.app.offers import reachable

        home = self._context.home()
        env = env_of(home.dotenv, self._context.env)
        offers = await reachable(model_settings(load_config(home, env).config), env.get)
        found: list[tui.Offered] = []
        for offer in offers:
            provider = offer.provider
            found += [tui.Offered(provider=provider, model=model) for model in offer.models]
            if offer.trouble:
                found.append(tui.Offered(provider=provider, trouble=offer.trouble))
        return found


def _fits(digest: Digest, words: str) -> bool:
    session = digest.session
    text = f"{session.id} {session.title} {digest.preview}".lower()
    return all(word in text for word in words.lower().split())


def _past(digest: Digest) -> tui.Past:
    session = digest.session
    return tui.Past(
        id=session.id,
        about=session.title or digest.preview or "(no words)",
        messages=digest.messages,
        last_at=digest.last_at,
    )
