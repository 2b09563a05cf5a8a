"""When a message was written, told to the model at its beginning."""

from datetime import datetime, tzinfo

from msgspec import structs

from hermes.kit.clock import Clock
from hermes.schema.messages import Text, User


class Stamps:
    """In the zone of the settings; None is that of this machine."""

    def __init__(self, clock: Clock, zone: tzinfo | None = None) -> None:
        self._clock = clock
        self._zone = zone

    def __call__(self, user: User) -> User:
        stamp = stamp_at(self._clock.now().astimezone(self._zone))
        match user.parts:
            case (Text(text), *rest):
                return structs.replace(user, parts=(Text(f"{stamp} {text}"), *rest))
            case _:
                return structs.replace(user, parts=(Text(stamp), *user.parts))


def stamp_at(moment: datetime) -> str:
    """Such as `[Mon 2026-11-16 15:09 CET]`."""
    return f"[{moment:%a %Y-%m-%d %H:%M %Z}]"


def unstamped(user: User) -> User:
    return user
