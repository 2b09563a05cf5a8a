"""Check the database, the memory files, the skills and the pairing files."""

from collections.abc import Iterator
from pathlib import Path

from hermes.app.learning import Learning
from hermes.app.storage import open_archive
from hermes.cli.verbs.doctor.finding import CheckContext, Finding
from hermes.gateway.pairing import Pairing
from hermes.kit.errors import ConfigError
from hermes.kit.text import plural
from hermes.learning.memory import MemoryTarget
from hermes.learning.skills.catalog import SkillCatalog
from hermes.ports.store import Store
from hermes.schema.errors import StoreError, UsageError

_RESTORE = "Rename it and restore a backup made with `hermes sessions backup`."
_MAX_SHOWN = 5
"""How many findings of one kind are listed."""


async def check_storage(context: CheckContext) -> list[Finding]:
    if not context.home.has_sessions:
        return [Finding.ok("database", "empty"), *_other_files(context)]
    try:
        async with open_archive(context.home, context.clock) as store:
            findings = [*await _database(store), *_memory(context, store)]
    except StoreError as error:
        findings = [Finding.from_error("database", error, _RESTORE)]
    return [*findings, *_other_files(context)]


def _other_files(context: CheckContext) -> Iterator[Finding]:
    yield from _skills(context)
    pairing = Pairing(context.home.pairing, context.clock)
    try:
        pairing.paired_users()
        pairing.pending()
    except ConfigError as error:
        yield Finding.from_error("pairing", error, "hermes pairing list")
    home = context.home
    broken = sorted([*home.path.glob("*.broken-*"), *home.skills.glob(".*.broken-*")])
    for file in broken[:_MAX_SHOWN]:
        says = f"{file} is a damaged file that was replaced."
        yield Finding.warning("home", says, f"Check it, then: rm {file}")


async def _database(store: Store) -> list[Finding]:
    if problem := await store.maintenance.integrity():
        return [
            Finding.error(
                "database", f"{store.maintenance.location} is damaged: {problem[0]}.", _RESTORE
            )
        ]
    stats = await store.maintenance.stats()
    counts = f"{plural(stats.sessions, 'session')}, {plural(stats.messages, 'message')}"
    findings = [Finding.ok("database", f"intact; {counts}")]
    if stats.parked:
        says = f"{plural(stats.parked, 'message')} could not be delivered."
        findings.append(Finding.warning("database", says, "hermes send --failed"))
    return findings


def _memory(context: CheckContext, store: Store) -> Iterator[Finding]:
    learning = Learning(context.home, context.env, context.config, store, context.clock)
    for target in MemoryTarget:
        try:
            sheet = learning.memory_store.read_now(target)
        except UsageError as error:
            yield Finding.from_error("memory", error, "Replace it with a text file, or remove it.")
            continue
        file = context.home.path / target.file
        if sheet.irregular:
            says = f"{file} is not in the agent's format; it is backed up before changes."
            yield Finding.warning("memory", says, "hermes memory show")
        if sum(map(len, sheet.entries)) > sheet.limit:
            says = f"{file} is over its limit: {sheet.usage}."
            yield Finding.warning("memory", says, f"Shorten it by hand: {file}")


def _skills(context: CheckContext) -> Iterator[Finding]:
    external = [Path(name).expanduser() for name in context.config.skills.external_dirs]
    catalog = SkillCatalog(context.home.skills, external)
    problems = catalog.problems()
    for file, problem in list(problems.items())[:_MAX_SHOWN]:
        yield Finding.warning("skills", f"{file}: {problem}", f"Fix it by hand: {file}")
    if (more := len(problems) - _MAX_SHOWN) > 0:
        yield Finding.warning("skills", f"… and {more} more", "hermes skills list")
    if not problems:
        yield Finding.ok("skills", plural(len(catalog.skills()), "skill"))
