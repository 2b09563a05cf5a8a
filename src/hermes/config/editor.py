"""Edit config.yaml and .env; the result is checked before the file is replaced."""

import fcntl
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from msgspec import Struct, structs

from hermes.config.env import parse_dotenv, read_text, with_variable, without_variable
from hermes.config.home import Home, ensure_home
from hermes.config.loader import check_is_mapping, inspect_config, load_config
from hermes.config.problems import Problem, Severity, as_error
from hermes.config.repair import is_text_type, setting_type
from hermes.config.schema import Config
from hermes.config.server_ports import PORT_VARIABLES, is_port, is_port_setting
from hermes.config.setting_warnings import NO_SUCH_SETTING
from hermes.config.values import (
    KeyPath,
    UnsupportedEdit,
    as_mapping,
    find_value,
    format_path,
    parse_path,
    remove_value,
    set_value,
)
from hermes.config.yaml_edit import remove_from_text, set_in_text
from hermes.config.yaml_parser import read_yaml
from hermes.kit.errors import ConfigError, UsageError
from hermes.kit.files import write_atomic, write_error_hint

_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_MAX_DIGITS = 100
_LITERALS: Mapping[str, object] = {"true": True, "false": False, "null": None}

PROVIDER_KEY, ADDRESS_KEY, API_KEY_KEY = "provider", "base_url", "api_key"
_PROVIDER_FIELDS = (ADDRESS_KEY, API_KEY_KEY, "key_env", "api_mode")
_ADDRESS_PROVIDERS = {"", "auto", "custom"}
"""Providers that are defined by the address alone."""


class EditResult(Struct, frozen=True, kw_only=True):
    """The outcome of an edit."""

    path: KeyPath
    value: object
    warnings: tuple[Problem, ...] = ()
    removed: tuple[KeyPath, ...] = ()  # stale settings, such as the address of another provider
    exposed: str = ""  # the provider or variable whose key will be sent to the new address


def set_setting(
    home: Home, env: Mapping[str, str], name: str, text: str, *, force: bool = False
) -> EditResult:
    """Set `name` to the value in `text`. Raises `ConfigError` if the result would not load.

    Raises `UsageError` for an unknown setting unless `force` is set.
    """
    path = parse_path(name)
    value = parse_value(text, path)
    if is_port_setting(path):
        _check_port(name, value)
    with _locked_config(home) as old:
        path, value = _expand_model_name(old, home.config, path, value)
        document = _document(old, home.config)
        stale = stale_settings(document, path, value)
        new = without_settings(_with_setting(old, home.config, path, value), home.config, stale)
        if not force:
            _check_known(new, home.config, env, path)
        warnings = replace_config(home, env, old, new)
    return EditResult(
        path=path,
        value=value,
        warnings=tuple(w for w in warnings if _overlaps(w.path, path)),
        removed=stale,
        exposed=exposed_key(_document(new, home.config), path),
    )


def unset_setting(home: Home, env: Mapping[str, str], name: str) -> EditResult:
    """Remove `name` from the file, so that its default applies."""
    path = parse_path(name)
    with _locked_config(home) as old:
        document = _document(old, home.config)
        found, value = find_value(document, path)
        if not found:
            raise UsageError(f"{format_path(path)} is not set in {home.config}.")
        stale = stale_settings(document, path, None)
        replace_config(home, env, old, without_settings(old, home.config, (path, *stale)))
    return EditResult(path=path, value=value, removed=stale)


def change_settings(
    home: Home, env: Mapping[str, str], decide: Callable[[Config], Mapping[str, str | None]]
) -> Sequence[str]:
    """Set several settings in one write, and remove those whose value is None.

    `decide` gets the current settings under the lock. Returns the names of removed settings.
    """
    with _locked_config(home) as old:
        changes = decide(load_config(home, env, old).config)
        new = old
        for name, text in changes.items():
            if text is not None:
                path = parse_path(name)
                path, value = _expand_model_name(new, home.config, path, parse_value(text, path))
                new = _with_setting(new, home.config, path, value)
        unset = [parse_path(name) for name, text in changes.items() if text is None]
        before = _document(old, home.config)
        stale = [path for path in unset if find_value(before, path)[0]]
        replace_config(home, env, old, without_settings(new, home.config, stale))
    return [format_path(path) for path in stale]


def _with_setting(text: str, file: Path, path: KeyPath, value: object) -> str:
    expected = set_value(deepcopy(_document(text, file)), path, value)
    return _first_correct(expected, file, set_in_text(text, path, value))


def without_settings(text: str, file: Path, paths: Sequence[KeyPath]) -> str:
    """Return the text without these settings."""
    for path in paths:
        document = _document(text, file)
        if find_value(document, path)[0]:
            expected = remove_value(deepcopy(document), path)
            text = _first_correct(expected, file, remove_from_text(text, path))
    return text


def replace_config(home: Home, env: Mapping[str, str], old: str, new: str) -> list[Problem]:
    """Write the new text unless it adds errors; return its warnings."""
    loaded, problems = inspect_config(new, home.config, env)
    if loaded is None:
        known = _errors_of(old, home.config, env)
        # Lines of the text that is not written would be wrong in the file.
        fresh = [
            structs.replace(problem, line=0, column=0)
            for problem in problems
            if (problem.path, problem.message) not in known
        ]
        if any(problem.severity is Severity.ERROR for problem in fresh):
            raise as_error(fresh, hint=f"Nothing was changed in {home.config}.")
    if new != old:
        _write(home.config, new)
    return [problem for problem in problems if problem.severity is Severity.WARNING]


def replace_whole_config(home: Home, old: str, new: str) -> None:
    """Write checked text, unless the file has changed since `old` was read."""
    with _locked_config(home) as current:
        if current != old:
            raise ConfigError(f"{home.config} was changed by another process.")
        _write(home.config, new)


def set_variable(home: Home, name: str, value: str) -> None:
    """Set a variable in the home's .env, which only its owner may read."""
    if name in PORT_VARIABLES:
        _check_port(name, value)
    with _locked_config(home):
        text = read_text(home.dotenv)
        _write(home.dotenv, with_variable(text, name, value, str(home.dotenv)), mode=0o600)


def _check_port(name: str, value: object) -> None:
    if not is_port(value):
        raise ConfigError(f"{name}: expected a whole number from 0 to 65535, not {value}.")


def unset_variable(home: Home, name: str) -> bool:
    """Remove a variable from .env; False if it was not set."""
    with _locked_config(home):
        text = read_text(home.dotenv)
        if all(entry.name != name for entry in parse_dotenv(text, str(home.dotenv))):
            return False
        _write(home.dotenv, without_variable(text, name, str(home.dotenv)), mode=0o600)
    return True


def parse_value(text: str, path: KeyPath = ()) -> object:
    """Parse `true`, `12`, `[a, b]`, `{a: 1}`, `"text"`; anything else is text."""
    bare = text.strip()
    if bare[:1] in {"[", "{", '"', "'"}:
        return _parse_yaml(bare, text)
    if path and is_text_type(setting_type(path)):
        return text
    if bare.lower() in _LITERALS:
        return _LITERALS[bare.lower()]
    if _NUMBER.fullmatch(bare) and len(bare) <= _MAX_DIGITS:
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
                f"{text!r} is not a valid list or mapping.",
                hint="Quote it to set it as text, or close the bracket.",
            ) from error
        return text


def _expand_model_name(
    text: str, file: Path, path: KeyPath, value: object
) -> tuple[KeyPath, object]:
    """The model is a name or a section: setting one part keeps the other."""
    found, current = find_value(_document(text, file), ("model",))
    if path == ("model",) and isinstance(current, dict) and isinstance(value, str):
        return ("model", "default"), value
    if path[0] != "model" or len(path) != 2 or not found or not isinstance(current, str):
        return path, value
    named = {"default": current} if current else {}
    return ("model",), {**named, str(path[1]): value}


def _check_known(text: str, file: Path, env: Mapping[str, str], path: KeyPath) -> None:
    _, problems = inspect_config(text, file, env)
    for problem in problems:
        if NO_SUCH_SETTING in problem.message and _overlaps(problem.path, path):
            raise UsageError(
                f"{format_path(problem.path)}: {problem.message}",
                hint="Nothing was changed; use --force to set it anyway.",
            )


def _overlaps(warned: KeyPath, path: KeyPath) -> bool:
    length = min(len(warned), len(path))
    return warned[:length] == path[:length]


@contextmanager
def _locked_config(home: Home) -> Generator[str]:
    """One writer at a time; the directory itself is locked, so no lock file remains."""
    ensure_home(home)
    folder = os.open(home.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield read_text(home.config)
    finally:
        os.close(folder)


def _document(text: str, file: Path) -> object:
    document = read_yaml(text, file)[0]
    check_is_mapping(document, file)
    return document


def _first_correct(expected: object, file: Path, versions: Iterator[str]) -> str:
    """The first text that parses to the expected document."""
    with suppress(UnsupportedEdit):
        for new in versions:
            with suppress(ConfigError):
                if (_document(new, file) or {}) == (expected or {}):
                    return new
    raise ConfigError(
        f"{file} cannot be changed safely from here.",
        hint="Change it by hand with: hermes config edit (a key that is defined twice, anchors and "
        "merge keys such as `<<: *name` may be the cause)",
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
        raise UsageError("The value cannot be stored as UTF-8.") from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}.",
            hint=write_error_hint(error, "Check its permissions.") + " The old file is unchanged.",
        ) from error


def stale_settings(document: object, path: KeyPath, value: object) -> tuple[KeyPath, ...]:
    """Settings next to `path` that become stale if it gets this value; None unsets it."""
    section = _section(document, path)
    new = str(value or "").strip()
    names: tuple[str, ...] = ()
    if path[-1] == PROVIDER_KEY:
        names = _stale_after_provider(section, new.lower())
    elif path[-1] == ADDRESS_KEY:
        names = _stale_after_address(section, new)
    return tuple((*path[:-1], name) for name in names if name in section)


def exposed_key(document: object, path: KeyPath) -> str:
    """The provider or variable whose key would be sent to the address set by `path`."""
    section = _section(document, path)
    if path[-1] != ADDRESS_KEY or _text(section, API_KEY_KEY):
        return ""
    provider = _text(section, PROVIDER_KEY)
    return _text(section, "key_env") or ("" if provider.lower() in _ADDRESS_PROVIDERS else provider)


def _stale_after_provider(section: Mapping[str, object], new: str) -> tuple[str, ...]:
    old = _text(section, PROVIDER_KEY).lower()
    address = _text(section, ADDRESS_KEY)
    # A key without an address belongs to the new provider; one with an address is tied to it.
    unbound = old in {"", "auto"} and not address
    kept = old == new or unbound or (new in _ADDRESS_PROVIDERS and address)
    return () if kept else _PROVIDER_FIELDS


def _stale_after_address(section: Mapping[str, object], new: str) -> tuple[str, ...]:
    old = _text(section, ADDRESS_KEY)
    has_default_address = _text(section, PROVIDER_KEY).lower() not in _ADDRESS_PROVIDERS
    moved = _host_of(old) != _host_of(new) if old else has_default_address and bool(new)
    return (API_KEY_KEY,) if moved else ()


def _section(document: object, path: KeyPath) -> Mapping[str, object]:
    _, section = find_value(document, path[:-1])
    return {str(name): value for name, value in (as_mapping(section) or {}).items()}


def _text(section: Mapping[str, object], name: str) -> str:
    return str(section.get(name) or "").strip()


def _host_of(url: str) -> str:
    """The host a key would be sent to; invalid addresses are returned as they are."""
    try:
        return urlsplit(url if "://" in url else f"//{url}").netloc.rpartition("@")[2].lower()
    except ValueError:
        return url
