"""`hermes hooks`: programs that run on agent events and can block tool calls."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
from msgspec import Raw, Struct

from hermes.cli.context import CliContext
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.config.sections.execution import ShellHook
from hermes.config.variables import secret_values, withheld_names
from hermes.hooks.shell import (
    ACCEPT_COMMAND,
    HOOK_EVENTS,
    HookCall,
    HookConsents,
    HookDeps,
    ShellHooks,
    configured_hooks,
    matches_tool,
    why_not_runnable,
)
from hermes.kit.clock import SystemClock
from hermes.kit.redact import Redactor
from hermes.kit.terminal_text import single_line
from hermes.sandbox.child_env import EnvRules, child_env
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import UsageError
from hermes.schema.scope import Scope

_LIST_HINT = "List the hooks: hermes hooks list"
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


def run(args: Namespace, context: CliContext) -> int:
    home, config = context.home(), context.load_config().config
    action = _HooksAction(args, context, home, config, HookConsents(home.shell_hooks))
    actions = {"list": _list, "accept": _accept, "test": _test, "revoke": _revoke}
    return actions.get(args.action, _doctor)(action)


def accept_hooks(context: CliContext) -> None:
    """Accept the configured hooks like `hermes hooks accept`, without output."""
    hooks = configured_hooks(context.load_config().config.hooks)
    wanted = [(event, hook.command) for event, hook in hooks]
    HookConsents(context.home().shell_hooks).grant(wanted, SystemClock().now())


def _list(action: _HooksAction) -> int:
    for event, hook in action.hooks:
        accepted = _is_accepted(action.config, action.consents, event, hook)
        only = f" (for {hook.matcher})" if hook.matcher else ""
        action.say(f"{event}{only}, {'' if accepted else 'not '}accepted: {hook.command}")
    if not action.hooks:
        action.say(f"No hooks configured. Events: {', '.join(HOOK_EVENTS)}")
    return 0


def _accept(action: _HooksAction) -> int:
    wanted = [(event, hook.command) for event, hook in action.hooks]
    new = action.consents.grant(wanted, SystemClock().now())
    for consent in new:
        action.say(f"accepted for {consent.event}: {consent.command}")
    if not new:
        action.say("Nothing new to accept.")
    for event, hook in action.hooks:
        if why := why_not_runnable(hook, action.context.env):
            action.say(f"warning: {event}: {why}")
    return 0


def _revoke(action: _HooksAction) -> int:
    if bool(action.args.command) == action.args.all:
        raise UsageError("Name a command, or use --all.", hint=_LIST_HINT)
    revoked = action.consents.revoke("" if action.args.all else action.args.command)
    if not revoked:
        raise UsageError("This command is not accepted.", hint=_LIST_HINT)
    action.say(f"Revoked: {action.args.command or 'all hooks'}")
    return 0


def _doctor(action: _HooksAction) -> int:
    problems = list(hook_problems(action.config, action.context.env, action.consents))
    for line in problems:
        action.say(action.context.with_profile(line))
    if not problems:
        action.say("All hooks can run." if action.hooks else "No hooks configured.")
    return 1 if problems else 0


def hook_problems(config: Config, env: Mapping[str, str], consents: HookConsents) -> Iterator[str]:
    """Reasons why configured hooks would not run."""
    for event in config.hooks:
        if event not in HOOK_EVENTS:
            yield f"hooks.{event}: unknown event. Events: {', '.join(HOOK_EVENTS)}"
    for event, hook in configured_hooks(config.hooks):
        if why := why_not_runnable(hook, env):
            yield f"{event}: {why}"
        if not _is_accepted(config, consents, event, hook):
            yield f"{event}: not accepted: {hook.command}. To accept it: {ACCEPT_COMMAND}"
    if config.hooks.get(HOOK_EVENTS[0]) and "codex" in config.main_model.openai_runtime:
        yield (
            "codex runs commands inside its own sandbox without asking: "
            f"{HOOK_EVENTS[0]} hooks see only commands that leave it, and Hermes' own tools"
        )


def _is_accepted(config: Config, consents: HookConsents, event: str, hook: ShellHook) -> bool:
    return config.hooks_auto_accept or consents.is_granted(event, hook.command)


def _test(action: _HooksAction) -> int:
    event = action.args.event
    if event not in HOOK_EVENTS:
        raise UsageError(f"Unknown event: {event!r}.", hint=f"Events: {', '.join(HOOK_EVENTS)}")
    tool = action.args.for_tool if event in HOOK_EVENTS[:2] else None
    hooks = [
        hook
        for hook in action.config.hooks.get(event, ())
        if not tool or matches_tool(hook.matcher, tool)
    ]
    if not hooks:
        raise UsageError("No hook is configured for this event.", hint=_LIST_HINT)
    return anyio.run(_run_hooks, action, event, tool, hooks)


async def _run_hooks(
    action: _HooksAction, event: str, tool: str | None, hooks: list[ShellHook]
) -> int:
    env, failed = action.context.profile_env(), 0
    rules = EnvRules(process=env, withheld=withheld_names(env), home=str(action.home.path))
    scope = Scope(action.home.profile, "test", "test", str(Path.cwd()), source="cli")
    call = HookCall(event=event, scope=scope, tool=tool, args=_SAMPLE if tool else Raw(b"null"))
    with Spawner() as spawner:
        deps = HookDeps(
            sandbox=LocalSandbox(spawner),
            env=lambda scope: child_env(rules, scope),
            redact=Redactor(secret_values(env)).redact,
            home=action.home.path,
            consents=action.consents,
        )
        shell_hooks = ShellHooks(action.config.hooks, deps)
        for hook in hooks:
            answer = await shell_hooks.run(hook, call)
            details = ", ".join(f"{name}: {text}" for name, text in answer.fields.items())
            verdict = answer.failure or ("blocks" if answer.blocks else "allows")
            action.say(f"{hook.command}: {verdict}" + (f" ({details})" if details else ""))
            failed += bool(answer.failure)
    return 1 if failed else 0
