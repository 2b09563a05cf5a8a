"""`hermes profile`: manage profiles, each with its own home."""

import argparse
from pathlib import Path

from hermes.cli.context import CliContext
from hermes.config.home import DEFAULT_PROFILE, Home, hermes_root, profile_home
from hermes.schema.errors import HermesError, UsageError


def run(args: argparse.Namespace, context: CliContext) -> int:
    match args.action:
        case "create":
            return _create(context, args.name, args.clone, args.clone_all)
        case "use":
            return _use(context, args.name)
        case "show":
            return _show(context, args.name)
        case "delete":
            return _delete(context, args.name, args.yes)
        case "rename":
            return _rename(context, args.name, args.new)
        case _:
            return _list(context)


def _list(context: CliContext) -> int:
    from hermes.config.profiles import list_profiles

    profiles = list_profiles(hermes_root(context.env))
    width = max(len(profile.name) for profile in profiles)
    for profile in profiles:
        mark = "*" if profile.active else " "
        context.print(f"{mark} {profile.name:<{width}}  {_one_line(profile.path)}")
    return 0


def _create(context: CliContext, name: str, clone: str | None, everything: bool) -> int:
    from hermes.config.profiles import create_profile

    root = hermes_root(context.env)
    source = None
    if clone is not None or everything:
        source = profile_home(root, clone) if clone else context.home()
    home = create_profile(root, name, clone=source, everything=everything)
    origin = f" as a copy of {source.profile}" if source else ""
    context.print(
        f"Profile {name} created{origin} in {_one_line(home.path)}\n"
        f"Use it with `hermes -p {name}`, or make it the default: hermes profile use {name}"
    )
    if source is not None:
        _print_credentials(context, source, home, everything)
    else:
        context.print(f"It has no model yet. Choose one: hermes -p {name} setup")
    return 0


def _print_credentials(context: CliContext, source: Home, home: Home, everything: bool) -> None:
    from hermes.config.clone_credentials import profile_credentials

    own = profile_credentials(source.path, everything=everything)
    if own.renewed:
        context.print(
            f"It has a new {' and a new '.join(own.renewed)} in {_one_line(home.dotenv)}; "
            f"its clients must use that instead of {source.profile}'s."
        )
    if own.removed:
        removed = _one_line(", ".join(own.removed))
        context.print(f"Not copied (each profile needs its own): {removed}")
    if platforms := _chat_apps(home):
        context.print(
            f"Its gateway will also connect to: {', '.join(platforms)}. To turn one off: "
            f"hermes -p {home.profile} config set platforms.{platforms[0]}.enabled false"
        )


def _chat_apps(home: Home) -> list[str]:
    """Return the chat apps that a copied home still enables, such as IRC by its server."""
    from hermes.app.channels import enabled_platforms
    from hermes.config.env import Env, profile_env
    from hermes.config.loader import load_config
    from hermes.config.platforms import facts_of

    env = profile_env(home.dotenv, Env({}))
    names = enabled_platforms(load_config(home, env).config, env)
    return [name for name in names if not facts_of(name).sender_role]


def _use(context: CliContext, name: str) -> int:
    from hermes.config.profiles import use_profile

    home = use_profile(hermes_root(context.env), name)
    context.print(f"Now using profile {home.profile}")
    return 0


def _show(context: CliContext, name: str | None) -> int:
    root = hermes_root(context.env)
    home = profile_home(root, name) if name else context.home()
    rows = {
        "name": home.profile,
        "home": str(home.path),
        "config": _file(home.config),
        "variables": _file(home.dotenv),
        "model": _model(context, home),
        "soul": _file(home.soul),
        "skills": str(sum(1 for _ in home.skills.rglob("SKILL.md"))),
        "sessions": _sessions(home),
    }
    width = max(map(len, rows))
    for label, text in rows.items():
        context.print(f"{label:<{width}}  {_one_line(text)}")
    return 0


def _sessions(home: Home) -> str:
    """The number of sessions and messages."""
    if not home.has_sessions:
        return "none yet"
    import anyio

    from hermes.app.storage import open_archive
    from hermes.kit.clock import SystemClock
    from hermes.kit.text import plural

    async def count() -> str:
        async with open_archive(home, SystemClock()) as store:
            stats = await store.maintenance.stats()
        return f"{plural(stats.sessions, 'session')}, {plural(stats.messages, 'message')}"

    try:
        return anyio.run(count)
    except HermesError as error:
        return f"unknown: {error}"


def _model(context: CliContext, home: Home) -> str:
    from hermes.config.env import profile_env
    from hermes.config.loader import load_config

    try:
        model = load_config(home, profile_env(home.dotenv, context.env)).config.main_model
    except HermesError as error:
        return f"unknown: {error}"
    provider = f" ({model.provider})" if model.provider else ""
    return f"{model.default}{provider}" if model.default else "not chosen"


def _file(path: Path) -> str:
    return str(path) if path.exists() else f"{path} (missing)"


def _delete(context: CliContext, name: str, sure: bool) -> int:
    from hermes.config.profiles import delete_profile

    root = hermes_root(context.env)
    _check_not_served(root, name)
    if name != DEFAULT_PROFILE and not sure:
        _confirm_delete(context, profile_home(root, name))
    path = delete_profile(root, name)
    context.print(f"Profile {name} deleted, including {_one_line(path)}")
    return 0


def _check_not_served(root: Path, name: str) -> None:
    from hermes.app.service.lock import running_gateway

    home = profile_home(root, name, may_create=False)
    served = None if name == DEFAULT_PROFILE else running_gateway(home)
    if served is not None:
        raise UsageError(
            f"Profile {name} is served by a gateway (pid {served.pid}).",
            hint="Stop it first: hermes gateway stop",
        )


def _confirm_delete(context: CliContext, home: Home) -> None:
    if not context.stdin.isatty():
        raise UsageError(
            f"Profile {home.profile} was not deleted: this needs confirmation.",
            hint=f"In a script: hermes profile delete {home.profile} --yes",
        )
    from hermes.cli.dialog import ask

    prompt = (
        f"This deletes {_one_line(home.path)} with its settings, memory, skills and sessions.\n"
        f"Type {home.profile} to confirm: "
    )
    if ask(context.stdin, context.stderr, prompt).strip() != home.profile:
        raise UsageError(f"Profile {home.profile} was not deleted.")


def _rename(context: CliContext, name: str, new: str) -> int:
    from hermes.config.profiles import rename_profile

    _check_not_served(hermes_root(context.env), name)
    home = rename_profile(hermes_root(context.env), name, new)
    context.print(f"Profile {name} is now {home.profile} in {_one_line(home.path)}")
    return 0


def _one_line(text: str | Path) -> str:
    from hermes.kit.terminal_text import escape_controls

    return escape_controls(str(text)).replace("\n", " ")
