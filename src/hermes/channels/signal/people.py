"""One id per person: Signal names people by number, by account id, or by both."""

from msgspec import Struct

MAX_PEOPLE = 10_000


class Position(Struct, frozen=True, kw_only=True):
    """The last event that was handled, and under which id each account was first seen.

    `began` is when the channel first ran, in milliseconds.
    """

    began: int = 0
    event: str = ""
    people: dict[str, str] = {}


class People:
    """The id of a person stays the same when their number becomes known later."""

    def __init__(self, known: dict[str, str]) -> None:
        self._known = dict(known)

    def id_of(self, number: str | None, uuid: str | None) -> str:
        """Empty if the sender is sealed and could not be read."""
        if not uuid:
            return number or ""
        if uuid not in self._known:
            self._known[uuid] = number or uuid
            while len(self._known) > MAX_PEOPLE:
                self._known.pop(next(iter(self._known)))
        return self._known[uuid]

    @property
    def known(self) -> dict[str, str]:
        """Ids by account id."""
        return self._known
