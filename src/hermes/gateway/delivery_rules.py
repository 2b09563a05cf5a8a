"""Rules for retrying deliveries and giving up."""

from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.gateway.messages import OutboxMessage
from hermes.gateway.shutdown_budget import SEND_SECONDS
from hermes.kit.retry import Backoff
from hermes.ports.store import QueueItem

QuotePolicy: TypeAlias = Literal["off", "first", "all"]


class PendingDelivery(Struct):
    """`sent_separately`: the answer was sent separately and the progress message needs a final
    edit.
    """

    item: QueueItem
    reply: OutboxMessage
    sent_separately: bool = False

    @property
    def attempts(self) -> int:
        return self.item.attempts - self.reply.free


class DeliveryRules(Struct, frozen=True, kw_only=True):
    """Limits for retries and calls.

    `unsure`: how often a post with an unknown outcome is repeated. `send_timeout` and
    `edit_timeout` are timeouts in seconds for sending and editing. `replies`: which chunks quote
    the question.
    """

    attempts: int = 8
    max_unsure: int = 2
    send_timeout: float = SEND_SECONDS
    edit_timeout: float = 10.0
    stale: timedelta = timedelta(hours=24)
    concurrency: int = 64
    backoff: Backoff = Backoff(base=1.0, cap=120.0)
    replies: QuotePolicy = "first"

    def quotes(self, index: int) -> bool:
        return self.replies == "all" or (self.replies == "first" and index == 0)

    def reason_to_stop(self, pending: PendingDelivery, now: datetime) -> str | None:
        """Return why to give up, or None to try again."""
        reply = pending.reply
        if reply.unsure > self.max_unsure:
            return f"Sent {reply.unsure} times with an unknown outcome."
        if pending.attempts >= self.attempts:
            return f"Given up after {pending.attempts} attempts."
        if now - reply.at > self.stale:
            return "Too old to deliver."
        return None
