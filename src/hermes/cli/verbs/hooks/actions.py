"""What `hermes hooks` does."""

import shlex
import shutil
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
from msgspec import Raw, Struct

from hermes.app.shell_hooks import (
    ACCEPT_COMMAND,
    HOOK_EVENTS,
    HookCall,
    HookConsents,
    HookDeps,
    ShellHooks,
    configured_hooks,
    hook_argv,
    matches_tool,
)
from hermes.cli.context import CliContext
from hermes.cli.profile_hints import with_profile_flag
from hermes.config.dotenv import profile_env
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.config.schema import Config
from hermes.config.sections.execution import ShellHook
from hermes.config.variables import secret_values, withheld_names
from hermes.kit.clock import SystemClock
from hermes.kit.redact import Redactor
from hermes.kit.terminal_text import single_line
from hermes.sandbox.child_env import EnvRules, child_env
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import UsageError
from hermes.schema.scope import Scope

_SAMPLE = Raw(b'{"command": "echo hello"}')


class _HooksAction(Struct, frozen=True):
    args: Namespace
    context: CliContext
    home: Home
    config: Config
    consents: HookConsents

    @property
    def hooks(self) -> list[tuple[str, ShellHook]]:
        return list(configured_hooks(self.config.hooks))

    def say(self, text: str) -> None:
        self.context.stdout.write(single_line(text) + "\n")

    def accepted(self, event: str, hook: ShellHook) -> bool:
        return _is_accepted(self.config, self.consents, event, hook)


def perform(args: Namespace, context: CliContext) -> int:
    home = context.home()
    config = load_config(home, profile_env(home.dotenv, context.env)).config
    desk = _HooksAction(args, context, home, config, HookConsents(home.shell_hooks))
    actions = {
        "list": _list,
        "accept": _accept,
        "test": _test,
        "revoke": _revoke,
        "doctor": _doctor,
    }
    return actions[args.action](desk)


def accept_hooks(context: CliContext) -> None:
    """As `hermes hooks accept`, without a word."""
    home = context.home()
    config = load_config(home, profile_env(home.dotenv, context.env)).config
    wanted = [(event, hook.command) for event, hook in configured_hooks(config.hooks)]
    HookConsents(home.shell_hooks).give(wanted, SystemClock().now())


def _list(desk: _HooksAction) -> int:
    for event, hook in desk.hooks:
        mark = "accepted" if desk.accepted(event, hook) else "not accepted"
        only = f" (for {hook.matcher})" if hook.matcher else ""
        desk.say(f"{event}{only}, {mark}: {hook.command}")
    if not desk.hooks:
        desk.say(f"The settings name no hooks. Events: {', '.join(HOOK_EVENTS)}")
    return 0


def _accept(desk: _HooksAction) -> int:
    wanted = [(event, hook.command) for event, hook in desk.hooks]
    new = desk.consents.give(wanted, SystemClock().now())
    for one in new:
        desk.say(f"accepted for {one.event}: {one.command}")
    if not new:
        desk.say("There is nothing new to accept.")
    for event, hook in desk.hooks:
        if why := _why_not_runnable(hook, desk.context.env):
            desk.say(f"warning: {event}: {why}")
    return 0


def _revoke(desk: _HooksAction) -> int:
    if bool(desk.args.command) == desk.args.all:
        raise UsageError("Name a command, or say --all.", hint="`hermes hooks list` shows them.")
    gone = desk.consents.take_back("" if desk.args.all else desk.args.command)
    if not gone:
        raise UsageError("That was not accepted.", hint="`hermes hooks list` shows what is.")
    desk.say(f"No longer accepted: {desk.args.command or 'all of them'}")
    return 0


def _doctor(desk: _HooksAction) -> int:
    troubles = list(hook_problems(desk.config, desk.context.env, desk.consents))
    for line in troubles:
        desk.say(with_profile_flag(line, desk.context.profile))
    if not troubles:
        desk.say("The hooks can be run." if desk.hooks else "The settings name no hooks.")
    return 1 if troubles else 0


def hook_problems(config: Config, env: Mapping[str, str], consents: HookConsents) -> Iterator[str]:
    """Why the hooks of the settings would not do their work."""
    for event in config.hooks:
        if event not in HOOK_EVENTS:
            yield f"hooks.{event}: there is no such event here. Events: {', '.join(HOOK_EVENTS)}"
    for event, hook in configured_hooks(config.hooks):
        if why := _why_not_runnable(hook, env):
            yield f"{event}: {why}"
        if not _is_accepted(config, consents, event, hook):
            yield f"{event}: not accepted as it is now: {hook.command}. To do so: {ACCEPT_COMMAND}"
    if config.hooks.get(HOOK_EVENTS[0]) and "codex" in config.main_model.openai_runtime:
        yield (
            "codex runs what stays inside of its own sandbox without asking anybody: a hook of "
            f"{HOOK_EVENTS[0]} is asked about what goes beyond it, and about our own tools"
        )


def _is_accepted(config: Config, consents: HookConsents, event: str, hook: ShellHook) -> bool:
    return config.hooks_auto_accept or consents.given(event, hook.command)


def _why_not_runnable(hook: ShellHook, env: Mapping[str, str]) -> str:
    """Why it cannot be run; empty when it can."""
    try:
        program = hook_argv(hook.command)[0]
    except ValueError as error:
        return f"{hook.command!r} cannot be run: {error}"
    if shutil.which(program, path=env.get("PATH")) is not None:
        return ""
    if program.startswith("/") and Path(program).is_file():
        return f"{program} is not executable: chmod +x {shlex.quote(program)}"
    return f"{program} cannot be found or run"


def _test(desk: _HooksAction) -> int:
    event = desk.args.event
    if event not in HOOK_EVENTS:
        raise UsageError(f"There is no event {event!r}.", hint=f"Events: {', '.join(HOOK_EVENTS)}")
    tool = desk.args.for_tool if event in HOOK_EVENTS[:2] else None
    hooks = [
        one
        for one in desk.config.hooks.get(event, ())
        if not tool or matches_tool(one.matcher, tool)
    ]
    if not hooks:
        raise UsageError("The settings name no hook for that.", hint="`hermes hooks list`")
    return anyio.run(_run_hooks, desk, event, tool, hooks)


async def _run_hooks(
    desk: _HooksAction, event: str, tool: str | None, hooks: list[ShellHook]
) -> int:
    env, failed = profile_env(desk.home.dotenv, desk.context.env), 0
    rules = EnvRules(process=env, withheld=withheld_names(env), home=str(desk.home.path))
    scope = Scope(desk.home.profile, "test", "test", str(Path.cwd()), source="cli")
    about = HookCall(event=event, scope=scope, tool=tool, args=_SAMPLE if tool else Raw(b"null"))
    with Spawner() as door:
        means = HookDeps(
            sandbox=LocalSandbox(door),
            env=lambda scope: child_env(rules, scope),
            redact=Redactor(secret_values(env)).redact,
            home=desk.home.path,
            consents=desk.consents,
        )
        watch = ShellHooks(desk.config.hooks, means)
        for hook in hooks:
            answer = await watch.ask(hook, about)
            said = ", ".join(f"{name}: {text}" for name, text in answer.words.items())
            verdict = answer.failure or ("blocks" if answer.blocks else "lets it be done")
            desk.say(f"{hook.command}: {verdict}" + (f" ({said})" if said else ""))
            failed += bool(answer.failure)
    return 1 if failed else 0
