"""How often and how long a post is tried, and when it is given up."""

from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.gateway.messages import OutboxMessage
from hermes.gateway.shutdown_budget import SEND_SECONDS
from hermes.kit.retry import Backoff
from hermes.ports.store import QueueItem

QuotePolicy: TypeAlias = Literal["off", "first", "all"]


class PendingDelivery(Struct):
    """`beside` says that the post which should have become the answer still shows progress."""

    parcel: QueueItem
    reply: OutboxMessage
    beside: bool = False

    @property
    def attempts(self) -> int:
        return self.parcel.attempts - self.reply.free


class DeliveryRules(Struct, frozen=True, kw_only=True):
    """`unsure` is how often a post is sent again that may have arrived; then it is given up.

    A call to the platform may take `limit` seconds; one that changes a post `edit_limit`, for then
    there is another way. `replies` are the parts of a text that quote what they answer.
    """

    attempts: int = 8
    unsure: int = 2
    limit: float = SEND_SECONDS
    edit_limit: float = 10.0
    stale: timedelta = timedelta(hours=24)
    at_once: int = 64
    backoff: Backoff = Backoff(base=1.0, cap=120.0)
    replies: QuotePolicy = "first"

    def quotes(self, place: int) -> bool:
        return self.replies == "all" or (self.replies == "first" and place == 0)

    def reason_to_stop(self, pending: PendingDelivery, now: datetime) -> str | None:
        """None while it is worth another try."""
        reply = pending.reply
        if reply.unsure > self.unsure:
            return f"Sent {reply.unsure} times, and it is unknown whether it arrived."
        if pending.attempts >= self.attempts:
            return f"Given up after {pending.attempts} attempts."
        if now - reply.at > self.stale:
            return "Too old to be of use."
        return None
