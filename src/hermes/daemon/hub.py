"""Messages between the profiles of one process: a bot of one may serve chats of another."""

import logging
from collections.abc import Mapping
from functools import partial

from msgspec import structs

from hermes.daemon.tenant import Tenant
from hermes.gateway.door import source_of
from hermes.gateway.gateway import Hear, Lent
from hermes.gateway.letters import TurnedAway, Welcome
from hermes.gateway.routes import profile_for
from hermes.ports.channel import Inbound
from hermes.telemetry.logs import at_work_for

log = logging.getLogger(__name__)

NOT_SERVED = "The agent of this chat is not running just now. Try again later."


class Hub:
    """Whose channel heard a message decides who may speak; the routes decide whom it is for."""

    def __init__(self, tenants: Mapping[str, Tenant]) -> None:
        self._tenants = tenants

    def assemble(self) -> None:
        """Build all gateways, each with what the others lend it, and let them begin."""
        for tenant in self._tenants.values():
            tenant.assemble(self._lent_to(tenant))
        for tenant in self._tenants.values():
            tenant.begin(self._ear_of(tenant))

    def _lent_to(self, borrower: Tenant) -> Mapping[str, Lent]:
        lent: dict[str, Lent] = {}
        for lender in self._tenants.values():
            routed = {route.profile for route in lender.routes if route.enabled}
            if lender is borrower or borrower.profile not in routed:
                continue
            lender.borrowers.append(borrower)
            for name, channel in lender.channels.items():
                online = partial(_is_online, lender, name)
                lent[lent_name(name, lender.profile)] = Lent(channel, online, lender.pacers[name])
        return lent

    def _ear_of(self, tenant: Tenant) -> Hear:
        async def hear(inbound: Inbound) -> None:
            target = self._target(tenant, inbound)
            if target is tenant:
                await tenant.gateway.intake.deliver(inbound)
                return
            if target is None:
                await tenant.gateway.intake.deliver(inbound, partial(_declined, tenant))
                return
            channel = lent_name(inbound.address.channel, tenant.profile)
            address = structs.replace(inbound.address, channel=channel)
            door = partial(tenant.door.welcome, space=target.door.space)
            with at_work_for(target.app.home.logs):
                passed_on = structs.replace(inbound, address=address)
                await target.gateway.intake.deliver(passed_on, door)

        return hear

    def _target(self, tenant: Tenant, inbound: Inbound) -> Tenant | None:
        """None when it is for somebody who is not served: nobody else may answer for them."""
        profile = profile_for(source_of(inbound), tenant.routes)
        if profile is None or profile == tenant.profile:
            return tenant
        target = self._tenants.get(profile)
        if target is None or target.ended.is_set():
            log.warning("a message is for the profile %s, which is not served", profile)
            return None
        return target


async def _declined(tenant: Tenant, inbound: Inbound) -> Welcome | TurnedAway:
    """Whoever may not speak at all hears nothing, as always."""
    welcome = await tenant.door(inbound)
    return TurnedAway(NOT_SERVED) if isinstance(welcome, Welcome) else welcome


def lent_name(channel: str, lender: str) -> str:
    return f"{channel}@{lender}"


def _is_online(lender: Tenant, channel: str) -> bool:
    return not lender.ended.is_set() and lender.gateway.supervisor.online(channel)
