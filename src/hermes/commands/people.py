"""The slash command `/link`: one identity for the accounts of a person on several platforms."""

from hermes.commands.command import Availability, Command, CommandContext, require_service
from hermes.commands.services import PeopleControl
from hermes.schema.errors import UsageError
from hermes.schema.scope import own_channel
from hermes.schema.terminal import CommandReply, TextReply

_CODE = (
    "Send this from your other account, in a direct chat with me, within 10 minutes:\n\n"
    "/link {code}\n\n"
    "Do not share the code: anyone who sends it is treated as you."
)
_CONFIRM = (
    "This is the code of {other}. If that is you, send:\n\n/link {code} yes\n\n"
    "Both accounts are then one person: they share permissions, limits and sessions. If someone "
    "else gave you this code, do not confirm it."
)


async def _link(context: CommandContext, args: str) -> CommandReply:
    people = require_service(context.services.people, "Accounts cannot be linked here.")
    caller, words = context.caller, args.split()
    if not caller.direct or caller.address is None:
        raise UsageError("Others can read this chat.", hint="Send /link in a direct chat with me.")
    if own_channel(caller.address.channel) != caller.address.channel:
        raise UsageError(
            "This chat uses another profile's account.",
            hint="That profile decides who you are: ask its owner to link your accounts there.",
        )
    if args.lower() == "list":
        return TextReply(await _listed(people, caller.account))
    if args.lower() == "remove":
        if not await people.unlink(caller.account):
            raise UsageError("This account is not linked.")
        return TextReply(f"{caller.account} is a separate person again.")
    if context.is_owner:
        # Tricking the owner into sending a code must not give anyone the owner's rights.
        raise UsageError(
            "The owner's accounts are linked on the command line.",
            hint=f"Run: hermes people link {caller.account} PLATFORM:USER",
        )
    match words:
        case []:
            code = await people.issue(caller.account, caller.address, caller.person)
            return TextReply(_CODE.format(code=code))
        case [code]:
            other = await people.check(caller.account, code)
            return TextReply(_CONFIRM.format(other=other, code=code.upper()))
        case [code, yes] if yes.lower() == "yes":
            person = caller.person
            accounts = await people.redeem(caller.account, caller.address, person, code)
            listed = "\n".join(f"  {account}" for account in accounts)
            return TextReply(f"Your accounts are linked:\n{listed}\n/link remove undoes that.")
        case _:
            raise UsageError(
                "/link takes a code, list or remove.", hint="/link alone shows a code."
            )


async def _listed(people: PeopleControl, account: str) -> str:
    accounts = await people.accounts(account)
    if not accounts:
        return f"{account} is not linked with other accounts. /link shows how."
    return "Your accounts:\n" + "\n".join(f"  {one}" for one in accounts)


COMMANDS = (
    Command(
        name="link",
        usage="[code [yes] | list | remove]",
        summary="Link your accounts on several platforms.",
        availability=Availability.CHAT,
        is_available=lambda context: context.services.people is not None,
        run=_link,
    ),
)
