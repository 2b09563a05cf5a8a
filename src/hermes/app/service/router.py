"""Messages between the profiles of one process: a bot of one may serve chats of another."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import structs

from hermes.app.service.profile_service import ProfileService
from hermes.config.sections.messaging import ProfileRoute
from hermes.gateway.access import session_source
from hermes.gateway.gateway import BorrowedChannel, HandleInbound
from hermes.gateway.messages import Admitted, Rejected
from hermes.logs.files import log_to
from hermes.ports.channel import Inbound
from hermes.session.keys import SessionSource

log = logging.getLogger(__name__)

NOT_SERVED = "The agent of this chat is not running just now. Try again later."


class Router:
    """Whose channel heard a message decides who may speak; the routes decide whom it is for."""

    def __init__(self, tenants: Mapping[str, ProfileService]) -> None:
        self._profile_services = tenants

    def assemble(self) -> None:
        """Build all gateways, each with what the others lend it, and let them begin."""
        for tenant in self._profile_services.values():
            tenant.assemble(self._borrowed_by(tenant))
        for tenant in self._profile_services.values():
            tenant.begin(self._inbound_handler(tenant))

    def _borrowed_by(self, borrower: ProfileService) -> Mapping[str, BorrowedChannel]:
        lent: dict[str, BorrowedChannel] = {}
        for lender in self._profile_services.values():
            routed = {route.profile for route in lender.routes if route.enabled}
            if lender is borrower or borrower.profile not in routed:
                continue
            lender.borrowers.append(borrower)
            for name, channel in lender.channels.items():
                online = partial(_is_online, lender, name)
                lent[borrowed_channel_name(name, lender.profile)] = BorrowedChannel(
                    channel, online, lender.pacers[name]
                )
        return lent

    def _inbound_handler(self, tenant: ProfileService) -> HandleInbound:
        async def hear(inbound: Inbound) -> None:
            target = self._target(tenant, inbound)
            if target is tenant:
                await tenant.gateway.intake.deliver(inbound)
                return
            if target is None:
                await tenant.gateway.intake.deliver(inbound, partial(_reject_unserved, tenant))
                return
            channel = borrowed_channel_name(inbound.address.channel, tenant.profile)
            address = structs.replace(inbound.address, channel=channel)
            door = partial(tenant.door.welcome, space=target.door.space)
            with log_to(target.app.home.logs):
                passed_on = structs.replace(inbound, address=address)
                await target.gateway.intake.deliver(passed_on, door)

        return hear

    def _target(self, tenant: ProfileService, inbound: Inbound) -> ProfileService | None:
        """None when it is for somebody who is not served: nobody else may answer for them."""
        profile = routed_profile(session_source(inbound), tenant.routes)
        if profile is None or profile == tenant.profile:
            return tenant
        target = self._profile_services.get(profile)
        if target is None or target.ended.is_set():
            log.warning("a message is for the profile %s, which is not served", profile)
            return None
        return target


async def _reject_unserved(tenant: ProfileService, inbound: Inbound) -> Admitted | Rejected:
    """Whoever may not speak at all hears nothing, as always."""
    welcome = await tenant.door(inbound)
    return Rejected(NOT_SERVED) if isinstance(welcome, Admitted) else welcome


def borrowed_channel_name(channel: str, lender: str) -> str:
    return f"{channel}@{lender}"


def _is_online(lender: ProfileService, channel: str) -> bool:
    return not lender.ended.is_set() and lender.gateway.supervisor.online(channel)


_THREAD, _CHAT, _GUILD = 8, 4, 2


def routed_profile(source: SessionSource, routes: Sequence[ProfileRoute]) -> str | None:
    """The profile of the route that says most about the place; of equals, the first one."""
    rated = [(_rating(route, source), route.profile) for route in routes if route.profile]
    fitting = [(rating, profile) for rating, profile in rated if rating is not None]
    if not fitting:
        return None
    return max(fitting, key=lambda one: one[0])[1]


def _rating(route: ProfileRoute, source: SessionSource) -> tuple[int, bool] | None:
    """How exactly the route names this place; None when any of its fields is another."""
    chats = (source.chat_id, source.parent_chat_id)
    fits = (
        (route.platform, route.platform.strip().lower() == source.platform.lower()),
        (route.guild_id, route.guild_id in (source.guild_id, source.scope_id)),
        (route.chat_id, route.chat_id in chats),
        (route.thread_id, route.thread_id == source.thread_id),
    )
    if not route.enabled or not all(same for given, same in fits if given):
        return None
    weights = ((route.thread_id, _THREAD), (route.chat_id, _CHAT), (route.guild_id, _GUILD))
    # A chat named itself is nearer than the one it lies in.
    return sum(weight for given, weight in weights if given), route.chat_id == source.chat_id
