"""Programs that the settings name under `hooks`: told of what a turn does, and asked before a call.

Each is a child of the one door: without a shell, with the environment of any command, a limit of
its own and nothing that outlives it. It is the owner's, and so no wall is around it.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import cast

import msgspec
from anyio.to_thread import run_sync
from msgspec import Raw, Struct

from hermes.app.hook_consent import Consents, words_of
from hermes.config.home import DEFAULT
from hermes.config.sections.work import ShellHook
from hermes.gateway.failures import for_profile
from hermes.kit.text import head_and_tail, one_line
from hermes.ports.counsel import Counsel, Ruling, Wish
from hermes.ports.sandbox import Job, Sandbox
from hermes.ports.sink import Emit
from hermes.ports.watch import Watch
from hermes.schema.errors import ConfigError, SandboxError
from hermes.schema.events import Outcome
from hermes.schema.scope import Scope

log = logging.getLogger(__name__)

EVENTS = ("pre_tool_call", "post_tool_call", "pre_llm_call", "on_session_start", "on_session_end")
BEFORE, AFTER, ASKED, STARTED, ENDED = EVENTS
KEEP = 64_000
"""Bytes of what one prints that are read, and characters of a result that it is told."""
CONTEXT = 10_000
"""Characters that may be added to a question."""
ACCEPT = "hermes hooks accept"
_WORDS = ("decision", "reason", "action", "message", "context")
_DECISIONS = ("decision", "action")
_BLOCKS = frozenset({"block", "deny"})
_ALLOWS = frozenset({"", "allow", "approve", "continue"})
_ECHO = "hook_event_name"
"""A key of what a program reads: one that prints its input again, as `tee` does, only logs."""
_LIKE_JSON = re.compile(
    r"""\ufeff*(?:[{"]|\[\s*[\[{"\]])|.*["'](?:decision|action)["']\s*:""", re.IGNORECASE
)


class About(Struct, frozen=True, kw_only=True):
    """What a program is told of."""

    event: str
    scope: Scope
    tool: str | None = None
    args: Raw = Raw(b"null")
    extra: Mapping[str, object] = {}


class Answer(Struct, frozen=True):
    """What a program printed; `failure` says why there is no answer."""

    words: Mapping[str, str] = {}
    failure: str = ""

    @property
    def blocks(self) -> bool:
        return not _BLOCKS.isdisjoint(self.words.get(name, "").lower() for name in _DECISIONS)

    @property
    def reason(self) -> str:
        return self.words.get("reason") or self.words.get("message") or ""


class Means(Struct, frozen=True, kw_only=True):
    """`accepts`: the owner wants whatever the settings name to be run unasked."""

    sandbox: Sandbox
    env: Callable[[Scope], Mapping[str, str]]
    redact: Callable[[str], str]
    home: Path
    consents: Consents
    accepts: bool = False
    profile: str = DEFAULT


class ShellHooks:
    """Implements `hermes.ports.watch.Watch`."""

    def __init__(self, hooks: Mapping[str, Sequence[ShellHook]], means: Means) -> None:
        self._hooks = hooks
        self._means = means
        self._complained: set[str] = set()

    async def before(self, scope: Scope, tool: str, args: Raw) -> str:
        about = About(event=BEFORE, scope=scope, tool=tool, args=args)
        for hook in self._for(about):
            name = one_line(hook.command, 120)
            if why := await run_sync(self.unaccepted, BEFORE, hook):
                return f"Not run: the hook `{name}` guards this call, and {why}."
            answer = await self.ask(hook, about)
            if answer.failure:
                return f"Not run: the hook `{name}`, which guards this call, {answer.failure}."
            if answer.blocks:
                said = head_and_tail(self._means.redact(answer.reason), CONTEXT)
                return f"Not run: {said or f'the hook `{name}` forbids it.'}"
        return ""

    async def after(self, scope: Scope, tool: str, args: Raw, result: str, *, failed: bool) -> None:
        extra = {"result": head_and_tail(result, KEEP), "failed": failed}
        await self._tell(About(event=AFTER, scope=scope, tool=tool, args=args, extra=extra))

    async def asked(self, scope: Scope, words: str, *, new: bool) -> str:
        if new:
            await self._tell(About(event=STARTED, scope=scope))
        extra = {"user_message": words, "is_first_turn": new}
        told = await self._tell(About(event=ASKED, scope=scope, extra=extra))
        texts = (self._means.redact(one.words.get("context", "")).strip() for one in told)
        return head_and_tail("\n\n".join(filter(None, texts)), CONTEXT)

    async def ended(self, scope: Scope, outcome: Outcome) -> None:
        await self._tell(About(event=ENDED, scope=scope, extra={"outcome": outcome.value}))

    def warnings(self) -> list[str]:
        """What is not done, or not allowed, as things stand."""
        told = [
            f"hooks.{event}: there is no such event here, so nothing is run for it"
            for event in self._hooks
            if event not in EVENTS
        ]
        told += [
            f"the hook `{one_line(hook.command, 120)}` of {event} is not run: {why}"
            for event, hook in configured(self._hooks)
            if (why := self.unaccepted(event, hook))
        ]
        return told

    async def ask(self, hook: ShellHook, about: About) -> Answer:
        """Have it run; whether it may be, is the caller's business.

        Not where the agent writes: programs load what lies in the folder they start in.
        """
        scope = about.scope
        try:
            done = await self._means.sandbox.run(
                Job(
                    argv=tuple(words_of(hook.command)),
                    cwd=str(self._means.home),
                    env=self._means.env(scope),
                    timeout=hook.timeout,
                    stdin=_told(about),
                    keep=KEEP,
                )
            )
        except (SandboxError, ValueError) as error:
            return Answer(failure=f"could not be run: {one_line(str(error), 300)}")
        if done.timed_out:
            return Answer(failure=f"did not answer within {hook.timeout:g} s")
        answer = read_answer(done.output, decides=about.event == BEFORE)
        if done.exit_code and not answer.blocks:
            said = one_line(self._means.redact(done.output.decode("utf-8", "replace")), 300)
            return Answer(failure=f"ended with code {done.exit_code}: {said}")
        return answer

    async def _tell(self, about: About) -> list[Answer]:
        """Nothing depends on it: who cannot be told is only logged, and that once."""
        answers: list[Answer] = []
        for hook in self._for(about):
            why = await run_sync(self.unaccepted, about.event, hook)
            answer = Answer(failure=f"is not run: {why}") if why else await self.ask(hook, about)
            if answer.failure and hook.command not in self._complained:
                self._complained.add(hook.command)
                log.warning("the hook %s %s", hook.command, answer.failure)
            answers.append(answer)
        return answers

    def _for(self, about: About) -> list[ShellHook]:
        hooks = self._hooks.get(about.event, ())
        return [one for one in hooks if about.tool is None or matches(one.matcher, about.tool)]

    def unaccepted(self, event: str, hook: ShellHook) -> str:
        """Why it may not be run; empty when it may."""
        try:
            if self._means.accepts or self._means.consents.given(event, hook.command):
                return ""
        except ConfigError as error:
            return error.sentence
        accept = for_profile(ACCEPT, self._means.profile)
        return f"its owner has not accepted it as it is now. They can: {accept}"


class WatchedCounsel:
    """For a runtime with hands of its own: what it asks leave for is a call like any other."""

    def __init__(self, counsel: Counsel, watch: Watch) -> None:
        self._watch = watch
        self._counsel = counsel
        self.inquire = counsel.inquire

    async def rule(self, scope: Scope, wish: Wish, tell: Emit) -> Ruling:
        named = "command" if wish.shell else "path" if wish.tool == "patch" else "action"
        args = Raw(msgspec.json.encode({named: wish.action, "workdir": wish.folder}))
        if why := await self._watch.before(scope, wish.tool, args):
            return Ruling(allowed=False, why=why)
        return await self._counsel.rule(scope, wish, tell)


def configured(hooks: Mapping[str, Sequence[ShellHook]]) -> Iterator[tuple[str, ShellHook]]:
    """All that can be run, with its event."""
    return ((event, hook) for event in EVENTS for hook in hooks.get(event, ()))


def read_answer(output: bytes, *, decides: bool = True) -> Answer:
    """What is printed as JSON, in whole or in single lines: other text may stand around it.

    Of a program that `decides`, everything that may be meant as a decision but is none that is
    known is a failure, so that the call is held back. Plain text decides nothing.
    """
    text = output.decode("utf-8-sig", "replace").strip()
    answers = [_answer(value) for value in _printed(text)]
    for answer in answers:
        if answer.blocks:
            return answer
    failures = [answer for answer in answers if answer.failure]
    if not answers and ("\ufffd" in text or "\0" in text):
        failures = [Answer(failure="printed something that is not text in UTF-8")]
    if failures and decides:
        return failures[0]
    understood = [answer for answer in answers if not answer.failure]
    return (understood or failures or [Answer()])[0]


def _printed(text: str) -> list[object]:
    """The JSON values of a text; `Raw` for what looks like one and cannot be read."""
    try:
        return [msgspec.json.decode(text)]
    except (msgspec.DecodeError, RecursionError):
        pass
    if text.lower() in _BLOCKS:
        return [text]
    found: list[object] = []
    for line in map(str.strip, text.splitlines()):
        if _LIKE_JSON.match(line):
            try:
                found.append(msgspec.json.decode(line.lstrip("\ufeff")))
            except (msgspec.DecodeError, RecursionError):
                found.append(Raw(b""))
    return found


def _answer(value: object) -> Answer:
    if isinstance(value, Raw):
        return Answer(failure="answered with JSON that cannot be read")
    if not isinstance(value, dict):
        return Answer(failure='answered with something else than {"decision": ...}')
    entries = cast("dict[str, object]", value)
    said = {name.lower(): inside for name, inside in entries.items()}
    words = {name: str(said[name] or "").strip() for name in _WORDS if name in said}
    for name in _DECISIONS:
        given = said.get(name)
        known = given is None or (
            isinstance(given, str) and given.strip().lower() in _BLOCKS | _ALLOWS
        )
        if not known:
            shown = one_line(str(given), 80)
            return Answer(failure=f"answered with an unknown {name}, {shown}; say block or allow")
    if said and not words and _ECHO not in said:
        return Answer(failure="answered with JSON that holds no decision")
    return Answer(words)


def matches(matcher: str, tool: str) -> bool:
    """What is no pattern means every tool: a guard is rather asked once too often."""
    pattern = _pattern(matcher)
    return pattern is None or pattern.fullmatch(tool) is not None


@cache
def _pattern(matcher: str) -> re.Pattern[str] | None:
    try:
        return None if matcher in {"", "*"} else re.compile(matcher)
    except re.error:
        return None


def _told(about: About) -> bytes:
    scope = about.scope
    told = {
        "hook_event_name": about.event,
        "tool_name": about.tool,
        "tool_input": about.args,
        "session_id": scope.session,
        "cwd": scope.workspace,
        "extra": {"run": scope.run, "source": scope.source, **about.extra},
    }
    return msgspec.json.encode(told) + b"\n"
