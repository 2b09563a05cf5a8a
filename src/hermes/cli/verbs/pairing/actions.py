"""The actions of `hermes pairing`: list, approve, revoke and clear."""

from argparse import Namespace
from collections.abc import Sequence

from hermes.cli.context import CliContext
from hermes.config.home import DEFAULT_PROFILE
from hermes.gateway.pairing import (
    PairedUser,
    Pairing,
    PairingRejected,
    PairingRejection,
    PairingRequest,
)
from hermes.gateway.platform_settings import canonical_id, parse_list, platform_variable
from hermes.kit.clock import Clock
from hermes.kit.text import plural
from hermes.schema.errors import HermesError, UsageError


def perform(args: Namespace, context: CliContext, clock: Clock) -> int:
    pairing = Pairing(context.home().pairing, clock)
    match args.action:
        case "approve":
            return _approve(context, pairing, args.platform, args.code)
        case "revoke":
            return _revoke(context, pairing, args.platform, args.user)
        case "clear-pending":
            count = pairing.clear_pending(args.platform)
            context.stdout.write(f"{plural(count, 'code')} discarded\n")
            return 0
        case _:
            return _list(context, pairing, args.platform, clock)


def _list(context: CliContext, pairing: Pairing, platform: str | None, clock: Clock) -> int:
    waiting, approved = pairing.pending(platform), pairing.paired_users(platform)
    if not waiting and not approved:
        context.stderr.write("No pending requests and no approved users.\n")
        return 0
    if waiting:
        _table(context, "Pending", "ASKED", _rows(waiting, clock))
    if waiting and approved:
        context.stdout.write("\n")
    if approved:
        _table(context, "Approved", "SINCE", _rows(approved, clock))
    return 0


def _rows(people: Sequence[PairingRequest | PairedUser], clock: Clock) -> list[tuple[str, ...]]:
    from hermes.cli.dates import relative_time
    from hermes.kit.terminal_text import single_line

    rows: list[tuple[str, ...]] = []
    for person in people:
        when = person.asked_at if isinstance(person, PairingRequest) else person.approved_at
        since = relative_time(when, clock.now()) if when else ""
        rows.append((person.platform, single_line(person.user), since, single_line(person.name)))
    return rows


def _table(context: CliContext, title: str, when: str, rows: list[tuple[str, ...]]) -> None:
    from hermes.cli.output import Printer

    context.stdout.write(f"{title}:\n")
    Printer(context).table([("PLATFORM", "USER", when, "NAME"), *rows])


def _approve(context: CliContext, pairing: Pairing, platform: str, code: str) -> int:
    from hermes.kit.terminal_text import single_line

    answer = pairing.approve(platform, code)
    if isinstance(answer, PairingRejected):
        raise _refusal_error(platform, answer)
    name = f" ({single_line(answer.name)})" if answer.name else ""
    flag = _profile_flag(context)
    context.stdout.write(
        f"{single_line(answer.user)}{name} can now message the agent on {answer.platform}\n"
        f"Undo: hermes{flag} pairing revoke {answer.platform} {single_line(answer.user)}\n"
    )
    return 0


def _profile_flag(context: CliContext) -> str:
    """The `-p NAME` flag for commands in hints; empty for the default profile."""
    profile = context.home().profile
    return "" if profile == DEFAULT_PROFILE else f" -p {profile}"


def _refusal_error(platform: str, answer: PairingRejected) -> HermesError:
    minutes = plural(max(1, round(answer.wait / 60)), "minute")
    if answer.reason is PairingRejection.LOCKED:
        return UsageError(
            f"Codes for {platform} are locked after too many wrong attempts",
            hint=f"Try again in {minutes}.",
        )
    if not answer.tries_left:
        return UsageError(
            f"Wrong code for {platform}; codes are now locked after too many wrong attempts",
            hint=f"Try again in {minutes}.",
        )
    return UsageError(
        f"Wrong or expired code for {platform} ({_tries(answer.tries_left)} left)",
        hint="Codes expire after an hour; a new message to the agent creates a new one.",
    )


def _tries(count: int) -> str:
    return "1 try" if count == 1 else f"{count} tries"


def _revoke(context: CliContext, pairing: Pairing, platform: str, user: str) -> int:
    revoked = pairing.revoke(platform, user)
    name = platform_variable(platform.strip().lower(), "ALLOWED_USERS")
    if not revoked:
        flag = _profile_flag(context)
        also = f" To remove someone from {name}: hermes{flag} config set {name} IDS"
        raise UsageError(
            f"{user!r} is not an approved user on {platform}",
            hint=f"List the approved users: hermes{flag} pairing list {platform}.{also}",
        )
    context.stdout.write(f"{user} can no longer message the agent on {platform}\n")
    _remove_from_allowed(context, platform, user, name)
    return 0


def _remove_from_allowed(context: CliContext, platform: str, user: str, name: str) -> None:
    """Remove the user from the allow list too, which would still admit them."""
    from hermes.config.dotenv import read_dotenv
    from hermes.config.editor import set_variable, unset_variable

    home = context.home()
    own = read_dotenv(home.dotenv).get(name)
    allowed = parse_list(own if own is not None else context.env.get(name, ""))
    others = [entry for entry in allowed if not _is_same_id(platform, entry, user)]
    if len(others) == len(allowed):
        return
    if own is None:
        context.stderr.write(
            f"hermes: warning: {user} is also in {name}, which is set outside {home.dotenv}\n"
            "  Remove it there and restart the gateway; until then this person has access.\n"
        )
        return
    if others:
        set_variable(home, name, ",".join(others))
    else:
        unset_variable(home, name)
    context.stdout.write(
        f"{user} was also removed from {name}; restart a running gateway to apply this\n"
    )


def _is_same_id(platform: str, one: str, other: str) -> bool:
    return canonical_id(platform, one) == canonical_id(platform, other)
