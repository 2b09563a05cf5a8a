"""`hermes gateway setup`: ask for the token of a chat app, check it, then save it.

Only the check runs in an event loop: a question inside one could not be interrupted with Ctrl+C.
"""

from argparse import Namespace
from importlib import import_module
from typing import cast

import anyio

from hermes.app.chat_settings import ChatSettings
from hermes.channels import MANIFESTS
from hermes.cli.context import CliContext
from hermes.cli.dialog import TerminalDialog
from hermes.config.editor import set_variable
from hermes.config.home import ensure_home
from hermes.gateway.platform_settings import parse_list, platform_variable
from hermes.kit.terminal_text import single_line
from hermes.ports.channel import AccountCheck, ChannelManifest, ChannelSetup, CheckAccount
from hermes.schema.errors import HermesError, UsageError

MAX_ATTEMPTS = 3
ALLOWED_USERS = "ALLOWED_USERS"


def setup(args: Namespace, context: CliContext) -> int:
    home = context.home()
    ensure_home(home)
    dialog = TerminalDialog(context, interactive=not args.token_stdin)
    manifest, steps = _platform(args, dialog)
    if dialog.interactive:
        for number, step in enumerate(steps.steps, 1):
            context.print(f"  {number}. {step}")
    token, found = _checked_token(args, context, dialog, manifest, steps)
    set_variable(home, steps.variable, token)
    context.print(
        f"Connected as {single_line(found.account)}. The token is stored in {home.dotenv}."
    )
    for note in found.notes:
        context.print(f"Note: {single_line(note)}")
    _save_users(args, context, dialog, manifest, steps)
    context.print(context.with_profile("Start it: hermes gateway restart"))
    return 0


def _platform(args: Namespace, dialog: TerminalDialog) -> tuple[ChannelManifest, ChannelSetup]:
    known = {name: one for name, one in MANIFESTS.items() if one.setup is not None}
    names = ", ".join(known)
    if not args.platform and not dialog.interactive:
        raise UsageError("Which platform?", hint=f"hermes gateway setup NAME; there is: {names}")
    rows = [(name, one.label) for name, one in known.items()]
    name = args.platform or dialog.choose("Which chat app?", rows, next(iter(known)))
    manifest = known.get(name)
    if manifest is None or manifest.setup is None:
        raise UsageError(f"There is no setup for {single_line(name)}.", hint=f"There is: {names}")
    return manifest, manifest.setup


def _checked_token(
    args: Namespace,
    context: CliContext,
    dialog: TerminalDialog,
    manifest: ChannelManifest,
    steps: ChannelSetup,
) -> tuple[str, AccountCheck]:
    """Ask until the platform accepts the token. Raises the last error."""
    for attempt in range(1, MAX_ATTEMPTS + 1):
        if args.token_stdin:
            token = dialog.key_from_stdin()
        elif dialog.interactive:
            token = dialog.ask_key(manifest.label, "Token")
        else:
            raise UsageError(
                "The token is asked for at a terminal.",
                hint=f"hermes gateway setup {manifest.name} --token-stdin < FILE",
            )
        try:
            return token, _check(token, context, manifest, steps)
        except HermesError as error:
            if args.token_stdin or attempt == MAX_ATTEMPTS:
                raise
            dialog.print(error.sentence)
    raise AssertionError("unreachable")


def _check(
    token: str, context: CliContext, manifest: ChannelManifest, steps: ChannelSetup
) -> AccountCheck:
    module, _, name = steps.check.partition(":")
    check = cast("CheckAccount", getattr(import_module(module), name))
    extra = ChatSettings(context.load_config().config).platform(manifest.name).extra
    return anyio.run(check, token, extra, context.profile_env())


def _save_users(
    args: Namespace,
    context: CliContext,
    dialog: TerminalDialog,
    manifest: ChannelManifest,
    steps: ChannelSetup,
) -> None:
    """Ask who may write, unless that is set already."""
    variable = platform_variable(manifest.name, ALLOWED_USERS)
    extra = ChatSettings(context.load_config().config).platform(manifest.name).extra
    given = args.allow or ""
    known = context.profile_env().get(variable) or extra.get("allow_from")
    if not given and not known and dialog.interactive:
        context.print(f"Who may talk to the agent? A user id is {steps.user_id}.")
        given = dialog.ask_line("User ids, or - to approve people with a pairing code", "-")
    if ids := [one for one in parse_list(given) if one != "-"]:
        set_variable(context.home(), variable, ",".join(ids))
        context.print(f"Allowed: {', '.join(map(single_line, ids))} ({variable}).")
    elif not known:
        pairing = f"hermes pairing approve {manifest.name} CODE"
        context.print(
            context.with_profile(f"Whoever writes to it gets a code; approve it with: {pairing}")
        )
