"""`hermes people`: link the chat accounts that belong to the same person."""

from argparse import Namespace

from hermes.app.chat_users import check_chat_platform
from hermes.cli.context import CliContext
from hermes.cli.output import Printer
from hermes.gateway.people import LinkedAccount, LinkedPerson, People, parse_account
from hermes.kit.clock import SystemClock
from hermes.kit.terminal_text import single_line
from hermes.schema.errors import UsageError
from hermes.schema.scope import platform_of

_PROOFS = {"owner": "you", "code": "a code"}


def run(args: Namespace, context: CliContext) -> int:
    people = People(context.home().people, SystemClock())
    match args.action:
        case "link":
            accounts = [parse_account(text) for text in (args.account, *args.others)]
            config = context.load_config().config
            for one in accounts:
                check_chat_platform(platform_of(one.partition(":")[0]), config)
            person = people.link([LinkedAccount(account=one, proof="owner") for one in accounts])
            shown = ", ".join(map(single_line, person.names))
            context.print(f"One person now: {shown}")
            _note_accounts_by_code(context, person)
            return 0
        case "unlink":
            account = parse_account(args.account)
            if not people.unlink(account):
                raise UsageError(
                    f"{single_line(account)} is not linked.", hint="See: hermes people list"
                )
            context.print(f"{single_line(account)} is a separate person again.")
            return 0
        case _:
            return _list(context, people)


def _note_accounts_by_code(context: CliContext, person: LinkedPerson) -> None:
    """Point out merged accounts that were linked in chats, which the owner may not know."""
    by_code = [
        single_line(account.account) for account in person.accounts if account.proof == "code"
    ]
    if by_code:
        context.note(
            f"Among them, linked by a code and not by you: {', '.join(by_code)}. "
            f"If one belongs to someone else: hermes people unlink {by_code[0]}"
        )


def _list(context: CliContext, people: People) -> int:
    known = people.all()
    if not known:
        context.note("No accounts are linked.")
        return 0
    rows = [
        (str(number), single_line(account.account), _PROOFS[account.proof])
        for number, person in enumerate(known, 1)
        for account in person.accounts
    ]
    Printer(context).table([("PERSON", "ACCOUNT", "LINKED BY"), *rows])
    return 0
