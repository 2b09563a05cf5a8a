"""`hermes config`: show, change and check settings."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.context import CliContext
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.schema.errors import ConfigError, HermesError, UsageError

if TYPE_CHECKING:
    from hermes.config.editor import EditResult
    from hermes.config.problems import Problem
    from hermes.config.values import KeyPath


def run(args: argparse.Namespace, context: CliContext) -> int:
    actions: Mapping[str, Callable[[], int]] = {
        "show": lambda: _show(context, args.section, args.all, args.json),
        "list": lambda: _list(context, args.text, args.json),
        "get": lambda: _get(context, args.key, args.json),
        "set": lambda: _set(context, args.key, args.value, args.force),
        "unset": lambda: _unset(context, args.key),
        "path": lambda: _say(context, context.home().config),
        "env-path": lambda: _say(context, context.home().dotenv),
        "edit": lambda: _edit(context),
        "check": lambda: _check(context, args.verbose),
    }
    return actions[args.action]()


def _show(context: CliContext, section: str | None, everything: bool, as_json: bool) -> int:
    from hermes.config.loader import as_yaml, effective_value, printable_settings

    whole = everything or section is not None
    shown = printable_settings(context.home(), context.profile_env(), everything=whole)
    if section is not None:
        shown = {section: _found(effective_value(shown, section), section)}
    if as_json:
        return _say(context, _as_json(shown))
    if section is None and not everything:
        what = "Other settings" if shown else "All settings"
        _say(context, f"# {what} have their defaults. To see them: hermes config show --all")
    return _say(context, as_yaml(shown)) if shown else 0


def _list(context: CliContext, text: str, as_json: bool) -> int:
    import msgspec

    from hermes.cli.output import Printer
    from hermes.config.setting_catalog import settings

    wanted = text.casefold()
    found = [one for one in settings() if wanted in f"{one.key} {one.description}".casefold()]
    if not found:
        raise HermesError(f"No setting contains {text!r}.", hint="All of them: hermes config list")
    if as_json:
        return _say(context, _as_json(msgspec.to_builtins(found)))
    printer = Printer(context)
    for one in found:
        printer.line(printer.style(one.key, "bold"))
        words = f" One of: {', '.join(one.words)}." if one.words else ""
        printer.line(printer.style.wrap_text(f"  {one.description}{words}", indent="  "))
    return 0


def _get(context: CliContext, key: str, as_json: bool) -> int:
    from hermes.config.loader import as_yaml, effective_value, load_effective

    env = context.profile_env()
    value: object = env.get(key)
    if value is None or not key.isupper():
        value = _found(effective_value(load_effective(context.home(), env), key), key)
    if as_json:
        return _say(context, _as_json(value))
    return _say(context, value if isinstance(value, str) else as_yaml(value))


def _found(result: tuple[bool, object], key: str) -> object:
    found, value = result
    if found and value is not None:
        return value
    if found:
        raise HermesError(f"{key} is not set.", hint=f"Set it: hermes config set {key} VALUE")
    from hermes.config.setting_warnings import suggested_setting
    from hermes.config.values import parse_path

    near = suggested_setting(parse_path(key))
    hint = f"Did you mean {near}?" if near else "List them: hermes config show --all"
    raise HermesError(f"Unknown setting: {key}.", hint=hint)


def _set(context: CliContext, key: str, text: str | None, force: bool) -> int:
    from hermes.config.editor import set_setting, set_variable
    from hermes.config.values import format_path
    from hermes.config.variables import is_variable

    home = context.home()
    value = text if text is not None else _read_value(context, key)
    if is_variable(key):
        set_variable(home, key, value)
        _print_lint(context, (key,))
        return _say(context, f"{key} set in {home.dotenv}")
    edited = set_setting(home, context.profile_env(), key, value, force=force)
    for warning in edited.warnings:
        context.note(f"warning: {warning}")
    _print_lint(context, edited.path)
    _print_connection_warnings(context, edited)
    return _say(context, f"{format_path(edited.path)} set in {home.config}")


def _print_connection_warnings(context: CliContext, edited: "EditResult") -> None:
    """Warn about settings that were removed and about a key that goes to a new address."""
    from hermes.config.values import format_path

    if edited.removed:
        names = " and ".join(map(format_path, edited.removed))
        were = "was" if len(edited.removed) == 1 else "were"
        context.note(
            f"warning: {names} belonged to the previous setting and {were} removed\n"
            "  Set provider, address and key together: hermes setup"
        )
    if edited.exposed:
        context.note(
            f"warning: the key of {edited.exposed} will be sent to this address\n"
            f"  To undo this: hermes config unset {format_path(edited.path)}"
        )


def _print_lint(context: CliContext, path: "KeyPath") -> None:
    """Warn if the new value is unknown or has no effect."""
    from hermes.cli.verbs.config.lint import lint_values

    for problem in lint_values(context.home(), context.profile_env()):
        if problem.path == path[: len(problem.path)]:
            context.note(f"warning: {problem}\n  {problem.hint}")


def _read_value(context: CliContext, key: str) -> str:
    """Ask for the value or read it from a pipe, to keep it out of the shell history."""
    if context.stdin.isatty():
        from getpass import getpass

        value = getpass(f"{key}: ", stream=context.stderr)
    else:
        value = context.stdin.read().rstrip("\r\n")
    if not value:
        raise UsageError(
            "No value given; nothing was changed.",
            hint=f"To remove it: hermes config unset {key}",
        )
    return value


def _unset(context: CliContext, key: str) -> int:
    from hermes.config.editor import unset_setting, unset_variable
    from hermes.config.variables import is_variable

    home = context.home()
    if not is_variable(key):
        _print_connection_warnings(context, unset_setting(home, context.profile_env(), key))
        return _say(context, f"{key} is no longer set in {home.config}")
    if not unset_variable(home, key):
        raise UsageError(f"{key} is not set in {home.dotenv}.")
    return _say(context, f"{key} is no longer set in {home.dotenv}")


def _check(context: CliContext, verbose: bool) -> int:
    from hermes.cli.verbs.config.lint import check_settings, group_unused
    from hermes.config.problems import Severity

    home = context.home()
    env, problems = _checked_env(context, home)
    problems += check_settings(home, env)
    for problem in problems if verbose else group_unused(problems):
        context.print(f"{problem.severity}: {problem}\n  {problem.hint or 'hermes config edit'}")
    if any(problem.severity is Severity.ERROR for problem in problems):
        return ConfigError.exit_code
    if not problems:
        defaults = "does not exist; all settings have their defaults"
        context.print(f"{home.config} {'is valid' if home.config.exists() else defaults}")
    return 0


def _checked_env(context: CliContext, home: Home) -> "tuple[Env, list[Problem]]":
    """The environment including .env, and the problems of that file."""
    from hermes.config.problems import Problem, Severity

    file = home.dotenv
    try:
        env = context.profile_env()
    except ConfigError as error:
        message = str(error).removeprefix(f"{file}: ").removeprefix(f"{file}, ")
        problem = Problem(severity=Severity.ERROR, file=file, message=message, hint=error.hint)
        return context.env, [problem]
    if not file.exists() or not file.stat().st_mode & 0o077:
        return env, []
    message = "other users of this machine can read the keys in it"
    hint = f"Make it private: chmod 600 {file}"
    return env, [Problem(severity=Severity.WARNING, file=file, message=message, hint=hint)]


def _edit(context: CliContext) -> int:
    """Ignore a broken .env, which must not prevent editing config.yaml."""
    from hermes.cli.editor import edit_config

    try:
        env = context.profile_env()
    except ConfigError as error:
        context.note(f"warning: {error}")
        env = context.env
    return edit_config(context, env)


def _as_json(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _say(context: CliContext, text: str | Path) -> int:
    context.print(str(text))
    return 0
