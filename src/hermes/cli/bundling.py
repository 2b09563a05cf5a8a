"""What `hermes bundles` does. Each change is in the book of the skills, and can be undone there."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.changes.change import Author, Change, Edit
from hermes.changes.differences import short
from hermes.changes.files import present
from hermes.changes.ledger import Ledger
from hermes.cli.context import CliContext
from hermes.cli.export.plain import harmless
from hermes.config.home import Home, ensure_home
from hermes.config.load import load_config
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.errors import UsageError
from hermes.kit.ids import new_id
from hermes.kit.text import did_you_mean, one_line
from hermes.skills.bundles import Bundle, bundle_named, bundles, file_of, written
from hermes.skills.document import check_name
from hermes.skills.editing import KIND
from hermes.skills.shelf import Shelf
from hermes.store.sqlite import open_store


class _Desk(Struct, frozen=True):
    home: Home
    shelf: Shelf
    clock: Clock
    args: Namespace
    context: CliContext

    def say(self, text: str) -> None:
        self.context.stdout.write(harmless(text) + "\n")


def perform(args: Namespace, context: CliContext) -> int:
    home = context.home()
    ensure_home(home)
    elsewhere = load_config(home, context.env).config.skills.external_dirs
    shelf = Shelf(home.skills, [Path(name).expanduser() for name in elsewhere])
    desk = _Desk(home, shelf, SystemClock(), args, context)
    actions: dict[str, Callable[[_Desk], None]] = {
        "list": _list,
        "show": _show,
        "create": _create,
        "delete": _delete,
    }
    actions[args.action](desk)
    return 0


def _list(desk: _Desk) -> None:
    found = bundles(desk.home.path)
    for one in found:
        about = f": {one_line(one.description, 60)}" if one.description else ""
        desk.say(f"{one.name:<28} ({', '.join(one.skills)}){about}")
    if not found:
        desk.say("There are no bundles. `hermes bundles create NAME -s SKILL -s SKILL` makes one.")


def _show(desk: _Desk) -> None:
    one = _found(desk)
    there = {skill.name for skill in desk.shelf.skills()}
    desk.say(f"/{one.name}" + (f": {one.description}" if one.description else ""))
    for name in one.skills:
        desk.say(f"  {name}" + ("" if name in there else "  (not here)"))
    if one.instruction:
        desk.say(f"\n{one.instruction}")


def _create(desk: _Desk) -> None:
    args = desk.args
    if file_of(desk.home.path, args.name):
        raise UsageError(
            f"There is a bundle {args.name} already.",
            hint=f"`hermes bundles delete {args.name}` takes it away.",
        )
    if taken := _other_meaning(desk, args.name):
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
    file, data = written(bundle)
    _carried_out(desk, f"create bundle {args.name}", Edit(file, None, data))
    desk.say(f"/{args.name} now follows {', '.join(skills)}.")


def _delete(desk: _Desk) -> None:
    name = desk.args.name
    file = file_of(desk.home.path, name)
    if file is None:
        raise _none(desk)
    edit = Edit(file, present(desk.home.path / file), None)
    done = _carried_out(desk, f"delete bundle {name}", edit)
    desk.say(f"{name} is gone; `hermes skills undo {short(done)}` brings it back.")


def _other_meaning(desk: _Desk, name: str) -> str:
    from hermes.commands.standard import COMMANDS

    if any(name in {one.name, *one.aliases} for one in COMMANDS):
        return "is a command"
    return "is a skill" if desk.shelf.find(name) is not None else ""


def _check_skill(desk: _Desk, name: str) -> None:
    check_name(name)
    names = [skill.name for skill in desk.shelf.skills()]
    if name not in names:
        hint = did_you_mean(name, names) or "`hermes skills list` shows them all."
        raise UsageError(f"There is no skill {name!r}.", hint=hint)


def _found(desk: _Desk) -> Bundle:
    found = bundle_named(desk.home.path, desk.args.name)
    if found is None:
        raise _none(desk)
    return found


def _none(desk: _Desk) -> UsageError:
    near = did_you_mean(desk.args.name, (one.name for one in bundles(desk.home.path)))
    return UsageError(
        f"There is no bundle {desk.args.name!r}.",
        hint=near or "`hermes bundles list` shows them all.",
    )


def _carried_out(desk: _Desk, summary: str, edit: Edit) -> str:
    """The id of the change."""

    async def carry_out() -> str:
        async with open_store(desk.home.state_db, desk.clock) as store:
            change = Change(
                id=new_id("chg"),
                kind=KIND,
                name=desk.args.name,
                summary=summary,
                by=Author.PERSON,
                at=desk.clock.now(),
                edits=(edit,),
            )
            return (await Ledger(store, desk.home.path, desk.clock).apply(change)).id

    return anyio.run(carry_out)
