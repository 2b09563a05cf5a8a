"""Link the accounts of a person for the command `/link`."""

from collections.abc import Sequence

from anyio.to_thread import run_sync

from hermes.app.build import App
from hermes.commands.surface import Person
from hermes.gateway.messages import OutboxMessage, outbox_post, wake_outbox
from hermes.gateway.people import LinkedAccount, People
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.schema.scope import Address

MAX_NAME = 64


class PeopleCommands:
    """Implements `hermes.commands.services.PeopleControl`."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._people = People(app.home.people, app.clock)

    async def accounts(self, account: str) -> Sequence[str]:
        person = await run_sync(self._people.find, account)
        return person.names if person is not None else ()

    async def issue(self, account: str, address: Address, person: Person) -> str:
        shown = one_line(person.name, MAX_NAME)
        return await run_sync(self._people.issue, account, address.chat, shown, person.ids)

    async def check(self, account: str, code: str) -> str:
        found = await run_sync(self._people.check, account, code)
        return f"{found.account} ({found.name})" if found.name else found.account

    async def redeem(
        self, account: str, address: Address, person: Person, code: str
    ) -> Sequence[str]:
        found, linked = await run_sync(self._people.redeem, account, address.chat, code, person.ids)
        other = LinkedAccount(account=found.account, proof="code", chat=found.chat)
        await self._notify(Address(other.channel, other.chat), account)
        return linked.names

    async def unlink(self, account: str) -> bool:
        return await run_sync(self._people.unlink, account)

    async def _notify(self, address: Address, account: str) -> None:
        """Notify the person where the code was shown, because it may have been stolen."""
        text = f"{account} is now linked with your account. If that is not you: /link remove"
        post = OutboxMessage(address=address, text=text, at=self._app.clock.now())
        await self._app.store.commit(outbox_post(new_id("send"), post))
        wake_outbox(self._app.bus, address)
