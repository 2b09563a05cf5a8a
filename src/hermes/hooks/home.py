"""Find, check and load the hooks in a profile's home."""

import logging
import os
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import ModuleType

import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.config.home import Home
from hermes.config.values import as_mapping
from hermes.config.yaml_parser import read_yaml
from hermes.gateway.hooks import (
    COMMAND_PREFIX,
    EVENTS,
    HookBus,
    HookHandler,
    HookRules,
    HookSource,
    open_hooks,
)
from hermes.kit.clock import Clock
from hermes.kit.files import read_regular_file
from hermes.kit.ids import new_id
from hermes.schema.errors import ConfigError

log = logging.getLogger(__name__)

MAX_HOOKS = 64
"""Each hook has a thread, and command hooks have two."""


class _HookManifest(Struct, frozen=True):
    """The content of `HOOK.yaml`."""

    name: str = ""
    description: str = ""
    events: tuple[str, ...] = ()


class FoundHooks(Struct, frozen=True):
    """Loadable hooks, warnings about the others, and the names of the modules loaded so far."""

    sources: tuple[HookSource, ...]
    warnings: tuple[str, ...]
    modules: list[str]


@asynccontextmanager
async def open_profile_hooks(
    home: Home, clock: Clock, rules: HookRules | None = None
) -> AsyncGenerator[HookBus]:
    """The hooks of one profile, open during the block."""
    found = await run_sync(find_hooks, home.hooks)
    for warning in found.warnings:
        log.warning("%s", warning)
    try:
        async with open_hooks(found.sources, clock, rules) as bus:
            bus.warnings = [*found.warnings, *bus.warnings]
            yield bus
    finally:
        for name in found.modules:
            sys.modules.pop(name, None)


def find_hooks(folder: Path) -> FoundHooks:
    """Check every folder with a `HOOK.yaml`, in order of name."""
    sources: list[HookSource] = []
    warnings: list[str] = []
    modules: list[str] = []
    try:
        folders = sorted(path.parent for path in folder.glob("*/HOOK.yaml"))
    except OSError as error:
        return FoundHooks((), (f"Cannot read {folder}: {error.strerror}",), modules)
    if len(folders) > MAX_HOOKS:
        warnings.append(f"{folder} has more than {MAX_HOOKS} hooks; the rest are skipped")
    for hook in folders[:MAX_HOOKS]:
        try:
            sources.append(_hook_source(folder, hook, warnings, modules))
        except ConfigError as error:
            warnings.append(f"hook {hook.name} skipped: {error}")
        except OSError as error:
            reason = f"{error.filename or hook}: {error.strerror or error}"
            warnings.append(f"hook {hook.name} skipped: {reason}")
    return FoundHooks(tuple(sources), tuple(warnings), modules)


def _hook_source(folder: Path, hook: Path, warnings: list[str], modules: list[str]) -> HookSource:
    manifest_file, handler = hook / "HOOK.yaml", hook / "handler.py"
    for path in (folder, hook, manifest_file, handler):
        _check_permissions(path)
    manifest = _read_manifest(manifest_file)
    unknown = [event for event in manifest.events if not _is_event(event)]
    if unknown:
        warnings.append(f"{manifest_file}: unknown event {', '.join(unknown)}")
    events = tuple(event for event in manifest.events if event not in unknown)
    if not events:
        raise ConfigError(f"{manifest_file}: no known event in `events`")

    return HookSource(name=hook.name, events=events, load=partial(_load_handler, handler, modules))


def _check_permissions(path: Path) -> None:
    """A hook runs as us, so no one else may be able to write it."""
    found = path.stat()
    if found.st_uid not in {os.geteuid(), 0}:
        raise ConfigError(f"{path} belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"{path} is writable by others; run: chmod go-w {path}")


def _read_manifest(file: Path) -> _HookManifest:
    text = read_regular_file(file).decode("utf-8", "replace")
    value, _ = read_yaml(text, file)
    if as_mapping(value) is None:
        raise ConfigError(f"{file}: not a mapping")
    try:
        return msgspec.convert(value, _HookManifest)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: {error}") from error


def _is_event(event: str) -> bool:
    if event.startswith(COMMAND_PREFIX):
        return len(event) > len(COMMAND_PREFIX)
    return event in EVENTS


def _load_handler(file: Path, modules: list[str]) -> HookHandler:
    """Import by path under a unique module name; errors name the file."""
    name = f"hermes_hook_{new_id('hook')}"
    module = ModuleType(name)
    module.__file__ = str(file)
    modules.append(name)
    sys.modules[name] = module
    try:
        code = compile(read_regular_file(file), str(file), "exec")
        exec(code, module.__dict__)  # noqa: S102 - the owner's code, from a file only they can write
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{file}: {type(error).__name__}: {error}") from error
    handle: object = module.__dict__.get("handle")
    if not callable(handle):
        raise ConfigError(f"{file}: no function handle(event_type, context)")
    return handle
