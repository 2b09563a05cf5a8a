"""From the flags of a chat to what it starts with: the choices, and the session to go back to."""

import os
from argparse import Namespace
from pathlib import Path

from hermes.app.build import App, Choices
from hermes.cli.context import CliContext
from hermes.cli.verbs.chat import as_text
from hermes.schema.errors import UsageError
from hermes.schema.sessions import SessionChange


def choices(args: Namespace) -> Choices:
    toolsets = (name.strip() for name in as_text(args.toolsets or "").split(","))
    return Choices(
        model=as_text(args.model or "") or None,
        provider=as_text(args.provider or "") or None,
        logs=True,
        toolsets=None if args.toolsets is None else tuple(filter(None, toolsets)),
        max_steps=args.max_turns,
        source=args.source,
        workspace=_workspace(args),
    )


async def restore(args: Namespace, app: App, context: CliContext) -> None:
    """Go back to the session that the flags name, and to the folder it worked in."""
    if args.resume or args.go_on:
        await app.conversation.resume(as_text(args.resume or args.go_on))
    elif args.go_on is not None:
        await app.conversation.resume_latest(args.source)
    else:
        return
    if args.model or args.provider:
        model = await app.models.find()
        change = SessionChange(model=model.name, provider=model.provider, system="")
        await app.conversation.change(change)
    folder, here = app.conversation.session.cwd, _workspace(args)
    if folder and not args.cwd:
        if os.path.isdir(folder):  # noqa: PTH112, ASYNC240 - one look at a local folder
            return
        context.stderr.write(f"hermes: {folder} is gone; the session goes on in {here}.\n")
    await app.conversation.change(SessionChange(cwd=here))


def _workspace(args: Namespace) -> str:
    """The folder the agent works in. Raises `UsageError` when there is none."""
    try:
        path = Path(args.cwd).expanduser() if args.cwd else Path.cwd()
    except (FileNotFoundError, RuntimeError) as error:
        raise UsageError(
            "The current folder does not exist any more.", hint="Change to another one: cd"
        ) from error
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder.")
    return str(path.resolve())
