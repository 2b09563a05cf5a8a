"""What `hermes skills` does."""

from argparse import Namespace
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.app.learning import SNAPSHOT_FILE, curation_limits
from hermes.app.skill_sources import SkillFetchDeps, fetch_skill, normalized_source
from hermes.cli.context import CliContext
from hermes.cli.ledger_actions import LedgerActions
from hermes.cli.output import Style
from hermes.config.home import ensure_home
from hermes.config.loader import load_config
from hermes.config.schema import Config
from hermes.kit.clock import SystemClock
from hermes.kit.errors import UsageError
from hermes.kit.terminal_text import escape_controls, fit
from hermes.kit.text import did_you_mean
from hermes.kit.text import one_line as flat
from hermes.learning.ledger.change import Author, Proposal
from hermes.learning.ledger.diffs import edit_diff, short_id
from hermes.learning.ledger.ledger import Ledger
from hermes.learning.skills.bundles import list_bundles
from hermes.learning.skills.catalog import Skill, SkillCatalog
from hermes.learning.skills.curator import Curator
from hermes.learning.skills.editor import SKILL_KIND, Authorship, SkillEditor, accept_proposal
from hermes.learning.skills.installer import PreparedInstall, SkillInstaller
from hermes.learning.skills.packages import IS_PROGRAM, SkillPackage, read_folder, scan_package
from hermes.learning.skills.usage import SkillUsage, SkillUsageLog
from hermes.store.sqlite import open_store

MAX_DIFF_LINES = 400
"""Of what would be written; all of it is a matter of opening the source."""
PERSON = Authorship(author=Author.PERSON)
_NAME_WIDTH = 28
"""Columns for the names in a list."""
_UNLIMITED = 10_000


class _SkillsAction(Struct, frozen=True, kw_only=True):
    shelf: SkillCatalog
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
        """How much fits into a line; what reads from a pipe gets all of it."""
        env = self.context.env
        style = Style(self.context.stdout, env.get("NO_COLOR"), env.get("TERM"))
        return style.columns if style.moves else _UNLIMITED

    def say(self, text: str) -> None:
        self.context.stdout.write(escape_controls(text) + "\n")

    def skill(self, name: str) -> Skill:
        found = self.shelf.find(name)
        if found is None:
            near = did_you_mean(name, (one.name for one in self.shelf.skills()))
            hint = near or "`hermes skills list` shows them all."
            raise UsageError(f"There is no skill {name!r}.", hint=hint)
        return found


def perform(args: Namespace, context: CliContext) -> int:
    return anyio.run(_perform, args, context)


async def _perform(args: Namespace, context: CliContext) -> int:
    home, clock = context.home(), SystemClock()
    ensure_home(home)
    config = load_config(home, context.env).config
    async with open_store(home.state_db, clock) as store:
        ledger = Ledger(store, home.path, clock)
        shelf = SkillCatalog(home.skills, _external_folders(config), home.path / SNAPSHOT_FILE)
        usage = SkillUsageLog(home.skills, clock)
        editor = SkillEditor(home.path, shelf, usage, ledger, clock)
        await ledger.settle()
        desk = _SkillsAction(
            shelf=shelf,
            usage=usage,
            ledger=ledger,
            editor=editor,
            installer=SkillInstaller(home.path, shelf, usage, ledger, clock),
            curator=Curator(home.skills, shelf, usage, editor, clock),
            fetching=SkillFetchDeps(home=home, env=context.env, config=config, clock=clock),
            args=args,
            context=context,
        )

        async def accepted(proposal: Proposal) -> str:
            await accept_proposal(editor, proposal)
            return f"done: {proposal.summary}"

        done = await LedgerActions(ledger, SKILL_KIND, args, desk.say, accepted, ledger.undo).act()
        return await _ACTIONS[args.action](desk) if done is None else done


def _external_folders(config: Config) -> list[Path]:
    return [Path(name).expanduser() for name in config.skills.external_dirs]


async def _list(desk: _SkillsAction) -> int:
    records, room = desk.usage.records(), desk.columns - _NAME_WIDTH - 1
    for skill in desk.shelf.skills():
        marks = ", ".join(records.get(skill.name, SkillUsage()).marks(builtin=skill.builtin))
        about = f"{f'({marks}) ' if marks else ''}{flat(skill.head.description, room)}"
        desk.say(f"{skill.name:<{_NAME_WIDTH}} {fit(about, room)}")
    for bundle in list_bundles(desk.fetching.home.path):
        about = f": {flat(bundle.description, room)}" if bundle.description else ""
        whole = f"(bundle of {', '.join(bundle.skills)}){about}"
        desk.say(f"{bundle.name:<{_NAME_WIDTH}} {fit(whole, room)}")
    for file, trouble in desk.shelf.troubles().items():
        desk.say(f"left out: {file}: {trouble}")
    return 0


async def _show(desk: _SkillsAction) -> int:
    skill = desk.skill(desk.args.name)
    marks = ", ".join(desk.usage.of(skill.name).marks(builtin=skill.builtin)) or "yours"
    desk.say(f"{skill.name}: {skill.head.description}\n{skill.folder}  ({marks})")
    record = desk.installer.installed().get(skill.name)
    if record is not None:
        desk.say(f"from {record.source}, content {record.hash}")
    others = [path for path in read_folder(Path(skill.folder)) if path != "SKILL.md"]
    desk.say("\n".join(["", desk.shelf.read(skill).body, *(f"file: {path}" for path in others)]))
    return 0


async def _install(desk: _SkillsAction) -> int:
    args = desk.args
    source = normalized_source(args.source)
    package = await fetch_skill(desk.fetching, source, args.path)
    prepared = desk.installer.prepare(package, source, args.path, args.category)
    return await _confirm_install(desk, prepared)


async def _update(desk: _SkillsAction) -> int:
    known = desk.installer.installed()
    if desk.args.name and desk.args.name not in known:
        raise UsageError(f"{desk.args.name} was not installed.", hint="See `hermes skills list`.")
    code = 0
    for name, record in known.items():
        if desk.args.name not in {"", name}:
            continue
        if desk.shelf.find(name) is None:
            desk.say(f"{name} is not there any more and was left alone.")
            continue
        package = await fetch_skill(desk.fetching, record.source, record.path or name)
        prepared = desk.installer.prepare(package, record.source, record.path)
        code = max(code, await _confirm_install(desk, prepared))
    if not known:
        desk.say("No skill was installed from elsewhere.")
    return code


async def _confirm_install(desk: _SkillsAction, prepared: PreparedInstall) -> int:
    """Show all of it, then ask; nothing of it is run, now or later, without its being asked for."""
    package, record = prepared.package, prepared.record
    if prepared.nothing_new:
        desk.say(f"{package.name} is as it was there. Content {record.hash}")
        return 0
    _print_changes(desk, prepared, scan_package(package))
    if not _is_confirmed(desk, prepared):
        desk.say("Nothing was changed.")
        return 1
    change = await desk.installer.install(prepared)
    desk.say(f"{change.summary}, content {record.hash}")
    desk.say(f"`hermes skills undo {short_id(change.id)}` takes it back.")
    return 0


def _print_changes(desk: _SkillsAction, prepared: PreparedInstall, found: Sequence[str]) -> None:
    package, record = prepared.package, prepared.record
    desk.say(f"{package.name}: {package.head.description}")
    desk.say(f"from {record.source}\nto   {record.folder}\ncontent {record.hash}\n")
    lines = [
        line for edit in prepared.edits if edit.before != edit.after for line in edit_diff(edit)
    ]
    desk.say("\n".join(lines[:MAX_DIFF_LINES]))
    if (more := len(lines) - MAX_DIFF_LINES) > 0:
        desk.say(f"[… {more:,} more lines …]")
    for one in found:
        desk.say(f"look at this: {one}")
    for path in prepared.mine:
        desk.say(f"you changed this, and it would be replaced: {path}")


def _is_confirmed(desk: _SkillsAction, prepared: PreparedInstall) -> bool:
    args, stdin = desk.args, desk.context.stdin
    doubtful = prepared.mine or _suspicious_findings(prepared.package)
    if args.yes and doubtful and not args.force:
        raise UsageError(
            "It is not let in unseen: see above what to look at.",
            hint="Answer by hand, or add --force.",
        )
    if args.yes:
        return True
    if not stdin.isatty():
        raise UsageError("Somebody must agree to this.", hint="Add --yes in a script.")
    desk.context.stdout.write("Let it in? [y/N] ")
    desk.context.stdout.flush()
    return stdin.readline().strip().lower() in {"y", "yes"}


def _suspicious_findings(package: SkillPackage) -> list[str]:
    """Without what is only to be known: that it brings programs."""
    return [one for one in scan_package(package) if not one.endswith(IS_PROGRAM)]


async def _audit(desk: _SkillsAction) -> int:
    known = desk.installer.installed()
    trouble = False
    looked_at = [
        skill for skill in desk.shelf.skills() if skill.own and desk.args.name in {"", skill.name}
    ]
    for skill in looked_at:
        package = SkillPackage(head=skill.head, files=read_folder(Path(skill.folder)))
        lines = [f"look at this: {one}" for one in _suspicious_findings(package)]
        if (record := known.get(skill.name)) is not None:
            found = desk.installer.deviation(record)
            lines += [f"changed since it came: {path}" for path in found.changed]
            lines += [f"missing since it came: {path}" for path in found.missing]
            lines += [f"added since it came: {path}" for path in found.added]
        trouble = trouble or bool(lines)
        desk.say(f"{skill.name}: {'see below' if lines else 'fine'}, content {package.fingerprint}")
        for line in lines:
            desk.say(f"  {line}")
    if not looked_at:
        desk.say("Nothing to look at: only skills that are not part of Hermes are audited.")
    return 1 if trouble else 0


async def _pin(desk: _SkillsAction) -> int:
    skill, pinned = desk.skill(desk.args.name), desk.args.action == "pin"
    desk.usage.pin(skill.name, pinned=pinned)
    desk.say(f"{skill.name} is {'pinned' if pinned else 'not pinned'}.")
    return 0


async def _archive(desk: _SkillsAction) -> int:
    where = await desk.editor.archive(desk.args.name, PERSON)
    desk.say(f"{desk.args.name} lies in {where} now.")
    return 0


async def _restore(desk: _SkillsAction) -> int:
    where = await desk.editor.restore(desk.args.name, PERSON)
    desk.say(f"{desk.args.name} is back in {where}.")
    return 0


async def _curate(desk: _SkillsAction) -> int:
    settings = desk.fetching.config.curator
    ages = curation_limits(desk.fetching.config)
    dry = desk.args.dry_run
    found = await (desk.curator.judge(ages) if dry else desk.curator.curate(ages))
    for one in found:
        desk.say(
            f"{one.name}: {'would become' if dry else 'is now'} {one.becomes} ({one.days} days)"
        )
    if not found:
        desk.say(f"Nothing to do: {settings.stale_after_days} days without use are not over.")
    if desk.args.consolidate or settings.consolidate:
        await _consolidate(desk, ages.keep)
    return 0


async def _consolidate(desk: _SkillsAction, keep: int) -> None:
    if desk.args.dry_run:
        lines = [f"would propose: merge {one.drop} into {one.keep}"
                 for one in await desk.curator.alike()]  # fmt: skip
    else:
        made = await desk.curator.propose_merges(keep)
        lines = [f"proposed: {one.summary}  ({short_id(one.id)})" for one in made]
    for line in lines:
        desk.say(line)
    none = "No two say the same, besides what was proposed before."
    desk.say("`hermes skills pending` shows proposals." if lines else none)


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
