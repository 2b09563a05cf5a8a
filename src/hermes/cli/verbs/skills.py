"""`hermes skills`: list, install, update, review and undo skills."""

from argparse import Namespace
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.app.learning import SNAPSHOT_FILE, curation_limits
from hermes.app.skill_sources import SkillFetchDeps, fetch_skill, normalized_source
from hermes.app.storage import open_archive
from hermes.cli.context import CliContext
from hermes.cli.ledger_actions import LedgerActions
from hermes.cli.output import Style
from hermes.config.home import ensure_home
from hermes.config.loader import load_config
from hermes.config.schema import Config
from hermes.kit.clock import SystemClock
from hermes.kit.errors import UsageError
from hermes.kit.terminal_text import escape_controls, fit
from hermes.kit.text import did_you_mean, one_line
from hermes.learning.diffs import edit_diff, short_id
from hermes.learning.ledger import Ledger
from hermes.learning.skills.catalog import Skill, SkillCatalog
from hermes.learning.skills.curator import Curator
from hermes.learning.skills.document import list_bundles
from hermes.learning.skills.editor import SKILL_KIND, Authorship, SkillEditor, accept_proposal
from hermes.learning.skills.installer import (
    IS_PROGRAM,
    PreparedInstall,
    SkillInstaller,
    SkillPackage,
    read_folder,
    scan_package,
)
from hermes.learning.skills.usage import SkillUsage, SkillUsageLog
from hermes.ports.ledger import Author, Proposal

MAX_DIFF_LINES = 400
"""How much of the diff to show before an installation."""
_PERSON = Authorship(author=Author.PERSON)
_NAME_WIDTH = 28
"""Width of the name column in a list."""
_UNLIMITED = 10_000


class _SkillsAction(Struct, frozen=True, kw_only=True):
    catalog: SkillCatalog
    usage: SkillUsageLog
    ledger: Ledger
    editor: SkillEditor
    installer: SkillInstaller
    curator: Curator
    fetching: SkillFetchDeps
    args: Namespace
    context: CliContext

    @property
    def columns(self) -> int:
        """The width of a line; unlimited for pipes and files."""
        style = Style(self.context.stdout, self.context.env)
        return style.columns if style.can_rewrite else _UNLIMITED

    def say(self, text: str) -> None:
        self.context.stdout.write(escape_controls(text) + "\n")

    def skill(self, name: str) -> Skill:
        found = self.catalog.find(name)
        if found is None:
            near = did_you_mean(name, (skill.name for skill in self.catalog.skills()))
            hint = near or "List them: hermes skills list"
            raise UsageError(f"Unknown skill: {name!r}.", hint=hint)
        return found


def run(args: Namespace, context: CliContext) -> int:
    return anyio.run(_perform, args, context)


async def _perform(args: Namespace, context: CliContext) -> int:
    home, clock = context.home(), SystemClock()
    ensure_home(home)
    config = load_config(home, context.profile_env()).config
    async with open_archive(home, clock) as store:
        ledger = Ledger(store, home.path, clock)
        catalog = SkillCatalog(home.skills, _external_folders(config), home.path / SNAPSHOT_FILE)
        usage = SkillUsageLog(home.skills, clock)
        editor = SkillEditor(home.path, catalog, usage, ledger, clock)
        await ledger.complete_interrupted()
        action = _SkillsAction(
            catalog=catalog,
            usage=usage,
            ledger=ledger,
            editor=editor,
            installer=SkillInstaller(home.path, catalog, usage, ledger, clock),
            curator=Curator(home.skills, catalog, usage, editor, clock),
            fetching=SkillFetchDeps(home=home, env=context.env, config=config, clock=clock),
            args=args,
            context=context,
        )

        async def accepted(proposal: Proposal) -> str:
            await accept_proposal(editor, proposal)
            return f"Applied: {proposal.summary}"

        actions = LedgerActions(ledger, SKILL_KIND, args, action.say, accepted, ledger.undo)
        return 0 if await actions.act() else await _ACTIONS[args.action](action)


def _external_folders(config: Config) -> list[Path]:
    return [Path(name).expanduser() for name in config.skills.external_dirs]


async def _list(action: _SkillsAction) -> int:
    records, room = action.usage.records(), action.columns - _NAME_WIDTH - 1
    for skill in action.catalog.skills():
        marks = ", ".join(records.get(skill.name, SkillUsage()).labels(builtin=skill.builtin))
        about = f"{f'({marks}) ' if marks else ''}{one_line(skill.head.description, room)}"
        action.say(f"{skill.name:<{_NAME_WIDTH}} {fit(about, room)}")
    for bundle in list_bundles(action.fetching.home.path):
        about = f": {one_line(bundle.description, room)}" if bundle.description else ""
        text = f"(bundle of {', '.join(bundle.skills)}){about}"
        action.say(f"{bundle.name:<{_NAME_WIDTH}} {fit(text, room)}")
    for file, problem in action.catalog.problems().items():
        action.say(f"skipped: {file}: {problem}")
    return 0


async def _show(action: _SkillsAction) -> int:
    skill = action.skill(action.args.name)
    marks = ", ".join(action.usage.get(skill.name).labels(builtin=skill.builtin)) or "yours"
    action.say(f"{skill.name}: {skill.head.description}\n{skill.folder}  ({marks})")
    record = action.installer.installed().get(skill.name)
    if record is not None:
        action.say(f"from {record.source}, content {record.hash}")
    others = [path for path in read_folder(Path(skill.folder)) if path != "SKILL.md"]
    action.say(
        "\n".join(["", action.catalog.read(skill).body, *(f"file: {path}" for path in others)])
    )
    return 0


async def _install(action: _SkillsAction) -> int:
    args = action.args
    source = normalized_source(args.source)
    package = await fetch_skill(action.fetching, source, args.path)
    prepared = action.installer.prepare(package, source, args.path, args.category)
    return await _confirm_install(action, prepared)


async def _update(action: _SkillsAction) -> int:
    known = action.installer.installed()
    if action.args.name and action.args.name not in known:
        raise UsageError(
            f"{action.args.name} was not installed from a source.",
            hint="List the skills: hermes skills list",
        )
    code = 0
    for name, record in known.items():
        if action.args.name not in {"", name}:
            continue
        if action.catalog.find(name) is None:
            action.say(f"{name} no longer exists; skipped.")
            continue
        package = await fetch_skill(action.fetching, record.source, record.path or name)
        prepared = action.installer.prepare(package, record.source, record.path)
        code = max(code, await _confirm_install(action, prepared))
    if not known:
        action.say("No installed skills.")
    return code


async def _confirm_install(action: _SkillsAction, prepared: PreparedInstall) -> int:
    """Show the changes and ask before installing."""
    if prepared.is_unchanged:
        action.say(f"{prepared.package.name} is up to date. Content {prepared.record.hash}")
        return 0
    _print_changes(action, prepared)
    if not _is_confirmed(action, prepared):
        action.say("Nothing was changed.")
        return 1
    change = await action.installer.install(prepared)
    action.say(f"{change.summary}, content {prepared.record.hash}")
    action.say(f"Undo: hermes skills undo {short_id(change.id)}")
    return 0


def _print_changes(action: _SkillsAction, prepared: PreparedInstall) -> None:
    package, record = prepared.package, prepared.record
    action.say(f"{package.name}: {package.head.description}")
    action.say(f"from {record.source}\nto   {record.folder}\ncontent {record.hash}\n")
    lines = [
        line for edit in prepared.edits if edit.before != edit.after for line in edit_diff(edit)
    ]
    action.say("\n".join(lines[:MAX_DIFF_LINES]))
    if (more := len(lines) - MAX_DIFF_LINES) > 0:
        action.say(f"[… {more:,} more lines …]")
    for finding in scan_package(package):
        action.say(f"check this: {finding}")
    for path in prepared.locally_changed:
        action.say(f"overwrites your changes: {path}")


def _is_confirmed(action: _SkillsAction, prepared: PreparedInstall) -> bool:
    args, stdin = action.args, action.context.stdin
    suspicious = prepared.locally_changed or _suspicious_findings(prepared.package)
    if args.yes and suspicious and not args.force:
        raise UsageError(
            "Not installed: check the findings above.",
            hint="Run it without --yes to confirm, or add --force.",
        )
    if args.yes:
        return True
    if not stdin.isatty():
        raise UsageError("This needs confirmation.", hint="In a script, add --yes.")
    action.context.stdout.write("Install it? [y/N] ")
    action.context.stdout.flush()
    return stdin.readline().strip().lower() in {"y", "yes"}


def _suspicious_findings(package: SkillPackage) -> list[str]:
    """Findings of the scan, without the notes that the package contains programs."""
    return [text for text in scan_package(package) if not text.endswith(IS_PROGRAM)]


async def _audit(action: _SkillsAction) -> int:
    known = action.installer.installed()
    has_findings = False
    own = [skill for skill in action.catalog.skills() if skill.own]
    audited = [skill for skill in own if action.args.name in {"", skill.name}]
    for skill in audited:
        package = SkillPackage(head=skill.head, files=read_folder(Path(skill.folder)))
        lines = [f"check this: {text}" for text in _suspicious_findings(package)]
        if (record := known.get(skill.name)) is not None:
            found = action.installer.local_changes(record)
            lines += [f"changed since installation: {path}" for path in found.changed]
            lines += [f"missing since installation: {path}" for path in found.missing]
            lines += [f"added since installation: {path}" for path in found.added]
        has_findings = has_findings or bool(lines)
        action.say(f"{skill.name}: {'see below' if lines else 'ok'}, content {package.fingerprint}")
        for line in lines:
            action.say(f"  {line}")
    if not audited:
        action.say("Nothing to audit: built-in skills are not checked.")
    return 1 if has_findings else 0


async def _pin(action: _SkillsAction) -> int:
    skill, pinned = action.skill(action.args.name), action.args.action == "pin"
    action.usage.pin(skill.name, pinned=pinned)
    action.say(f"{skill.name} is {'pinned' if pinned else 'not pinned'}.")
    return 0


async def _archive(action: _SkillsAction) -> int:
    where = await action.editor.archive(action.args.name, _PERSON)
    action.say(f"{action.args.name} archived in {where}.")
    return 0


async def _restore(action: _SkillsAction) -> int:
    where = await action.editor.restore(action.args.name, _PERSON)
    action.say(f"{action.args.name} restored to {where}.")
    return 0


async def _curate(action: _SkillsAction) -> int:
    settings = action.fetching.config.curator
    ages = curation_limits(action.fetching.config)
    dry = action.args.dry_run
    found = await (action.curator.preview(ages) if dry else action.curator.curate(ages))
    for change in found:
        verb = "would become" if dry else "is now"
        action.say(f"{change.name}: {verb} {change.new_state} (unused for {change.days} days)")
    if not found:
        action.say(f"Nothing to do: no skill is unused for {settings.stale_after_days} days.")
    if action.args.consolidate or settings.consolidate:
        await _consolidate(action, ages.backups)
    return 0


async def _consolidate(action: _SkillsAction, keep: int) -> None:
    if action.args.dry_run:
        similar = await action.curator.similar_skills()
        lines = [f"would propose: merge {pair.drop} into {pair.keep}" for pair in similar]
    else:
        made = await action.curator.propose_merges(keep)
        lines = [f"proposed: {proposal.summary}  ({short_id(proposal.id)})" for proposal in made]
    for line in lines:
        action.say(line)
    pending = "Review the proposals: hermes skills pending"
    action.say(pending if lines else "No new similar skills.")


_ACTIONS: dict[str, Callable[[_SkillsAction], Awaitable[int]]] = {
    "list": _list,
    "show": _show,
    "install": _install,
    "update": _update,
    "audit": _audit,
    "pin": _pin,
    "unpin": _pin,
    "archive": _archive,
    "restore": _restore,
    "curate": _curate,
}
