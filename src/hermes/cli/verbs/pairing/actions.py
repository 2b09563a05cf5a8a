"""What `hermes pairing` does: list who asks, approve, revoke, forget."""

from argparse import Namespace
from collections.abc import Sequence

from hermes.cli.context import CliContext
from hermes.config.home import DEFAULT_PROFILE
from hermes.gateway.pairing import (
    PairedUser,
    Pairing,
    PairingRefusal,
    PairingRefused,
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
            forgotten = pairing.clear_pending(args.platform)
            context.stdout.write(f"{plural(forgotten, 'code')} forgotten\n")
            return 0
        case _:
            return _list(context, pairing, args.platform, clock)


def _list(context: CliContext, pairing: Pairing, platform: str | None, clock: Clock) -> int:
    waiting, let_in = pairing.pending(platform), pairing.grants(platform)
    if not waiting and not let_in:
        context.stderr.write("Nobody waits for approval, and nobody was let in by a code.\n")
        return 0
    if waiting:
        _table(context, "Waiting for approval", "ASKED", _rows(waiting, clock))
    if waiting and let_in:
        context.stdout.write("\n")
    if let_in:
        _table(context, "Let in", "SINCE", _rows(let_in, clock))
    return 0


def _rows(people: Sequence[PairingRequest | PairedUser], clock: Clock) -> list[tuple[str, ...]]:
    from hermes.cli.dates import relative_time
    from hermes.kit.terminal_text import single_line

    rows: list[tuple[str, ...]] = []
    for one in people:
        when = one.asked_at if isinstance(one, PairingRequest) else one.approved_at
        since = relative_time(when, clock.now()) if when else ""
        rows.append((one.platform, single_line(one.user), since, single_line(one.name)))
    return rows


def _table(context: CliContext, title: str, when: str, rows: list[tuple[str, ...]]) -> None:
    from hermes.cli.output import Printer

    context.stdout.write(f"{title}:\n")
    Printer(context).table([("PLATFORM", "USER", when, "NAME"), *rows])


def _approve(context: CliContext, pairing: Pairing, platform: str, code: str) -> int:
    from hermes.kit.terminal_text import single_line

    answer = pairing.approve(platform, code)
    if isinstance(answer, PairingRefused):
        raise _refusal_error(platform, answer)
    name = f" ({single_line(answer.name)})" if answer.name else ""
    flag = _profile_flag(context)
    context.stdout.write(
        f"{single_line(answer.user)}{name} may talk to the agent on {answer.platform} from now on\n"
        f"Undo it with: hermes{flag} pairing revoke {answer.platform} {single_line(answer.user)}\n"
    )
    return 0


def _profile_flag(context: CliContext) -> str:
    """What makes a command that we show mean this profile."""
    profile = context.home().profile
    return "" if profile == DEFAULT_PROFILE else f" -p {profile}"


def _refusal_error(platform: str, answer: PairingRefused) -> HermesError:
    minutes = plural(max(1, round(answer.wait / 60)), "minute")
    if answer.why is PairingRefusal.LOCKED:
        return UsageError(
            f"No code for {platform} is accepted now: too many wrong ones were tried",
            hint=f"Try again in {minutes}.",
        )
    if not answer.tries_left:
        return UsageError(
            f"Nobody on {platform} waits with this code; that was one wrong code too many",
            hint=f"Codes for {platform} are accepted again in {minutes}.",
        )
    return UsageError(
        f"Nobody on {platform} waits with this code: it is mistyped, or older than an hour "
        f"({_tries(answer.tries_left)} left)",
        hint="A new message to the agent brings a new code.",
    )


def _tries(count: int) -> str:
    return "1 try" if count == 1 else f"{count} tries"


def _revoke(context: CliContext, pairing: Pairing, platform: str, user: str) -> int:
    gone = pairing.revoke(platform, user)
    name = platform_variable(platform.strip().lower(), "ALLOWED_USERS")
    if not gone:
        flag = _profile_flag(context)
        also = f" To close {name} to somebody, change it with: hermes{flag} config set {name} IDS"
        raise UsageError(
            f"Nobody with the id {user!r} was let in by a code on {platform}",
            hint=f"See who was with: hermes{flag} pairing list {platform}.{also}",
        )
    context.stdout.write(f"{user} is no longer let in on {platform}\n")
    _remove_from_allowed(context, platform, user, name)
    return 0


def _remove_from_allowed(context: CliContext, platform: str, user: str, name: str) -> None:
    """A person on the list of allowed users would come in all the same."""
    from hermes.config.dotenv import read_dotenv
    from hermes.config.editor import set_variable, unset_variable

    home = context.home()
    own = read_dotenv(home.dotenv).get(name)
    named = parse_list(own if own is not None else context.env.get(name, ""))
    others = [one for one in named if not _is_same_id(platform, one, user)]
    if len(others) == len(named):
        return
    if own is None:
        context.stderr.write(
            f"hermes: {user} is named in {name} as well, which is set outside of {home.dotenv}\n"
            "  Take it out there and restart the gateway; until then it lets this person in.\n"
        )
        return
    if others:
        set_variable(home, name, ",".join(others))
    else:
        unset_variable(home, name)
    context.stdout.write(
        f"{user} is taken out of {name} as well; a running gateway must be restarted for that\n"
    )


def _is_same_id(platform: str, one: str, other: str) -> bool:
    return canonical_id(platform, one) == canonical_id(platform, other)
