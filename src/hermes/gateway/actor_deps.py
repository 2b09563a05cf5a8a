"""Dependencies and callbacks shared by all session actors."""

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
    """Callbacks of the actors of one `profile`.

    `posted`: an address has something to deliver. `progress_message`: create the progress message
    of a run. `refusal`: the reason a turn may not start, or "". `ended`: a run has ended.
    `can_send_later`: whether an address can be messaged after the turn. `store_failed`: the store
    failed. `footer`: the footer of an answer.
    """

    posted: Callable[[Address], None]
    progress_message: Callable[[Address, str], ProgressMessage | None]
    refusal: Callable[[InboxMessage], Awaitable[str]]
    ended: Callable[[InboxMessage, Outcome, str], None]
    hooks: Hooks = NoHooks()
    can_send_later: Callable[[Address], bool] = lambda address: True
    store_failed: Callable[[Address, StoreError], None] = lambda address, error: None
    footer: Callable[[Sequence[Message]], str] = lambda messages: ""
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
    callbacks: ActorCallbacks
    draining: Callable[[], bool]
