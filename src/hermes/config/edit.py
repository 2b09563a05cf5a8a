"""Changing config.yaml and .env: checked before the old file is replaced."""

import fcntl
import os
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path

import yaml
from msgspec import Struct

from hermes.config.change import CannotChange, applied, lookup, removed
from hermes.config.connections import exposed, outdated
from hermes.config.dotenv import parse_dotenv, read_text, with_variable, without_variable
from hermes.config.home import Home, ensure_home
from hermes.config.load import inspect_config, parse_config
from hermes.config.mend import is_text, type_at
from hermes.config.paths import KeyPath, format_path, parse_path
from hermes.config.problems import Problem, Severity, as_error
from hermes.config.schema import Config
from hermes.config.splice import cut_out, spliced
from hermes.config.unknown import NO_SUCH_SETTING
from hermes.config.yaml_text import read_yaml
from hermes.kit.errors import ConfigError, UsageError
from hermes.kit.files import advice, write_atomic

_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_LONGEST_NUMBER = 100
_WORDS: Mapping[str, object] = {"true": True, "false": False, "null": None}


class Edited(Struct, frozen=True, kw_only=True):
    """What was changed, and what is odd about it now.

    `removed` are settings that belonged to what was there before, such as the address of another
    provider. `exposed` says whose key is sent to the address that was set.
    """

    path: KeyPath
    value: object
    warnings: tuple[Problem, ...] = ()
    removed: tuple[KeyPath, ...] = ()
    exposed: str = ""


def set_setting(
    home: Home, env: Mapping[str, str], name: str, text: str, *, force: bool = False
) -> Edited:
    """Set `name` to what `text` says. Raises `ConfigError` when the result would not load.

    A setting that nobody knows is only set by `force`; else it is a `UsageError`.
    """
    path = parse_path(name)
    value = parse_value(text, path)
    with _changing(home) as old:
        path, value = _around_model(old, home.config, path, value)
        document = _document(old, home.config)
        gone = outdated(document, path, value)
        new = without_settings(_with_setting(old, home.config, path, value), home.config, gone)
        if not force:
            _check_known(new, home.config, env, path)
        warnings = replace_config(home, env, old, new)
    return Edited(
        path=path,
        value=value,
        warnings=tuple(w for w in warnings if _concerns(w.path, path)),
        removed=gone,
        exposed=exposed(_document(new, home.config), path),
    )


def unset_setting(home: Home, env: Mapping[str, str], name: str) -> Edited:
    """Take `name` out of the file, so that its default holds again."""
    path = parse_path(name)
    with _changing(home) as old:
        document = _document(old, home.config)
        found, value = lookup(document, path)
        if not found:
            raise UsageError(f"{format_path(path)} is not set in {home.config}")
        gone = outdated(document, path, None)
        replace_config(home, env, old, without_settings(old, home.config, (path, *gone)))
    return Edited(path=path, value=value, removed=gone)


def change_settings(
    home: Home, env: Mapping[str, str], decide: Callable[[Config], Mapping[str, str | None]]
) -> Sequence[str]:
    """Set several settings in one write, and take out those whose value is None.

    `decide` sees the settings as they are now, and nobody else changes them meanwhile. Returns
    the names of those that were there and are taken out.
    """
    with _changing(home) as old:
        changes = decide(parse_config(old, home.config, env).config)
        new = old
        for name, text in changes.items():
            if text is not None:
                path = parse_path(name)
                path, value = _around_model(new, home.config, path, parse_value(text, path))
                new = _with_setting(new, home.config, path, value)
        unset = [parse_path(name) for name, text in changes.items() if text is None]
        before = _document(old, home.config)
        gone = [path for path in unset if lookup(before, path)[0]]
        replace_config(home, env, old, without_settings(new, home.config, gone))
    return [format_path(path) for path in gone]


def _with_setting(text: str, file: Path, path: KeyPath, value: object) -> str:
    expected = applied(deepcopy(_document(text, file)), path, value)
    return _first_right(
        expected, file, lambda: spliced(text, path, value), lambda: _rewritten(text, path, value)
    )


def without_settings(text: str, file: Path, paths: Sequence[KeyPath]) -> str:
    """The text without these settings, as far as it has them."""
    for path in paths:
        document = _document(text, file)
        if lookup(document, path)[0]:
            ways = partial(cut_out, text, path), partial(_rewritten_without, text, path)
            text = _first_right(removed(deepcopy(document), path), file, *ways)
    return text


def replace_config(home: Home, env: Mapping[str, str], old: str, new: str) -> list[Problem]:
    """Write the new text if it has no error that the old had not; returns its warnings."""
    loaded, problems = inspect_config(new, home.config, env)
    if loaded is None:
        known = _errors_of(old, home.config, env)
        fresh = [p for p in problems if (p.path, p.message) not in known]
        if any(problem.severity is Severity.ERROR for problem in fresh):
            raise as_error(fresh, hint=f"Nothing was changed in {home.config}.")
    if new != old:
        _write(home.config, new)
    return [problem for problem in problems if problem.severity is Severity.WARNING]


def replace_whole_config(home: Home, old: str, new: str) -> None:
    """Write text that was checked, unless the file has changed since `old` was read."""
    with _changing(home) as current:
        if current != old:
            raise ConfigError(f"{home.config} was changed by somebody else meanwhile")
        _write(home.config, new)


def set_variable(home: Home, name: str, value: str) -> None:
    """Set an environment variable in the home's .env, which only its owner may read."""
    with _changing(home):
        text = read_text(home.dotenv)
        _write(home.dotenv, with_variable(text, name, value, str(home.dotenv)), mode=0o600)


def unset_variable(home: Home, name: str) -> bool:
    """False when the .env did not set it."""
    with _changing(home):
        text = read_text(home.dotenv)
        if all(entry.name != name for entry in parse_dotenv(text, str(home.dotenv))):
            return False
        _write(home.dotenv, without_variable(text, name, str(home.dotenv)), mode=0o600)
    return True


def parse_value(text: str, path: KeyPath = ()) -> object:
    """`true`, `12`, `[a, b]`, `{a: 1}`, `"text"`; all else, and where text is wanted, is text."""
    bare = text.strip()
    if bare[:1] in {"[", "{", '"', "'"}:
        return _parse_yaml(bare, text)
    if path and is_text(type_at(path)):
        return text
    if bare.lower() in _WORDS:
        return _WORDS[bare.lower()]
    if _NUMBER.fullmatch(bare) and len(bare) <= _LONGEST_NUMBER:
        return float(bare) if re.search(r"[.eE]", bare) else int(bare)
    return text


def _parse_yaml(bare: str, text: str) -> object:
    try:
        return read_yaml(bare, Path("the value"))[0]
    except ConfigError as error:
        if not isinstance(error.__cause__, yaml.YAMLError):
            raise UsageError(str(error), hint=error.hint) from error
        if bare[0] in "[{":
            raise UsageError(
                f"{text!r} begins like a list or mapping but is none",
                hint="Put it in quotes to have it as text, or close the bracket.",
            ) from error
        return text


def _around_model(text: str, file: Path, path: KeyPath, value: object) -> tuple[KeyPath, object]:
    """The model is a bare name or a section: setting a part of one never loses the other."""
    found, current = lookup(_document(text, file), ("model",))
    if path == ("model",) and isinstance(current, dict) and isinstance(value, str):
        return ("model", "default"), value
    if path[0] != "model" or len(path) != 2 or not found or not isinstance(current, str):
        return path, value
    named = {"default": current} if current else {}
    return ("model",), {**named, str(path[1]): value}


def _check_known(text: str, file: Path, env: Mapping[str, str], path: KeyPath) -> None:
    _, problems = inspect_config(text, file, env)
    for problem in problems:
        if NO_SUCH_SETTING in problem.message and _concerns(problem.path, path):
            raise UsageError(
                f"{format_path(problem.path)}: {problem.message}",
                hint="Nothing was changed; --force sets it all the same.",
            )


def _concerns(warned: KeyPath, path: KeyPath) -> bool:
    length = min(len(warned), len(path))
    return warned[:length] == path[:length]


@contextmanager
def _changing(home: Home) -> Generator[str]:
    """One writer at a time; the lock is the folder itself, so nothing is left behind."""
    ensure_home(home)
    folder = os.open(home.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield read_text(home.config)
    finally:
        os.close(folder)


def _document(text: str, file: Path) -> object:
    value, _ = read_yaml(text, file)
    return value


def _rewritten(text: str, path: KeyPath, value: object) -> str:
    from hermes.config.round_trip import rewritten  # noqa: PLC0415 - slow to load, seldom needed

    return rewritten(text, path, value)


def _rewritten_without(text: str, path: KeyPath) -> str:
    from hermes.config.round_trip import rewritten_without  # noqa: PLC0415 - as above

    return rewritten_without(text, path)


def _first_right(expected: object, file: Path, *ways: Callable[[], str]) -> str:
    """The first new text that says exactly what was meant."""
    for way in ways:
        try:
            new = way()
            if (_document(new, file) or {}) == (expected or {}):
                return new
        except (CannotChange, ConfigError):
            continue
    raise ConfigError(
        f"{file} is written in a way that cannot be changed safely from here",
        hint="Change it by hand with: hermes config edit (anchors and merge keys such as "
        "`<<: *name` may be the cause)",
    )


def _errors_of(text: str, file: Path, env: Mapping[str, str]) -> set[tuple[KeyPath, str]]:
    try:
        _, problems = inspect_config(text, file, env)
    except ConfigError:
        return set()
    return {(problem.path, problem.message) for problem in problems}


def _write(path: Path, text: str, *, mode: int | None = None) -> None:
    try:
        private = mode if mode is not None or path.exists() else 0o600
        write_atomic(path, text.encode(), mode=private)
    except UnicodeEncodeError as error:
        raise UsageError("The value is not text that can be stored as UTF-8") from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}",
            hint=advice(error, "Check the rights.") + " The old file is unchanged.",
        ) from error
