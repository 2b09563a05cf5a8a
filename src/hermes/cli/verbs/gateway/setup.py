"""`hermes gateway setup`: ask for the token of a chat app, check it, then save it.

Only the check runs in an event loop: a question inside one could not be interrupted with Ctrl+C.
"""

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import anyio

from hermes.app.channel_setup import check_account, store_account, turn_on
from hermes.app.channels import enabled_platforms
from hermes.app.chat_settings import ChatSettings
from hermes.app.service.lock import running_gateway
from hermes.channels import MANIFESTS
from hermes.cli.context import CliContext
from hermes.cli.dialog import BACK, TerminalDialog
from hermes.cli.output import Printer
from hermes.config.editor import set_variable
from hermes.config.home import ensure_home
from hermes.config.platforms import facts_of
from hermes.config.variables import ROOM_LISTS, mask_room_keys, room_keys
from hermes.gateway.platform_settings import WILDCARD, parse_list, platform_variable
from hermes.kit.terminal_text import single_line
from hermes.ports.channel import AccountCheck, ChannelManifest, ChannelSetup, SetupQuestion
from hermes.schema.errors import HermesError, UsageError

if TYPE_CHECKING:
    from hermes.config.home import Home

MAX_ATTEMPTS = 3
ALLOWED_USERS = "ALLOWED_USERS"
NONE = "-"
"""The answer that skips an optional variable."""


class _Back(Exception):
    """The answer to the first question was to go back."""


def setup(args: Namespace, context: CliContext) -> int:
    home = context.home()
    ensure_home(home)
    context.load_config()  # raises for a broken file, before any question
    dialog = TerminalDialog(context, interactive=not args.token_stdin)
    stored = ""
    try:
        manifest, steps, token, found = _connected_account(args, context, dialog, home)
        stored = f"The {steps.secret.lower()} is" if token else "The answers are"
        _report(context, home, manifest, found, stored)
        _save_users(args, context, dialog, manifest, steps)
    except KeyboardInterrupt:
        kept = f"{stored} stored; run it again to set the rest." if stored else "Nothing is stored."
        context.note(f"\nStopped. {kept}")
        raise
    is_running = running_gateway(home) is not None
    start = "To use it: hermes gateway restart" if is_running else "Start it: hermes gateway start"
    context.print(context.with_profile(start))
    return 0


def _connected_account(
    args: Namespace, context: CliContext, dialog: TerminalDialog, home: "Home"
) -> tuple[ChannelManifest, ChannelSetup, str, AccountCheck]:
    """Ask until the platform accepts the account, then store it. Raises the last error."""
    while True:
        manifest, steps = _platform(args, context, dialog)
        _check_users(args.allow or "", steps)
        if dialog.interactive:
            lines = [f"  {number}. {step}" for number, step in enumerate(steps.steps, 1)]
            _print(context, *lines, "  Ctrl+C stops, < goes back to the previous question.")
        try:
            answers, found = _checked_answers(args, context, dialog, manifest, steps)
        except _Back:
            continue
        token = answers.pop(steps.variable, "")
        store_account(home, steps, token, answers, found)
        return manifest, steps, token, found


def _report(
    context: CliContext, home: "Home", manifest: ChannelManifest, found: AccountCheck, stored: str
) -> None:
    _print(context, f"Connected as {single_line(found.account)}. {stored} stored in {home.dotenv}.")
    for note in found.notes:
        _print(context, f"Note: {single_line(note)}")
    if turn_on(home, context.load_config().config, manifest.name):
        context.print(f"{manifest.label} was turned off in {home.config.name}; it is on again.")


def _print(context: CliContext, *lines: str) -> None:
    printer = Printer(context)
    for line in lines:
        context.print(line if printer.width is None else printer.style.wrap_text(line))


def _platform(
    args: Namespace, context: CliContext, dialog: TerminalDialog
) -> tuple[ChannelManifest, ChannelSetup]:
    known = {name: one for name, one in MANIFESTS.items() if one.setup is not None}
    names = ", ".join(known)
    if not args.platform and not dialog.interactive:
        raise UsageError(
            "No platform given.", hint=f"Choose one: hermes gateway setup NAME (available: {names})"
        )
    name = args.platform
    if not name:
        ready = enabled_platforms(context.load_config().config, context.profile_env())
        rows = [
            (one, f"{manifest.label}{' (set up)' if one in ready else ''}")
            for one, manifest in known.items()
        ]

        def problem_with(typed: str) -> str:
            return "" if typed in known else f"{typed} is not in the list."

        name = dialog.choose("Which chat app?", rows, next(iter(known)), problem_with)
    manifest = known.get(name)
    if manifest is None or manifest.setup is None:
        raise UsageError(f"Unknown platform: {single_line(name)}.", hint=f"Available: {names}")
    return manifest, manifest.setup


def _checked_answers(
    args: Namespace,
    context: CliContext,
    dialog: TerminalDialog,
    manifest: ChannelManifest,
    steps: ChannelSetup,
) -> tuple[dict[str, str], AccountCheck]:
    """Ask everything again if the platform refuses the answers; the last ones are kept."""
    env = context.profile_env()
    names = [*(one.variable for one in steps.questions), steps.variable]
    known = {name: env.get(name, "").strip() for name in names}
    for attempt in range(1, MAX_ATTEMPTS + 1):
        if dialog.interactive:
            stored = {name: env.get(name, "").strip() for name in names}
            questions = _questions(manifest, steps)
            known = _asked(dialog, questions, known, stored, chosen=bool(args.platform))
        else:
            known = _unattended_answers(args, dialog, manifest, steps, known)
        try:
            return known, _check(known, context, manifest, steps)
        except HermesError as error:
            if not dialog.interactive or attempt == MAX_ATTEMPTS:
                raise
            # The hint may name this very command.
            is_here = "hermes gateway setup" in error.hint
            dialog.print(str(error) if is_here else error.sentence)
    raise AssertionError("unreachable")


def _questions(manifest: ChannelManifest, steps: ChannelSetup) -> list[SetupQuestion]:
    token = SetupQuestion(
        steps.variable,
        f"{steps.secret} for {manifest.label}",
        optional=steps.secret_optional,
        secret=True,
    )
    return [*steps.questions, token]


def _asked(
    dialog: TerminalDialog,
    questions: Sequence[SetupQuestion],
    known: Mapping[str, str],
    stored: Mapping[str, str],
    *,
    chosen: bool,
) -> dict[str, str]:
    """Ask each question; `chosen` if there is none before the first. Raises `_Back`."""
    answers, number = dict(known), 0
    while number < len(questions):
        # A stored secret is not sent to another server, nor used for another account.
        plain = [one.variable for one in questions[:number] if not one.secret]
        is_moved = any(answers[name] != stored[name] for name in plain)
        secret = [one.variable for one in questions if one.secret or _has_room_keys(one, stored)]
        dropped = secret if is_moved else []
        offered = {
            name: "" if name in dropped and value == stored[name] else value
            for name, value in answers.items()
        }
        answer = _ask(dialog, questions[number], offered, questions[0].variable)
        if answer != BACK:
            answers[questions[number].variable] = answer
            number += 1
        elif number:
            number -= 1
        elif chosen:
            dialog.print("This is the first question.")
        else:
            raise _Back
    return answers


def _ask(
    dialog: TerminalDialog, question: SetupQuestion, answers: Mapping[str, str], first: str
) -> str:
    known = answers.get(question.variable, "")
    if question.secret:
        answer = dialog.ask_secret(question.label, known, optional=question.optional)
    else:
        shown = mask_room_keys(known) if question.variable in ROOM_LISTS else known
        default = shown or question.default.replace("{domain}", domain_of(answers.get(first, "")))
        default = default or (NONE if question.optional else "")
        while (answer := dialog.ask_line(question.label, default)) != shown:
            if not (problem := _problem(question, answer)):
                break
            dialog.print(problem)
        if answer == shown:
            answer = known
    return "" if question.optional and answer == NONE else answer


def _problem(question: SetupQuestion, answer: str) -> str:
    """Why the answer cannot be used; it is not repeated, because it may contain a key."""
    is_value = answer != BACK and not (question.optional and answer in {"", NONE})
    if is_value and question.pattern and not re.fullmatch(question.pattern, answer):
        return f"Expected {question.expected}."
    return ""


def _has_room_keys(question: SetupQuestion, answers: Mapping[str, str]) -> bool:
    name = question.variable
    return name in ROOM_LISTS and bool(room_keys(answers[name]))


def domain_of(name: str) -> str:
    """The server in ann@example.org and in @ann:example.org."""
    user = name.rpartition("@")[2]
    return user.partition(":")[2] or user


def _unattended_answers(
    args: Namespace,
    dialog: TerminalDialog,
    manifest: ChannelManifest,
    steps: ChannelSetup,
    known: Mapping[str, str],
) -> dict[str, str]:
    """The answers without a terminal: variables that are set, and the token from stdin."""
    for question in steps.questions:
        if not known[question.variable] and not question.optional:
            raise UsageError(
                f"{question.variable} is not set.",
                hint=f"Set {question.variable} in the environment or in .env, then try again.",
            )
    if not args.token_stdin:
        raise UsageError(
            f"Entering the {steps.secret.lower()} needs a terminal.",
            hint=f"Or pipe it in: hermes gateway setup {manifest.name} --token-stdin < FILE",
        )
    return {**known, steps.variable: dialog.key_from_stdin(optional=steps.secret_optional)}


def _check(
    answers: Mapping[str, str],
    context: CliContext,
    manifest: ChannelManifest,
    steps: ChannelSetup,
) -> AccountCheck:
    env, token = {**context.profile_env(), **answers}, answers[steps.variable]
    return anyio.run(check_account, manifest, steps, context.load_config().config, env, token)


def _save_users(
    args: Namespace,
    context: CliContext,
    dialog: TerminalDialog,
    manifest: ChannelManifest,
    steps: ChannelSetup,
) -> None:
    """Ask who may write, unless that is set already."""
    facts = facts_of(manifest.name)
    if facts.sender_role:
        return
    variable = platform_variable(manifest.name, ALLOWED_USERS)
    extra = ChatSettings(context.load_config().config).platform(manifest.name).extra
    user_ids = args.allow or ""
    known = parse_list(context.profile_env().get(variable) or extra.get("allow_from") or "")
    if not user_ids and not known and dialog.interactive:
        user_ids = _ask_users(context, dialog, steps, pairing=facts.pairing)
    if ids := [one for one in parse_list(user_ids) if one != NONE]:
        set_variable(context.home(), variable, ",".join(ids))
        context.print(f"Allowed: {', '.join(map(single_line, ids))} ({variable}).")
    elif known:
        context.print(f"Allowed: {', '.join(map(single_line, known))}, as before.")
    elif facts.pairing:
        pairing = f"hermes pairing approve {manifest.name} CODE"
        context.print(
            context.with_profile(f"New people get a pairing code; approve it with: {pairing}")
        )
    else:
        _print(context, f"The agent answers no one until {variable} is set.")


def _ask_users(
    context: CliContext, dialog: TerminalDialog, steps: ChannelSetup, *, pairing: bool
) -> str:
    _print(context, f"Who may talk to the agent? A user id is {steps.user_id}.")
    instead = "- to approve people with a pairing code" if pairing else "- to set them later"
    while True:
        user_ids = dialog.ask_line(f"User ids, or {instead}", NONE)
        try:
            _check_users(user_ids, steps)
        except UsageError as error:
            dialog.print(error.sentence)
            continue
        return user_ids


def _check_users(user_ids: str, steps: ChannelSetup) -> None:
    """Raises `UsageError` for what is not a user id, because it would have no effect."""
    for one in parse_list(user_ids):
        valid = one in {NONE, WILDCARD} or re.fullmatch(steps.user_pattern, one, re.IGNORECASE)
        if not valid:
            raise UsageError(
                f"{single_line(one)} is not a user id.", hint=f"A user id is {steps.user_id}."
            )
