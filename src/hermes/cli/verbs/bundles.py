"""`hermes bundles`: group several skills under one name."""

from argparse import Namespace
from pathlib import Path
from typing import TypeVar

import anyio
from msgspec import Struct

from hermes.app.storage import open_archive
from hermes.cli.context import CliContext
from hermes.config.home import Home, ensure_home
from hermes.config.loader import load_config
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.errors import UsageError
from hermes.kit.ids import new_id
from hermes.kit.terminal_text import escape_controls
from hermes.kit.text import did_you_mean, one_line
from hermes.learning.diffs import short_id
from hermes.learning.ledger import Ledger, read_if_present
from hermes.learning.skills.catalog import SkillCatalog
from hermes.learning.skills.document import (
    Bundle,
    bundle_file,
    check_name,
    encode_bundle,
    find_bundle,
    list_bundles,
)
from hermes.learning.skills.editor import SKILL_KIND
from hermes.ports.ledger import Author, Change, FileEdit

T = TypeVar("T")


class _BundlesAction(Struct, frozen=True):
    home: Home
    catalog: SkillCatalog
    clock: Clock
    args: Namespace
    context: CliContext

    def say(self, text: str) -> None:
        self.context.stdout.write(escape_controls(text) + "\n")


def run(args: Namespace, context: CliContext) -> int:
    home = context.home()
    ensure_home(home)
    external = load_config(home, context.profile_env()).config.skills.external_dirs
    catalog = SkillCatalog(home.skills, [Path(name).expanduser() for name in external])
    action = _BundlesAction(home, catalog, SystemClock(), args, context)
    {"list": _list, "show": _show, "create": _create, "delete": _delete}[args.action](action)
    return 0


def _list(action: _BundlesAction) -> None:
    found = list_bundles(action.home.path)
    for bundle in found:
        about = f": {one_line(bundle.description, 60)}" if bundle.description else ""
        action.say(f"{bundle.name:<28} ({', '.join(bundle.skills)}){about}")
    if not found:
        action.say("No bundles. Create one: hermes bundles create NAME -s SKILL -s SKILL")


def _show(action: _BundlesAction) -> None:
    bundle = _found(action, find_bundle(action.home.path, action.args.name))
    known = {skill.name for skill in action.catalog.skills()}
    action.say(f"/{bundle.name}" + (f": {bundle.description}" if bundle.description else ""))
    for name in bundle.skills:
        action.say(f"  {name}" + ("" if name in known else "  (missing)"))
    if bundle.instruction:
        action.say(f"\n{bundle.instruction}")


def _create(action: _BundlesAction) -> None:
    args = action.args
    if bundle_file(action.home.path, args.name):
        raise UsageError(
            f"The bundle {args.name} already exists.",
            hint=f"Delete it: hermes bundles delete {args.name}",
        )
    if taken := _name_in_use(action, args.name):
        raise UsageError(f"/{args.name} {taken} already.", hint="Choose another name.")
    for name in args.skills:
        _check_skill(action, name)
    skills, description = tuple(dict.fromkeys(args.skills)), " ".join(args.description.split())
    instruction = args.instruction.strip()
    file, data = encode_bundle(
        Bundle(name=args.name, skills=skills, description=description, instruction=instruction)
    )
    _apply(action, f"create bundle {args.name}", FileEdit(file, None, data))
    action.say(f"/{args.name} now runs {', '.join(skills)}.")


def _delete(action: _BundlesAction) -> None:
    name = action.args.name
    file = _found(action, bundle_file(action.home.path, name))
    edit = FileEdit(file, read_if_present(action.home.path / file), None)
    done = _apply(action, f"delete bundle {name}", edit)
    action.say(f"{name} deleted. Undo: hermes skills undo {short_id(done)}")


def _name_in_use(action: _BundlesAction, name: str) -> str:
    from hermes.commands.registry import standard_commands

    if name in standard_commands().names:
        return "is a command"
    return "is a skill" if action.catalog.find(name) is not None else ""


def _check_skill(action: _BundlesAction, name: str) -> None:
    check_name(name)
    names = [skill.name for skill in action.catalog.skills()]
    if name not in names:
        hint = did_you_mean(name, names) or "List them: hermes skills list"
        raise UsageError(f"Unknown skill: {name!r}.", hint=hint)


def _found(action: _BundlesAction, found: T | None) -> T:
    if found is not None:
        return found
    name = action.args.name
    near = did_you_mean(name, (bundle.name for bundle in list_bundles(action.home.path)))
    raise UsageError(f"Unknown bundle: {name!r}.", hint=near or "List them: hermes bundles list")


def _apply(action: _BundlesAction, summary: str, edit: FileEdit) -> str:
    """Apply the edit and record it in the ledger; return the id of the change."""

    async def carry_out() -> str:
        async with open_archive(action.home, action.clock) as store:
            change = Change(
                id=new_id("chg"),
                kind=SKILL_KIND,
                name=action.args.name,
                summary=summary,
                by=Author.PERSON,
                at=action.clock.now(),
                edits=(edit,),
            )
            return (await Ledger(store, action.home.path, action.clock).apply(change)).id

    return anyio.run(carry_out)
