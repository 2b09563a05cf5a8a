"""The hooks in a profile's home: found, checked, and loaded each under a name of its own."""

import logging
import os
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.config.home import Home
from hermes.config.yaml_parser import read_yaml
from hermes.config.yaml_values import as_mapping
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
"""Hooks of one profile; each has a thread, and those of commands have two."""


class _HookManifest(Struct, frozen=True):
    """What `HOOK.yaml` says."""

    name: str = ""
    description: str = ""
    events: tuple[str, ...] = ()


class FoundHooks(Struct, frozen=True):
    """Hooks that can be loaded, and why others cannot; `modules` fills as they are."""

    sources: tuple[HookSource, ...]
    warnings: tuple[str, ...]
    modules: list[str]


@asynccontextmanager
async def open_profile_hooks(
    home: Home, clock: Clock, rules: HookRules | None = None
) -> AsyncGenerator[HookBus]:
    """The hooks of one profile, for as long as the block runs; shared with nobody."""
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
    """Look at every folder that has a `HOOK.yaml`, in the order of their names."""
    sources: list[HookSource] = []
    warnings: list[str] = []
    modules: list[str] = []
    try:
        places = sorted(path.parent for path in folder.glob("*/HOOK.yaml"))
    except OSError as error:
        return FoundHooks((), (f"{folder} cannot be read: {error.strerror}",), modules)
    if len(places) > MAX_HOOKS:
        warnings.append(f"{folder} has more than {MAX_HOOKS} hooks; the others are left out")
    for place in places[:MAX_HOOKS]:
        try:
            sources.append(_hook_source(folder, place, warnings, modules))
        except ConfigError as error:
            warnings.append(f"the hook {place.name} is left out: {error}")
        except OSError as error:
            why = f"{error.filename or place}: {error.strerror or error}"
            warnings.append(f"the hook {place.name} is left out: {why}")
    return FoundHooks(tuple(sources), tuple(warnings), modules)


def _hook_source(folder: Path, place: Path, warnings: list[str], modules: list[str]) -> HookSource:
    manifest_file, handler = place / "HOOK.yaml", place / "handler.py"
    for path in (folder, place, manifest_file, handler):
        _check_permissions(path)
    manifest = _read_manifest(manifest_file)
    unknown = [event for event in manifest.events if not _is_event(event)]
    if unknown:
        warnings.append(f"{manifest_file}: there is no event {', '.join(unknown)}")
    events = tuple(event for event in manifest.events if event not in unknown)
    if not events:
        raise ConfigError(f"{manifest_file}: it names no event that there is")

    def load() -> HookHandler:
        return _load_handler(handler, modules)

    return HookSource(name=place.name, events=events, load=load)


def _check_permissions(path: Path) -> None:
    """Whoever can write here runs code as us, so it must be nobody but us."""
    found = path.stat()
    if found.st_uid not in {os.geteuid(), 0}:
        raise ConfigError(f"{path} belongs to somebody else")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"{path} can be written by others than its owner: chmod go-w {path}")


def _read_manifest(file: Path) -> _HookManifest:
    text = read_regular_file(file).decode("utf-8", "replace")
    value, _ = read_yaml(text, file)
    if as_mapping(value) is None:
        raise ConfigError(f"{file}: it is no mapping")
    try:
        return msgspec.convert(value, _HookManifest)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: {error}") from error


def _is_event(event: str) -> bool:
    if event.startswith(COMMAND_PREFIX):
        return len(event) > len(COMMAND_PREFIX)
    return event in EVENTS


def _load_handler(file: Path, modules: list[str]) -> HookHandler:
    """Import by path, under a name that nothing else has; errors name the file."""
    name = f"hermes_hook_{new_id('hook')}"
    module = ModuleType(name)
    module.__file__ = str(file)
    modules.append(name)
    sys.modules[name] = module
    try:
        code = compile(read_regular_file(file), str(file), "exec")
        exec(code, module.__dict__)  # noqa: S102 - the owner's own code, from a file only they write
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{file}: {type(error).__name__}: {error}") from error
    handle: object = module.__dict__.get("handle")
    if not callable(handle):
        raise ConfigError(f"{file}: it has no function handle(event_type, context)")
    return handle
