"""Route messages between the profiles of one process, so that one's bot can serve another."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec import structs

from hermes.app.service.profile_service import ProfileService
from hermes.config.sections.messaging import ProfileRoute
from hermes.gateway.access import session_source
from hermes.gateway.composition import BorrowedChannel
from hermes.gateway.gateway import HandleInbound
from hermes.gateway.messages import Admitted, Rejected
from hermes.logs import log_to
from hermes.ports.channel import Inbound
from hermes.schema.errors import NotFound
from hermes.schema.messages import Media
from hermes.session.keys import SessionSource

log = logging.getLogger(__name__)

NOT_SERVED = "The agent of this chat is not running right now. Try again later."


class Router:
    """The receiving profile authorizes a message; its routes choose the profile that answers."""

    def __init__(self, services: Mapping[str, ProfileService]) -> None:
        self._profile_services = services

    def assemble(self) -> None:
        """Build all gateways with their borrowed channels and start them."""
        for service in self._profile_services.values():
            service.assemble(self._borrowed_by(service))
        for service in self._profile_services.values():
            service.begin(self._inbound_handler(service))

    def _borrowed_by(self, borrower: ProfileService) -> Mapping[str, BorrowedChannel]:
        borrowed: dict[str, BorrowedChannel] = {}
        for lender in self._profile_services.values():
            routed = {route.profile for route in lender.routes if route.enabled}
            if lender is borrower or borrower.profile not in routed:
                continue
            lender.borrowers.append(borrower)
            for name, channel in lender.channels.items():
                online = partial(_is_online, lender, name)
                borrowed[borrowed_channel_name(name, lender.profile)] = BorrowedChannel(
                    channel, online, lender.rate_limiters[name]
                )
        return borrowed

    def _inbound_handler(self, service: ProfileService) -> HandleInbound | None:
        """Return None if the profile has no routes: it answers everything itself."""
        if not any(route.enabled for route in service.routes):
            return None

        async def handle(inbound: Inbound) -> None:
            target = self._target(service, inbound)
            if target is service:
                await service.gateway.intake.accept(inbound)
                return
            if target is None:
                await service.gateway.intake.accept(inbound, partial(_reject_unserved, service))
                return
            channel = borrowed_channel_name(inbound.address.channel, service.profile)
            address = structs.replace(inbound.address, channel=channel)
            authorize = partial(_admit_to, target, service)
            with log_to(target.app.home.logs):
                forwarded = structs.replace(inbound, address=address)
                await target.gateway.intake.accept(forwarded, authorize)

        return handle

    def _target(self, service: ProfileService, inbound: Inbound) -> ProfileService | None:
        """Return None if the routed profile is not served; no other profile answers for it."""
        profile = routed_profile(session_source(inbound), service.routes)
        if profile is None or profile == service.profile:
            return service
        target = self._profile_services.get(profile)
        if target is None or target.ended.is_set():
            log.warning("a message was routed to profile %s, which is not served", profile)
            return None
        return target


async def _reject_unserved(service: ProfileService, inbound: Inbound) -> Admitted | Rejected:
    """Reply only to senders that the receiving profile admits."""
    decision = await service.access.admit(inbound)
    return Rejected(NOT_SERVED) if isinstance(decision, Admitted) else decision


async def _admit_to(
    target: ProfileService, service: ProfileService, inbound: Inbound
) -> Admitted | Rejected:
    """Copy the files of an admitted message: the target reads them from its own home."""
    decision = await service.access.admit(inbound, namespace=target.access.namespace)
    files = [part for part in inbound.parts if isinstance(part, Media)]
    for file in files if isinstance(decision, Admitted) else ():
        with suppress(NotFound):
            data = await service.app.blobs.read(file.digest)
            await target.app.blobs.put(data, file.media_type, file.name)
    return decision


def borrowed_channel_name(channel: str, lender: str) -> str:
    return f"{channel}@{lender}"


def _is_online(lender: ProfileService, channel: str) -> bool:
    return not lender.ended.is_set() and lender.gateway.supervisor.online(channel)


_THREAD, _CHAT, _GUILD = 8, 4, 2


def routed_profile(source: SessionSource, routes: Sequence[ProfileRoute]) -> str | None:
    """Return the profile of the most specific matching route; of equals, the first."""
    rated = [(_rating(route, source), route.profile) for route in routes if route.profile]
    matching = [(rating, profile) for rating, profile in rated if rating is not None]
    return max(matching, key=lambda match: match[0])[1] if matching else None


def _rating(route: ProfileRoute, source: SessionSource) -> tuple[int, bool] | None:
    """Rate how specifically the route matches the chat; None if it does not match."""
    chats = (source.chat_id, source.parent_chat_id)
    checks = (
        (route.platform, route.platform.strip().lower() == source.platform.lower()),
        (route.guild_id, route.guild_id in (source.guild_id, source.scope_id)),
        (route.chat_id, route.chat_id in chats),
        (route.thread_id, route.thread_id == source.thread_id),
    )
    if not route.enabled or not all(same for wanted, same in checks if wanted):
        return None
    weights = ((route.thread_id, _THREAD), (route.chat_id, _CHAT), (route.guild_id, _GUILD))
    # A route that names the chat itself beats one that names its parent.
    return sum(weight for wanted, weight in weights if wanted), route.chat_id == source.chat_id
