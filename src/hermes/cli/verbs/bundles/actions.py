"""What `hermes bundles` does. Each change is in the book of the skills, and can be undone there."""

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
from hermes.learning.ledger.change import Author, Change, FileEdit, read_if_present
from hermes.learning.ledger.diffs import short_id
from hermes.learning.ledger.ledger import Ledger
from hermes.learning.skills.bundles import (
    Bundle,
    bundle_file,
    encode_bundle,
    find_bundle,
    list_bundles,
)
from hermes.learning.skills.catalog import SkillCatalog
from hermes.learning.skills.document import check_name
from hermes.learning.skills.editor import SKILL_KIND
from hermes.store.sqlite import open_store


class _BundlesAction(Struct, frozen=True):
    home: Home
    shelf: SkillCatalog
    clock: Clock
    args: Namespace
    context: CliContext

    def say(self, text: str) -> None:
        self.context.stdout.write(escape_controls(text) + "\n")


def perform(args: Namespace, context: CliContext) -> int:
    home = context.home()
    ensure_home(home)
    elsewhere = load_config(home, context.env).config.skills.external_dirs
    shelf = SkillCatalog(home.skills, [Path(name).expanduser() for name in elsewhere])
    desk = _BundlesAction(home, shelf, SystemClock(), args, context)
    actions: dict[str, Callable[[_BundlesAction], None]] = {
        "list": _list,
        "show": _show,
        "create": _create,
        "delete": _delete,
    }
    actions[args.action](desk)
    return 0


def _list(desk: _BundlesAction) -> None:
    found = list_bundles(desk.home.path)
    for one in found:
        about = f": {one_line(one.description, 60)}" if one.description else ""
        desk.say(f"{one.name:<28} ({', '.join(one.skills)}){about}")
    if not found:
        desk.say("There are no bundles. `hermes bundles create NAME -s SKILL -s SKILL` makes one.")


def _show(desk: _BundlesAction) -> None:
    one = _find_bundle(desk)
    there = {skill.name for skill in desk.shelf.skills()}
    desk.say(f"/{one.name}" + (f": {one.description}" if one.description else ""))
    for name in one.skills:
        desk.say(f"  {name}" + ("" if name in there else "  (not here)"))
    if one.instruction:
        desk.say(f"\n{one.instruction}")


def _create(desk: _BundlesAction) -> None:
    args = desk.args
    if bundle_file(desk.home.path, args.name):
        raise UsageError(
            f"There is a bundle {args.name} already.",
            hint=f"`hermes bundles delete {args.name}` takes it away.",
        )
    if taken := _name_in_use(desk, args.name):
        raise UsageError(f"/{args.name} {taken} already.", hint="Take another name.")
    for name in args.skills:
        _check_skill(desk, name)
    skills = tuple(dict.fromkeys(args.skills))
    bundle = Bundle(
        name=args.name,
        skills=skills,
        description=" ".join(args.description.split()),
        instruction=args.instruction.strip(),
    )
    file, data = encode_bundle(bundle)
    _apply(desk, f"create bundle {args.name}", FileEdit(file, None, data))
    desk.say(f"/{args.name} now follows {', '.join(skills)}.")


def _delete(desk: _BundlesAction) -> None:
    name = desk.args.name
    file = bundle_file(desk.home.path, name)
    if file is None:
        raise _unknown_bundle(desk)
    edit = FileEdit(file, read_if_present(desk.home.path / file), None)
    done = _apply(desk, f"delete bundle {name}", edit)
    desk.say(f"{name} is gone; `hermes skills undo {short_id(done)}` brings it back.")


def _name_in_use(desk: _BundlesAction, name: str) -> str:
    from hermes.commands.catalog import COMMANDS

    if any(name in {one.name, *one.aliases} for one in COMMANDS):
        return "is a command"
    return "is a skill" if desk.shelf.find(name) is not None else ""


def _check_skill(desk: _BundlesAction, name: str) -> None:
    check_name(name)
    names = [skill.name for skill in desk.shelf.skills()]
    if name not in names:
        hint = did_you_mean(name, names) or "`hermes skills list` shows them all."
        raise UsageError(f"There is no skill {name!r}.", hint=hint)


def _find_bundle(desk: _BundlesAction) -> Bundle:
    found = find_bundle(desk.home.path, desk.args.name)
    if found is None:
        raise _unknown_bundle(desk)
    return found


def _unknown_bundle(desk: _BundlesAction) -> UsageError:
    near = did_you_mean(desk.args.name, (one.name for one in list_bundles(desk.home.path)))
    return UsageError(
        f"There is no bundle {desk.args.name!r}.",
        hint=near or "`hermes bundles list` shows them all.",
    )


def _apply(desk: _BundlesAction, summary: str, edit: FileEdit) -> str:
    """The id of the change."""

    async def carry_out() -> str:
        async with open_store(desk.home.state_db, desk.clock) as store:
            change = Change(
                id=new_id("chg"),
                kind=SKILL_KIND,
                name=desk.args.name,
                summary=summary,
                by=Author.PERSON,
                at=desk.clock.now(),
                edits=(edit,),
            )
            return (await Ledger(store, desk.home.path, desk.clock).apply(change)).id

    return anyio.run(carry_out)
