"""Whether what is kept is whole: the database, the memory files, the skills."""

from collections.abc import Iterator
from pathlib import Path

from hermes.app.archive import open_archive
from hermes.app.learning import Learning
from hermes.cli.verbs.doctor.finding import (
    CheckContext,
    Finding,
    error_finding,
    finding_of_error,
    ok_finding,
    warning_finding,
)
from hermes.gateway.pairing import Pairing
from hermes.kit.errors import ConfigError
from hermes.kit.text import plural
from hermes.learning.memory.entries import MemoryTarget
from hermes.learning.skills.catalog import SkillCatalog
from hermes.schema.errors import StoreError, UsageError
from hermes.store.sqlite import SqliteStore

_RESTORE = "Copy it away, then put a backup in its place; `hermes sessions backup` makes them."
_MAX_SHOWN = 5
"""Findings of one kind that are told one by one."""


async def check_storage(patient: CheckContext) -> list[Finding]:
    file = patient.home.state_db
    if not file.exists() and not file.with_name(f"{file.name}-wal").exists():
        return [ok_finding("database", "nothing is stored yet"), *_other_files(patient)]
    try:
        async with open_archive(patient.home, patient.clock) as store:
            findings = [*await _database(store), *_memory(patient, store)]
    except StoreError as error:
        findings = [finding_of_error("database", error, _RESTORE)]
    return [*findings, *_other_files(patient)]


def _other_files(patient: CheckContext) -> Iterator[Finding]:
    yield from _skills(patient)
    pairing = Pairing(patient.home.pairing, patient.clock)
    try:
        pairing.grants()
        pairing.pending()
    except ConfigError as error:
        yield finding_of_error("pairing", error, "hermes pairing list")
    home = patient.home
    for file in sorted([*home.path.glob("*.broken-*"), *home.skills.glob(".*.broken-*")])[
        :_MAX_SHOWN
    ]:
        yield warning_finding(
            "home", f"{file} was damaged and begun anew.", f"Look into it, then: rm {file}"
        )


async def _database(store: SqliteStore) -> list[Finding]:
    trouble = await store.integrity()
    if trouble:
        return [
            error_finding("database", f"{store.path} is damaged: {trouble[0]}.", _RESTORE),
        ]
    stats = await store.stats()
    findings = [
        ok_finding(
            "database",
            f"whole; {plural(stats.sessions, 'session')}, {plural(stats.messages, 'message')}",
        )
    ]
    if stats.parked:
        findings.append(
            warning_finding(
                "database",
                f"Given up on, after many tries: {plural(stats.parked, 'message')}.",
                "hermes gateway status --deep",
            )
        )
    return findings


def _memory(patient: CheckContext, store: SqliteStore) -> Iterator[Finding]:
    learning = Learning(patient.home, patient.env, patient.config, store, patient.clock)
    for target in MemoryTarget:
        try:
            sheet = learning.notebook.read_now(target)
        except UsageError as error:
            yield finding_of_error(
                "memory", error, "Put a text file in its place, or take it away."
            )
            continue
        file = patient.home.path / target.file
        if sheet.odd:
            yield warning_finding(
                "memory",
                f"{file} is not as the agent writes it; a copy is kept before it changes it.",
                "hermes memory show",
            )
        if sum(map(len, sheet.entries)) > sheet.limit:
            yield warning_finding(
                "memory",
                f"{file} is longer than it may be: {sheet.usage}.",
                f"Shorten it by hand: {file}",
            )


def _skills(patient: CheckContext) -> Iterator[Finding]:
    elsewhere = [Path(name).expanduser() for name in patient.config.skills.external_dirs]
    shelf = SkillCatalog(patient.home.skills, elsewhere)
    troubles = shelf.troubles()
    for file, trouble in list(troubles.items())[:_MAX_SHOWN]:
        yield warning_finding("skills", f"{file}: {trouble}", f"Correct it by hand: {file}")
    if len(troubles) > _MAX_SHOWN:
        yield warning_finding(
            "skills", f"… and {len(troubles) - _MAX_SHOWN} more", "hermes skills list"
        )
    if not troubles:
        yield ok_finding("skills", plural(len(shelf.skills()), "skill"))
