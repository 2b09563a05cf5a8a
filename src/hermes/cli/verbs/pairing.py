"""`hermes pairing`: approve or revoke people who message the agent from chat apps."""

from argparse import Namespace
from collections.abc import Sequence

from hermes.app.chat_users import approve, check_chat_platform, remove_from_variables
from hermes.cli.context import CliContext
from hermes.cli.dates import relative_time
from hermes.cli.output import Printer
from hermes.config.env import read_dotenv
from hermes.config.home import DEFAULT_PROFILE
from hermes.gateway.pairing import PairedUser, Pairing, PairingRequest
from hermes.gateway.platform_settings import platform_variable
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.terminal_text import single_line
from hermes.kit.text import plural
from hermes.schema.errors import UsageError


def run(args: Namespace, context: CliContext) -> int:
    clock = SystemClock()
    pairing = Pairing(context.home().pairing, clock)
    match args.action:
        case "approve":
            return _approve(context, pairing, args.platform, args.code)
        case "revoke":
            return _revoke(context, pairing, args.platform, args.user)
        case "clear-pending":
            count = pairing.clear_pending(args.platform)
            context.print(f"{plural(count, 'code')} discarded")
            return 0
        case _:
            return _list(context, pairing, args.platform, clock)


def _list(context: CliContext, pairing: Pairing, platform: str | None, clock: Clock) -> int:
    waiting, approved = pairing.pending(platform), pairing.paired_users(platform)
    if not waiting and not approved:
        context.note("No pending requests and no approved users.")
    if waiting:
        _print_table(context, "Pending", "ASKED", waiting, clock)
    if waiting and approved:
        context.print("")
    if approved:
        _print_table(context, "Approved", "SINCE", approved, clock)
    return 0


def _print_table(
    context: CliContext,
    title: str,
    when_heading: str,
    people: Sequence[PairingRequest | PairedUser],
    clock: Clock,
) -> None:
    rows = [("PLATFORM", "USER", when_heading, "NAME")]
    for person in people:
        when = person.asked_at if isinstance(person, PairingRequest) else person.approved_at
        since = relative_time(when, clock.now()) if when else ""
        rows.append((person.platform, single_line(person.user), since, single_line(person.name)))
    context.print(f"{title}:")
    Printer(context).table(rows)


def _approve(context: CliContext, pairing: Pairing, platform: str, code: str) -> int:
    asking = [one.platform for one in pairing.pending()]
    check_chat_platform(platform.strip().lower(), context.load_config().config, asking)
    answer = approve(pairing, platform, code)
    name = f" ({single_line(answer.name)})" if answer.name not in {"", answer.user} else ""
    user, command = single_line(answer.user), f"hermes{_profile_flag(context)} pairing revoke"
    context.print(
        f"{user}{name} can now message the agent on {answer.platform}\n"
        f"Undo: {command} {answer.platform} {user}"
    )
    return 0


def _profile_flag(context: CliContext) -> str:
    """The `-p NAME` flag for commands in hints; empty for the default profile."""
    profile = context.home().profile
    return "" if profile == DEFAULT_PROFILE else f" -p {profile}"


def _revoke(context: CliContext, pairing: Pairing, platform: str, user: str) -> int:
    revoked = pairing.revoke(platform, user)
    name = platform_variable(platform.strip().lower(), "ALLOWED_USERS")
    if not revoked:
        flag = _profile_flag(context)
        also = f" To remove someone from {name}: hermes{flag} config set {name} IDS"
        raise UsageError(
            f"{user!r} is not an approved user on {platform}.",
            hint=f"List the approved users: hermes{flag} pairing list {platform}.{also}",
        )
    context.print(f"{user} can no longer message the agent on {platform}")
    _remove_from_allowed(context, platform, user, name)
    return 0


def _remove_from_allowed(context: CliContext, platform: str, user: str, name: str) -> None:
    """Remove the user from the allow lists too, which would still admit them."""
    home = context.home()
    before = read_dotenv(home.dotenv)
    elsewhere = remove_from_variables(home, context.env, platform.strip().lower(), user)
    for variable in elsewhere:
        context.note(
            f"hermes: warning: {user} is also in {variable}, which is set outside {home.dotenv}\n"
            "  Remove it there and restart the gateway; until then this person has access."
        )
    if read_dotenv(home.dotenv) != before:
        context.print(
            f"{user} was also removed from {name}; restart a running gateway to apply this"
        )
