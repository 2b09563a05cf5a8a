"""Which programs the owner has agreed to have run at which event, word for word."""

import logging
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import cast

import msgspec
from anyio.to_thread import run_sync
from msgspec import Raw, Struct

from hermes.config.home import DEFAULT_PROFILE
from hermes.config.sections.execution import ShellHook
from hermes.gateway.failure_messages import with_profile_flag
from hermes.kit.files import read_regular_file, write_atomic
from hermes.kit.text import head_and_tail, one_line
from hermes.ports.approvals import ApprovalRequest, Approvals, Decision
from hermes.ports.events import Emit
from hermes.ports.hooks import TurnHooks
from hermes.ports.sandbox import ProcessSpec, Sandbox
from hermes.schema.errors import ConfigError, SandboxError
from hermes.schema.events import Outcome
from hermes.schema.scope import Scope


class HookConsent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`seal` is what the files that the command names had in them; of old there is none."""

    event: str
    command: str
    approved_at: str = ""
    seal: str = ""


class _ConsentFile(Struct):
    approvals: list[HookConsent] = []


class HookConsents:
    """The list in a home. Whoever can write it decides what runs, so nobody else may."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> Sequence[HookConsent]:
        """Raises `ConfigError` when it cannot be trusted."""
        try:
            found = self._path.stat()
            if found.st_uid not in {os.geteuid(), 0} or found.st_mode & (
                stat.S_IWGRP | stat.S_IWOTH
            ):
                raise ConfigError(
                    f"{self._path} can be written by others than you.",
                    hint=f"chmod 600 {self._path}",
                )
            return msgspec.json.decode(read_regular_file(self._path), type=_ConsentFile).approvals
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(
                f"{self._path} cannot be read: {error}", hint="Move it away and accept them anew."
            ) from error

    def given(self, event: str, command: str) -> bool:
        """For this very command, whose files are as they were."""
        return any(
            (one.event, one.command) == (event, command) and one.seal in {"", hook_seal(command)}
            for one in self.all()
        )

    def give(self, wanted: Iterable[tuple[str, str]], now: datetime) -> list[HookConsent]:
        """Those that are new."""
        new = [
            HookConsent(
                event=event, command=line, approved_at=now.isoformat(), seal=hook_seal(line)
            )
            for event, line in dict.fromkeys(wanted)
            if not self.given(event, line)
        ]
        again = {(one.event, one.command) for one in new}
        if new:
            old = [one for one in self.all() if (one.event, one.command) not in again]
            self._write([*old, *new])
        return new

    def take_back(self, command: str) -> int:
        """Of a command, at whatever event, or of all; how many there were."""
        kept = [one for one in self.all() if command and one.command != command]
        gone = len(self.all()) - len(kept)
        if gone:
            self._write(kept)
        return gone

    def _write(self, approvals: list[HookConsent]) -> None:
        data = msgspec.json.format(msgspec.json.encode(_ConsentFile(approvals)))
        write_atomic(self._path, data + b"\n", mode=0o600)


def hook_argv(command: str) -> list[str]:
    """As it is started, without a shell. Raises `ValueError` for what cannot be."""
    words = [
        str(Path(one).expanduser()) if one[:2] == "~/" else one for one in shlex.split(command)
    ]
    if not words or ("/" in words[0] and not words[0].startswith("/")):
        # Beside the files that the agent works on, somebody else may have put another.
        raise ValueError("a program is named by its whole path, or found in PATH")
    return words


def hook_seal(command: str) -> str:
    """What the files that are named in full have in them."""
    digest = sha256()
    try:
        for word in hook_argv(command):
            if word.startswith("/") and Path(word).is_file():
                digest.update(sha256(Path(word).read_bytes()).digest())
    except (OSError, ValueError, RuntimeError):
        return "unreadable"
    return digest.hexdigest()


log = logging.getLogger(__name__)

HOOK_EVENTS = (
    "pre_tool_call",
    "post_tool_call",
    "pre_llm_call",
    "on_session_start",
    "on_session_end",
)
BEFORE_TOOL, AFTER_TOOL, BEFORE_MODEL, SESSION_STARTED, SESSION_ENDED = HOOK_EVENTS
MAX_OUTPUT = 64_000
"""Bytes of what one prints that are read, and characters of a result that it is told."""
MAX_CONTEXT = 10_000
"""Characters that may be added to a question."""
ACCEPT_COMMAND = "hermes hooks accept"
_ANSWER_FIELDS = ("decision", "reason", "action", "message", "context")
_DECISIONS = ("decision", "action")
_BLOCKS = frozenset({"block", "deny"})
_ALLOWS = frozenset({"", "allow", "approve", "continue"})
_ECHO = "hook_event_name"
"""A key of what a program reads: one that prints its input again, as `tee` does, only logs."""
_LIKE_JSON = re.compile(
    r"""\ufeff*(?:[{"]|\[\s*[\[{"\]])|.*["'](?:decision|action)["']\s*:""", re.IGNORECASE
)


class HookCall(Struct, frozen=True, kw_only=True):
    """What a program is told of."""

    event: str
    scope: Scope
    tool: str | None = None
    args: Raw = Raw(b"null")
    extra: Mapping[str, object] = {}


class HookAnswer(Struct, frozen=True):
    """What a program printed; `failure` says why there is no answer."""

    words: Mapping[str, str] = {}
    failure: str = ""

    @property
    def blocks(self) -> bool:
        return not _BLOCKS.isdisjoint(self.words.get(name, "").lower() for name in _DECISIONS)

    @property
    def reason(self) -> str:
        return self.words.get("reason") or self.words.get("message") or ""


class HookDeps(Struct, frozen=True, kw_only=True):
    """`accepts`: the owner wants whatever the settings name to be run unasked."""

    sandbox: Sandbox
    env: Callable[[Scope], Mapping[str, str]]
    redact: Callable[[str], str]
    home: Path
    consents: HookConsents
    accepts: bool = False
    profile: str = DEFAULT_PROFILE


class ShellHooks:
    """Implements `hermes.ports.hooks.Watch`."""

    def __init__(self, hooks: Mapping[str, Sequence[ShellHook]], means: HookDeps) -> None:
        self._hooks = hooks
        self._means = means
        self._complained: set[str] = set()

    async def before(self, scope: Scope, tool: str, args: Raw) -> str:
        about = HookCall(event=BEFORE_TOOL, scope=scope, tool=tool, args=args)
        for hook in self._for(about):
            name = one_line(hook.command, 120)
            if why := await run_sync(self.unaccepted, BEFORE_TOOL, hook):
                return f"Not run: the hook `{name}` guards this call, and {why}."
            answer = await self.ask(hook, about)
            if answer.failure:
                return f"Not run: the hook `{name}`, which guards this call, {answer.failure}."
            if answer.blocks:
                said = head_and_tail(self._means.redact(answer.reason), MAX_CONTEXT)
                return f"Not run: {said or f'the hook `{name}` forbids it.'}"
        return ""

    async def after(self, scope: Scope, tool: str, args: Raw, result: str, *, failed: bool) -> None:
        extra = {"result": head_and_tail(result, MAX_OUTPUT), "failed": failed}
        await self._tell(HookCall(event=AFTER_TOOL, scope=scope, tool=tool, args=args, extra=extra))

    async def asked(self, scope: Scope, words: str, *, new: bool) -> str:
        if new:
            await self._tell(HookCall(event=SESSION_STARTED, scope=scope))
        extra = {"user_message": words, "is_first_turn": new}
        told = await self._tell(HookCall(event=BEFORE_MODEL, scope=scope, extra=extra))
        texts = (self._means.redact(one.words.get("context", "")).strip() for one in told)
        return head_and_tail("\n\n".join(filter(None, texts)), MAX_CONTEXT)

    async def ended(self, scope: Scope, outcome: Outcome) -> None:
        await self._tell(
            HookCall(event=SESSION_ENDED, scope=scope, extra={"outcome": outcome.value})
        )

    def warnings(self) -> list[str]:
        """What is not done, or not allowed, as things stand."""
        told = [
            f"hooks.{event}: there is no such event here, so nothing is run for it"
            for event in self._hooks
            if event not in HOOK_EVENTS
        ]
        told += [
            f"the hook `{one_line(hook.command, 120)}` of {event} is not run: {why}"
            for event, hook in configured_hooks(self._hooks)
            if (why := self.unaccepted(event, hook))
        ]
        return told

    async def ask(self, hook: ShellHook, about: HookCall) -> HookAnswer:
        """Have it run; whether it may be, is the caller's business.

        Not where the agent writes: programs load what lies in the folder they start in.
        """
        scope = about.scope
        try:
            done = await self._means.sandbox.run(
                ProcessSpec(
                    argv=tuple(hook_argv(hook.command)),
                    cwd=str(self._means.home),
                    env=self._means.env(scope),
                    timeout=hook.timeout,
                    stdin=_hook_input(about),
                    keep=MAX_OUTPUT,
                )
            )
        except (SandboxError, ValueError) as error:
            return HookAnswer(failure=f"could not be run: {one_line(str(error), 300)}")
        if done.timed_out:
            return HookAnswer(failure=f"did not answer within {hook.timeout:g} s")
        answer = parse_answer(done.output, decides=about.event == BEFORE_TOOL)
        if done.exit_code and not answer.blocks:
            said = one_line(self._means.redact(done.output.decode("utf-8", "replace")), 300)
            return HookAnswer(failure=f"ended with code {done.exit_code}: {said}")
        return answer

    async def _tell(self, about: HookCall) -> list[HookAnswer]:
        """Nothing depends on it: who cannot be told is only logged, and that once."""
        answers: list[HookAnswer] = []
        for hook in self._for(about):
            why = await run_sync(self.unaccepted, about.event, hook)
            answer = (
                HookAnswer(failure=f"is not run: {why}") if why else await self.ask(hook, about)
            )
            if answer.failure and hook.command not in self._complained:
                self._complained.add(hook.command)
                log.warning("the hook %s %s", hook.command, answer.failure)
            answers.append(answer)
        return answers

    def _for(self, about: HookCall) -> list[ShellHook]:
        hooks = self._hooks.get(about.event, ())
        return [one for one in hooks if about.tool is None or matches_tool(one.matcher, about.tool)]

    def unaccepted(self, event: str, hook: ShellHook) -> str:
        """Why it may not be run; empty when it may."""
        try:
            if self._means.accepts or self._means.consents.given(event, hook.command):
                return ""
        except ConfigError as error:
            return error.sentence
        accept = with_profile_flag(ACCEPT_COMMAND, self._means.profile)
        return f"its owner has not accepted it as it is now. They can: {accept}"


class HookedApprovals:
    """For a runtime with hands of its own: what it asks leave for is a call like any other."""

    def __init__(self, counsel: Approvals, watch: TurnHooks) -> None:
        self._watch = watch
        self._counsel = counsel
        self.inquire = counsel.inquire

    async def rule(self, scope: Scope, wish: ApprovalRequest, tell: Emit) -> Decision:
        named = "command" if wish.shell else "path" if wish.tool == "patch" else "action"
        args = Raw(msgspec.json.encode({named: wish.action, "workdir": wish.folder}))
        if why := await self._watch.before(scope, wish.tool, args):
            return Decision(allowed=False, why=why)
        return await self._counsel.rule(scope, wish, tell)


def configured_hooks(hooks: Mapping[str, Sequence[ShellHook]]) -> Iterator[tuple[str, ShellHook]]:
    """All that can be run, with its event."""
    return ((event, hook) for event in HOOK_EVENTS for hook in hooks.get(event, ()))


def parse_answer(output: bytes, *, decides: bool = True) -> HookAnswer:
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
        failures = [HookAnswer(failure="printed something that is not text in UTF-8")]
    if failures and decides:
        return failures[0]
    understood = [answer for answer in answers if not answer.failure]
    return (understood or failures or [HookAnswer()])[0]


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


def _answer(value: object) -> HookAnswer:
    if isinstance(value, Raw):
        return HookAnswer(failure="answered with JSON that cannot be read")
    if not isinstance(value, dict):
        return HookAnswer(failure='answered with something else than {"decision": ...}')
    entries = cast("dict[str, object]", value)
    said = {name.lower(): inside for name, inside in entries.items()}
    words = {name: str(said[name] or "").strip() for name in _ANSWER_FIELDS if name in said}
    for name in _DECISIONS:
        given = said.get(name)
        known = given is None or (
            isinstance(given, str) and given.strip().lower() in _BLOCKS | _ALLOWS
        )
        if not known:
            shown = one_line(str(given), 80)
            return HookAnswer(
                failure=f"answered with an unknown {name}, {shown}; say block or allow"
            )
    if said and not words and _ECHO not in said:
        return HookAnswer(failure="answered with JSON that holds no decision")
    return HookAnswer(words)


def matches_tool(matcher: str, tool: str) -> bool:
    """What is no pattern means every tool: a guard is rather asked once too often."""
    pattern = _pattern(matcher)
    return pattern is None or pattern.fullmatch(tool) is not None


@cache
def _pattern(matcher: str) -> re.Pattern[str] | None:
    try:
        return None if matcher in {"", "*"} else re.compile(matcher)
    except re.error:
        return None


def _hook_input(about: HookCall) -> bytes:
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
