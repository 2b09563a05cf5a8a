"""The actions of `hermes bundles`. Changes are logged and undone with `hermes skills`."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.cli.context import CliContext
from hermes.config.home import Home, ensure_home
from hermes.config.loader import load_config
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.errors import UsageError
from hermes.kit.ids import new_id
from hermes.kit.terminal_text import escape_controls
from hermes.kit.text import did_you_mean, one_line
from hermes.learning.diffs import short_id
from hermes.learning.ledger import Author, Change, FileEdit, Ledger, read_if_present
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
from hermes.store.sqlite import open_store


class _BundlesAction(Struct, frozen=True):
    home: Home
    catalog: SkillCatalog
    clock: Clock
    args: Namespace
    context: CliContext

    def say(self, text: str) -> None:
        self.context.stdout.write(escape_controls(text) + "\n")


def perform(args: Namespace, context: CliContext) -> int:
    home = context.home()
    ensure_home(home)
    external = load_config(home, context.env).config.skills.external_dirs
    catalog = SkillCatalog(home.skills, [Path(name).expanduser() for name in external])
    action = _BundlesAction(home, catalog, SystemClock(), args, context)
    actions: dict[str, Callable[[_BundlesAction], None]] = {
        "list": _list,
        "show": _show,
        "create": _create,
        "delete": _delete,
    }
    actions[args.action](action)
    return 0


def _list(action: _BundlesAction) -> None:
    found = list_bundles(action.home.path)
    for one in found:
        about = f": {one_line(one.description, 60)}" if one.description else ""
        action.say(f"{one.name:<28} ({', '.join(one.skills)}){about}")
    if not found:
        action.say("No bundles. Create one: hermes bundles create NAME -s SKILL -s SKILL")


def _show(action: _BundlesAction) -> None:
    bundle = _find_bundle(action)
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
    skills = tuple(dict.fromkeys(args.skills))
    bundle = Bundle(
        name=args.name,
        skills=skills,
        description=" ".join(args.description.split()),
        instruction=args.instruction.strip(),
    )
    file, data = encode_bundle(bundle)
    _apply(action, f"create bundle {args.name}", FileEdit(file, None, data))
    action.say(f"/{args.name} now runs {', '.join(skills)}.")


def _delete(action: _BundlesAction) -> None:
    name = action.args.name
    file = bundle_file(action.home.path, name)
    if file is None:
        raise _unknown_bundle(action)
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
        raise UsageError(f"There is no skill {name!r}.", hint=hint)


def _find_bundle(action: _BundlesAction) -> Bundle:
    found = find_bundle(action.home.path, action.args.name)
    if found is None:
        raise _unknown_bundle(action)
    return found


def _unknown_bundle(action: _BundlesAction) -> UsageError:
    near = did_you_mean(action.args.name, (one.name for one in list_bundles(action.home.path)))
    return UsageError(
        f"There is no bundle {action.args.name!r}.",
        hint=near or "List them: hermes bundles list",
    )


def _apply(action: _BundlesAction, summary: str, edit: FileEdit) -> str:
    """Apply and log the edit; return the id of the change."""

    async def carry_out() -> str:
        async with open_store(action.home.state_db, action.clock) as store:
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
