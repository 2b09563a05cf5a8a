"""Which profile a message belongs to, where one gateway serves several."""

from collections.abc import Sequence

from hermes.config.sections.chats import ProfileRoute
from hermes.session.keys import SessionSource

_THREAD, _CHAT, _GUILD = 8, 4, 2


def profile_for(source: SessionSource, routes: Sequence[ProfileRoute]) -> str | None:
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
