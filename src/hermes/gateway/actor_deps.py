"""What all actors of a house share, and whom they call on."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from hermes.config.home import DEFAULT_PROFILE
from hermes.gateway.chat_runs import ActorRules
from hermes.gateway.chat_sessions import ChatSessions
from hermes.gateway.hooks import Hooks, NoHooks
from hermes.gateway.messages import InboxMessage
from hermes.gateway.progress_message import ProgressMessage
from hermes.gateway.user_limits import TurnSlots
from hermes.kit.clock import Clock
from hermes.ports.store import Store
from hermes.schema.errors import StoreError
from hermes.schema.events import Outcome
from hermes.schema.messages import Message
from hermes.schema.scope import Address
from hermes.session.runner import Runner


class ActorCallbacks(Struct, frozen=True, kw_only=True):
    """Whom an actor calls on.

    `posted` is told that an address has something to be delivered, `bubble` shows progress
    there, `refusal` says why a turn may not begin, and `ended` hears how one came out. `later`
    says whether a place can be told something after the turn, `trouble` tells it that nothing
    can be stored. `below` is what stands below the answer of a turn. All that is of one `profile`.
    """

    posted: Callable[[Address], None]
    bubble: Callable[[Address, str], ProgressMessage | None]
    refusal: Callable[[InboxMessage], Awaitable[str]]
    ended: Callable[[InboxMessage, Outcome, str], None]
    hooks: Hooks = NoHooks()
    later: Callable[[Address], bool] = lambda address: True
    trouble: Callable[[Address, StoreError], None] = lambda address, error: None
    below: Callable[[Sequence[Message]], str] = lambda said: ""
    profile: str = DEFAULT_PROFILE


class ActorDeps(Struct, frozen=True, kw_only=True):
    """What all actors share."""

    store: Store
    clock: Clock
    runner: Runner
    sessions: ChatSessions
    rules: ActorRules
    holder: str
    slots: TurnSlots
    surroundings: ActorCallbacks
    draining: Callable[[], bool]
