"""Run the shell hooks of the settings, each only with the owner's consent."""

import logging
import os
import re
import shlex
import shutil
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
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.text import head_and_tail, one_line
from hermes.ports.sandbox import ProcessSpec, Sandbox
from hermes.schema.errors import ConfigError, SandboxError
from hermes.schema.events import Outcome
from hermes.schema.scope import Scope

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
"""Bytes of output that are read, and characters of a result that is passed on."""
MAX_CONTEXT = 10_000
"""Maximum characters of context that a hook may add."""
ACCEPT_COMMAND = "hermes hooks accept"
_ANSWER_FIELDS = ("decision", "reason", "action", "message", "context")
_DECISIONS = ("decision", "action")
_BLOCKS = frozenset({"block", "deny"})
_ALLOWS = frozenset({"", "allow", "approve", "continue"})
_ECHO = "hook_event_name"
"""An input field: a hook that prints its input, as `tee` does, makes no decision."""
_LIKE_JSON = re.compile(
    r"""\ufeff*(?:[{"]|\[\s*[\[{"\]])|.*["'](?:decision|action)["']\s*:""", re.IGNORECASE
)


class HookConsent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Consent to run a command at an event."""

    event: str
    command: str
    approved_at: str = ""
    seal: str = ""  # hash of the files named in the command; older entries have none


class _ConsentFile(Struct):
    approvals: list[HookConsent] = []


class HookConsents:
    """The consent file of a home. It decides what runs, so no one else may be able to write it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> Sequence[HookConsent]:
        """Raises `ConfigError` if the file is unreadable or writable by others."""
        try:
            found = self._path.stat()
            others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if found.st_uid not in {os.geteuid(), 0} or others_write:
                raise ConfigError(
                    f"{self._path} is writable by others.",
                    hint=f"Make it private: chmod 600 {self._path}",
                )
            return msgspec.json.decode(read_regular_file(self._path), type=_ConsentFile).approvals
        except FileNotFoundError:
            return ()
        except (OSError, *JSON_ERRORS) as error:
            raise ConfigError(
                f"Cannot read {self._path}: {error}",
                hint="Rename it and accept the hooks again.",
            ) from error

    def is_granted(self, event: str, command: str) -> bool:
        """Whether exactly this command was accepted, and its files are unchanged."""
        return any(
            (consent.event, consent.command) == (event, command)
            and consent.seal in {"", hook_seal(command)}
            for consent in self.all()
        )

    def grant(self, hooks: Iterable[tuple[str, str]], now: datetime) -> list[HookConsent]:
        """Accept hooks; returns those not accepted before."""
        new = [
            HookConsent(
                event=event, command=line, approved_at=now.isoformat(), seal=hook_seal(line)
            )
            for event, line in dict.fromkeys(hooks)
            if not self.is_granted(event, line)
        ]
        replaced = {(consent.event, consent.command) for consent in new}
        if new:
            old = [
                consent
                for consent in self.all()
                if (consent.event, consent.command) not in replaced
            ]
            self._write([*old, *new])
        return new

    def revoke(self, command: str) -> int:
        """Revoke a command at every event, or all if empty; returns how many."""
        consents = self.all()
        remaining = [consent for consent in consents if command and consent.command != command]
        if len(remaining) < len(consents):
            self._write(remaining)
        return len(consents) - len(remaining)

    def _write(self, approvals: list[HookConsent]) -> None:
        data = msgspec.json.format(msgspec.json.encode(_ConsentFile(approvals)))
        write_atomic(self._path, data + b"\n", mode=0o600)


def hook_argv(command: str) -> list[str]:
    """Split a command that runs without a shell. Raises `ValueError` if it is invalid."""
    words = [
        str(Path(word).expanduser()) if word[:2] == "~/" else word for word in shlex.split(command)
    ]
    if not words or ("/" in words[0] and not words[0].startswith("/")):
        # A relative path could name a file that someone put into the workspace.
        raise ValueError("a program must have an absolute path or be found in PATH")
    return words


def why_not_runnable(hook: ShellHook, env: Mapping[str, str]) -> str:
    """Why the hook cannot run; empty if it can."""
    try:
        program = hook_argv(hook.command)[0]
    except ValueError as error:
        return f"{hook.command!r} cannot be run: {error}"
    if shutil.which(program, path=env.get("PATH")) is not None:
        return ""
    if program.startswith("/") and Path(program).is_file():
        return f"{program} is not executable: chmod +x {shlex.quote(program)}"
    return f"{program} was not found"


def hook_seal(command: str) -> str:
    """A hash of the files that the command names by absolute path."""
    digest = sha256()
    try:
        for word in hook_argv(command):
            if word.startswith("/") and Path(word).is_file():
                digest.update(sha256(Path(word).read_bytes()).digest())
    except (OSError, ValueError, RuntimeError):
        return "unreadable"
    return digest.hexdigest()


class HookCall(Struct, frozen=True, kw_only=True):
    """The input of a hook."""

    event: str
    scope: Scope
    tool: str | None = None
    args: Raw = Raw(b"null")
    extra: Mapping[str, object] = {}


class HookAnswer(Struct, frozen=True):
    """The output of a hook; `failure` says why there is no answer."""

    fields: Mapping[str, str] = {}
    failure: str = ""

    @property
    def blocks(self) -> bool:
        return not _BLOCKS.isdisjoint(self.fields.get(name, "").lower() for name in _DECISIONS)

    @property
    def reason(self) -> str:
        return self.fields.get("reason") or self.fields.get("message") or ""


class HookDeps(Struct, frozen=True, kw_only=True):
    """The dependencies of shell hooks."""

    sandbox: Sandbox
    env: Callable[[Scope], Mapping[str, str]]
    redact: Callable[[str], str]
    home: Path
    consents: HookConsents
    accept_all: bool = False  # run every configured hook without consent
    profile: str = DEFAULT_PROFILE


class ShellHooks:
    """Implements `hermes.ports.turn.TurnHooks`."""

    def __init__(self, hooks: Mapping[str, Sequence[ShellHook]], deps: HookDeps) -> None:
        self._hooks = hooks
        self._deps = deps
        self._logged: set[str] = set()

    async def before_tool(self, scope: Scope, tool: str, args: Raw) -> str:
        hook_call = HookCall(event=BEFORE_TOOL, scope=scope, tool=tool, args=args)
        for hook in self._hooks_for(hook_call):
            name = one_line(hook.command, 120)
            if why := await run_sync(self.not_accepted_reason, BEFORE_TOOL, hook):
                return f"Not run: the hook `{name}` checks this call, and {why}."
            answer = await self.run(hook, hook_call)
            if answer.failure:
                return f"Not run: the hook `{name}`, which checks this call, {answer.failure}."
            if answer.blocks:
                reason = head_and_tail(self._deps.redact(answer.reason), MAX_CONTEXT)
                return f"Not run: {reason or f'the hook `{name}` forbids it.'}"
        return ""

    async def after_tool(
        self, scope: Scope, tool: str, args: Raw, result: str, *, failed: bool
    ) -> None:
        extra = {"result": head_and_tail(result, MAX_OUTPUT), "failed": failed}
        await self._notify(
            HookCall(event=AFTER_TOOL, scope=scope, tool=tool, args=args, extra=extra)
        )

    async def turn_started(self, scope: Scope, text: str, *, new: bool) -> str:
        if new:
            await self._notify(HookCall(event=SESSION_STARTED, scope=scope))
        extra = {"user_message": text, "is_first_turn": new}
        answers = await self._notify(HookCall(event=BEFORE_MODEL, scope=scope, extra=extra))
        texts = (self._deps.redact(answer.fields.get("context", "")).strip() for answer in answers)
        return head_and_tail("\n\n".join(filter(None, texts)), MAX_CONTEXT)

    async def turn_ended(self, scope: Scope, outcome: Outcome) -> None:
        await self._notify(
            HookCall(event=SESSION_ENDED, scope=scope, extra={"outcome": outcome.value})
        )

    def warnings(self) -> list[str]:
        """Configured hooks that do not run."""
        return [
            f"the hook `{one_line(hook.command, 120)}` of {event} does not run: {why}"
            for event, hook in configured_hooks(self._hooks)
            if (why := self.not_accepted_reason(event, hook))
        ]

    async def run(self, hook: ShellHook, hook_call: HookCall) -> HookAnswer:
        """Run a hook; the caller has checked that it may run.

        Not in the workspace, since programs may load files from the folder they start in.
        """
        scope = hook_call.scope
        try:
            result = await self._deps.sandbox.run(
                ProcessSpec(
                    argv=tuple(hook_argv(hook.command)),
                    cwd=str(self._deps.home),
                    env=self._deps.env(scope),
                    timeout=hook.timeout,
                    stdin=_hook_input(hook_call),
                    keep=MAX_OUTPUT,
                )
            )
        except (SandboxError, ValueError) as error:
            return HookAnswer(failure=f"could not be run: {one_line(str(error), 300)}")
        if result.timed_out:
            return HookAnswer(failure=f"did not answer within {hook.timeout:g} s")
        answer = parse_answer(result.output, decides=hook_call.event == BEFORE_TOOL)
        if result.exit_code and not answer.blocks:
            output = one_line(self._deps.redact(result.output.decode("utf-8", "replace")), 300)
            return HookAnswer(failure=f"ended with code {result.exit_code}: {output}")
        return answer

    async def _notify(self, hook_call: HookCall) -> list[HookAnswer]:
        """Run hooks that do not decide; a failing one is logged once."""
        answers: list[HookAnswer] = []
        for hook in self._hooks_for(hook_call):
            if why := await run_sync(self.not_accepted_reason, hook_call.event, hook):
                answer = HookAnswer(failure=f"does not run: {why}")
            else:
                answer = await self.run(hook, hook_call)
            if answer.failure and hook.command not in self._logged:
                self._logged.add(hook.command)
                log.warning("the hook %s %s", hook.command, answer.failure)
            answers.append(answer)
        return answers

    def _hooks_for(self, call: HookCall) -> list[ShellHook]:
        hooks = self._hooks.get(call.event, ())
        return [
            hook for hook in hooks if call.tool is None or matches_tool(hook.matcher, call.tool)
        ]

    def not_accepted_reason(self, event: str, hook: ShellHook) -> str:
        """Why it may not run; empty if it may."""
        try:
            if self._deps.accept_all or self._deps.consents.is_granted(event, hook.command):
                return ""
        except ConfigError as error:
            return error.sentence
        accept = with_profile_flag(ACCEPT_COMMAND, self._deps.profile)
        return f"it has not been accepted in its current form; the owner can accept it: {accept}"


def configured_hooks(hooks: Mapping[str, Sequence[ShellHook]]) -> Iterator[tuple[str, ShellHook]]:
    """All hooks of known events."""
    return ((event, hook) for event in HOOK_EVENTS for hook in hooks.get(event, ()))


def parse_answer(output: bytes, *, decides: bool = True) -> HookAnswer:
    """Parse JSON output, complete or in single lines among other text.

    For a hook that `decides`, anything that may be meant as a decision but is not a known one is a
    failure, so that the call is blocked. Plain text decides nothing.
    """
    text = output.decode("utf-8-sig", "replace").strip()
    answers = [_answer(value) for value in _printed(text)]
    if blocking := next((answer for answer in answers if answer.blocks), None):
        return blocking
    failures = [answer for answer in answers if answer.failure]
    if not answers and ("\ufffd" in text or "\0" in text):
        failures = [HookAnswer(failure="printed output that is not UTF-8 text")]
    if failures and decides:
        return failures[0]
    valid = [answer for answer in answers if not answer.failure]
    return (valid or failures or [HookAnswer()])[0]


def _printed(text: str) -> list[object]:
    """The JSON values of a text; `Raw` for what looks like JSON but is invalid."""
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
        return HookAnswer(failure="answered with invalid JSON")
    if not isinstance(value, dict):
        return HookAnswer(failure='answered with something other than {"decision": ...}')
    entries = cast("dict[str, object]", value)
    fields = {name.lower(): entry for name, entry in entries.items()}
    answer = {name: str(fields[name] or "").strip() for name in _ANSWER_FIELDS if name in fields}
    for name in _DECISIONS:
        decision = fields.get(name)
        word = decision.strip().lower() if isinstance(decision, str) else None
        if decision is not None and word not in _BLOCKS | _ALLOWS:
            shown = one_line(str(decision), 80)
            return HookAnswer(
                failure=f"answered with an unknown {name}, {shown}; use block or allow"
            )
    if fields and not answer and _ECHO not in fields:
        return HookAnswer(failure="answered with JSON that contains no decision")
    return HookAnswer(answer)


def matches_tool(matcher: str, tool: str) -> bool:
    """Whether the pattern matches; an invalid one matches all, so that no check is skipped."""
    pattern = _pattern(matcher)
    return pattern is None or pattern.fullmatch(tool) is not None


@cache
def _pattern(matcher: str) -> re.Pattern[str] | None:
    try:
        return None if matcher in {"", "*"} else re.compile(matcher)
    except re.error:
        return None


def _hook_input(hook_call: HookCall) -> bytes:
    scope = hook_call.scope
    fields = {
        "hook_event_name": hook_call.event,
        "tool_name": hook_call.tool,
        "tool_input": hook_call.args,
        "session_id": scope.session,
        "cwd": scope.workspace,
        "extra": {"run": scope.run, "source": scope.source, **hook_call.extra},
    }
    return msgspec.json.encode(fields) + b"\n"
