"""`hermes gateway setup`: ask for the token of a chat app, check it, then save it.

Only the check runs in an event loop: a question inside one could not be interrupted with Ctrl+C.
"""

from argparse import Namespace
from collections.abc import Mapping

import anyio

from hermes.app.channel_setup import check_account, store_account
from hermes.app.chat_settings import ChatSettings
from hermes.channels import MANIFESTS
from hermes.cli.context import CliContext
from hermes.cli.dialog import TerminalDialog
from hermes.config.editor import set_variable
from hermes.config.home import ensure_home
from hermes.gateway.platform_settings import parse_list, platform_variable
from hermes.kit.terminal_text import single_line
from hermes.ports.channel import AccountCheck, ChannelManifest, ChannelSetup
from hermes.schema.errors import HermesError, UsageError

MAX_ATTEMPTS = 3
ALLOWED_USERS = "ALLOWED_USERS"
NONE = "-"
"""The answer that leaves out an optional variable."""


def setup(args: Namespace, context: CliContext) -> int:
    home = context.home()
    ensure_home(home)
    dialog = TerminalDialog(context, interactive=not args.token_stdin)
    manifest, steps = _platform(args, dialog)
    if dialog.interactive:
        for number, step in enumerate(steps.steps, 1):
            context.print(f"  {number}. {step}")
    answers = _answers(context, dialog, steps)
    token, found = _checked_token(args, context, dialog, manifest, steps, answers)
    store_account(home, steps, token, answers, found)
    stored = f"The {steps.secret.lower()} is" if token else "The answers are"
    context.print(f"Connected as {single_line(found.account)}. {stored} stored in {home.dotenv}.")
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
        raise UsageError(f"There is no setup for {single_line(name)}.", hint=f"Available: {names}")
    return manifest, manifest.setup


def _answers(context: CliContext, dialog: TerminalDialog, steps: ChannelSetup) -> Mapping[str, str]:
    """Ask for what the platform needs besides the token; without a terminal it must be set."""
    answers: dict[str, str] = {}
    env = context.profile_env()
    for question in steps.questions:
        first = next(iter(answers.values()), "")
        default = question.default.replace("{domain}", first.rpartition("@")[2])
        known = env.get(question.variable, "").strip()
        if dialog.interactive and question.secret:
            known = dialog.ask_secret(question.label, known)
        elif dialog.interactive:
            none = NONE if question.optional else ""
            known = dialog.ask_line(question.label, known or default or none)
        if question.optional and known in {"", NONE}:
            continue
        if known:
            answers[question.variable] = known
        else:
            raise UsageError(
                f"{question.variable} is not set.",
                hint=f"Set {question.variable} in the environment or in .env, then try again.",
            )
    return answers


def _checked_token(
    args: Namespace,
    context: CliContext,
    dialog: TerminalDialog,
    manifest: ChannelManifest,
    steps: ChannelSetup,
    answers: Mapping[str, str],
) -> tuple[str, AccountCheck]:
    """Ask until the platform accepts the token. Raises the last error."""
    for attempt in range(1, MAX_ATTEMPTS + 1):
        if args.token_stdin:
            token = dialog.key_from_stdin(optional=steps.secret_optional)
        elif dialog.interactive:
            token = dialog.ask_key(manifest.label, steps.secret, optional=steps.secret_optional)
        else:
            raise UsageError(
                f"The {steps.secret.lower()} is asked for at a terminal.",
                hint=f"hermes gateway setup {manifest.name} --token-stdin < FILE",
            )
        try:
            return token, _check(token, context, manifest, steps, answers)
        except HermesError as error:
            if args.token_stdin or attempt == MAX_ATTEMPTS:
                raise
            dialog.print(error.sentence)
    raise AssertionError("unreachable")


def _check(
    token: str,
    context: CliContext,
    manifest: ChannelManifest,
    steps: ChannelSetup,
    answers: Mapping[str, str],
) -> AccountCheck:
    env = {**context.profile_env(), **answers}
    return anyio.run(check_account, manifest, steps, context.load_config().config, env, token)


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
            context.with_profile(f"New people get a pairing code; approve it with: {pairing}")
        )
