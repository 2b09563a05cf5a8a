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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    show = verbs.add_parser("show", help="print the effective settings, with secrets masked")
    show.add_argument("section", nargs="?", help="only this section, such as agent")
    show.add_argument("--all", action="store_true", help="include defaults")
    show.add_argument("--json", action="store_true", help="print JSON instead of YAML")
    get = verbs.add_parser("get", help="print one setting")
    get.add_argument("key", help="setting, such as agent.max_turns")
    get.add_argument("--json", action="store_true", help="print JSON")
    change = verbs.add_parser("set", help="change a setting, or a variable such as OPENAI_API_KEY")
    change.add_argument("key", help="setting, such as agent.max_turns")
    change.add_argument(
        "value",
        nargs="?",
        help="true, 12, [a, b] or text; if omitted, it is asked for or read from stdin",
    )
    change.add_argument("--force", action="store_true", help="accept unknown settings")
    unset = verbs.add_parser("unset", help="reset a setting to its default")
    unset.add_argument("key", help="setting, such as agent.max_turns")
    verbs.add_parser("path", help="print the path of config.yaml")
    verbs.add_parser("env-path", help="print the path of .env")
    verbs.add_parser("edit", help="edit config.yaml in your editor; it is checked before saving")
    check = verbs.add_parser("check", help="check the settings; exit code 78 if there are errors")
    check.add_argument(
        "--verbose", action="store_true", help="list every setting that has no effect"
    )


def run(args: argparse.Namespace, context: CliContext) -> int:
    actions: Mapping[str, Callable[[], int]] = {
        "show": lambda: _show(context, args.section, args.all, args.json),
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
    from hermes.config.effective import as_yaml, effective_value, printable_settings

    whole = everything or section is not None
    shown = printable_settings(context.home(), _env(context), everything=whole)
    if section is not None:
        shown = {section: _found(effective_value(shown, section), section)}
    if as_json:
        return _say(context, _as_json(shown))
    if section is None and not everything:
        what = "Other settings" if shown else "All settings"
        _say(context, f"# {what} have their defaults. To see them: hermes config show --all")
    return _say(context, as_yaml(shown)) if shown else 0


def _get(context: CliContext, key: str, as_json: bool) -> int:
    from hermes.config.effective import effective_value, load_effective

    env = _env(context)
    value: object = env.get(key)
    if value is None or not key.isupper():
        value = _found(effective_value(load_effective(context.home(), env), key), key)
    if as_json:
        return _say(context, _as_json(value))
    if isinstance(value, str):
        return _say(context, value)
    from hermes.config.effective import as_yaml

    return _say(context, as_yaml(value))


def _found(result: tuple[bool, object], key: str) -> object:
    found, value = result
    if found and value is not None:
        return value
    if found:
        raise HermesError(f"{key} is not set", hint=f"Set it: hermes config set {key} VALUE")
    from hermes.config.setting_warnings import suggested_setting
    from hermes.config.values import parse_path

    near = suggested_setting(parse_path(key))
    hint = f"Did you mean {near}?" if near else "List them: hermes config show --all"
    raise HermesError(f"Unknown setting {key}", hint=hint)


def _set(context: CliContext, key: str, given: str | None, force: bool) -> int:
    from hermes.config.editor import set_setting, set_variable
    from hermes.config.values import format_path
    from hermes.config.variables import is_variable

    home = context.home()
    value = given if given is not None else _read_value(context, key)
    if is_variable(key):
        set_variable(home, key, value)
        return _say(context, f"{key} set in {home.dotenv}")
    edited = set_setting(home, _env(context), key, value, force=force)
    for warning in edited.warnings:
        context.stderr.write(f"warning: {warning}\n")
    _print_lint(context, edited.path)
    _print_connection_warnings(context, edited)
    return _say(context, f"{format_path(edited.path)} set in {home.config}")


def _print_connection_warnings(context: CliContext, edited: "EditResult") -> None:
    """Warn about settings that were removed and about a key that goes to a new address."""
    from hermes.config.values import format_path

    if edited.removed:
        names = " and ".join(map(format_path, edited.removed))
        context.stderr.write(
            f"warning: {names} belonged to the previous setting and {_were(edited)} removed\n"
            "  Set provider, address and key together: hermes setup\n"
        )
    if edited.exposed:
        context.stderr.write(
            f"warning: the key of {edited.exposed} will be sent to this address\n"
            "  To undo this: hermes config unset " + format_path(edited.path) + "\n"
        )


def _were(edited: "EditResult") -> str:
    return "was" if len(edited.removed) == 1 else "were"


def _print_lint(context: CliContext, path: "KeyPath") -> None:
    """Warn if the new value is unknown or has no effect."""
    from hermes.cli.verbs.config.lint import lint_values

    for problem in lint_values(context.home(), _env(context)):
        if problem.path == path[: len(problem.path)]:
            context.stderr.write(f"warning: {problem}\n  {problem.hint}\n")


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
        _print_connection_warnings(context, unset_setting(home, _env(context), key))
        return _say(context, f"{key} is no longer set in {home.config}")
    if not unset_variable(home, key):
        raise UsageError(f"{key} is not set in {home.dotenv}")
    return _say(context, f"{key} is no longer set in {home.dotenv}")


def _check(context: CliContext, verbose: bool) -> int:
    from hermes.cli.verbs.config.lint import check_settings, group_unused
    from hermes.config.problems import Severity

    home = context.home()
    env, problems = _checked_env(context, home)
    problems += check_settings(home, env)
    for problem in problems if verbose else group_unused(problems):
        context.stdout.write(f"{problem.severity}: {problem}\n")
        context.stdout.write(f"  {problem.hint or 'hermes config edit'}\n")
    if any(problem.severity is Severity.ERROR for problem in problems):
        return ConfigError.exit_code
    if not problems:
        _say(context, f"{home.config} is valid" if home.config.exists() else _no_file(home))
    return 0


def _checked_env(context: CliContext, home: Home) -> "tuple[Env, list[Problem]]":
    """The environment including .env, and the problems of that file."""
    from hermes.config.dotenv import profile_env
    from hermes.config.problems import Problem, Severity

    try:
        env = profile_env(home.dotenv, context.env)
    except ConfigError as error:
        message = str(error).removeprefix(f"{home.dotenv}: ").removeprefix(f"{home.dotenv}, ")
        problem = Problem(
            severity=Severity.ERROR, file=home.dotenv, message=message, hint=error.hint
        )
        return context.env, [problem]
    if home.dotenv.exists() and home.dotenv.stat().st_mode & 0o077:
        problem = Problem(
            severity=Severity.WARNING,
            file=home.dotenv,
            message="other users of this machine can read the keys in it",
            hint=f"Make it private: chmod 600 {home.dotenv}",
        )
        return env, [problem]
    return env, []


def _no_file(home: Home) -> str:
    return f"{home.config} does not exist; all settings have their defaults"


def _edit(context: CliContext) -> int:
    from hermes.cli.editor import edit_config

    return edit_config(context, _env_if_readable(context))


def _env(context: CliContext) -> Env:
    from hermes.config.dotenv import profile_env

    return profile_env(context.home().dotenv, context.env)


def _env_if_readable(context: CliContext) -> Env:
    """Ignore a broken .env, which must not prevent editing config.yaml."""
    try:
        return _env(context)
    except ConfigError as error:
        context.stderr.write(f"warning: {error}\n")
        return context.env


def _as_json(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _say(context: CliContext, text: str | Path) -> int:
    context.stdout.write(f"{text}\n")
    return 0
