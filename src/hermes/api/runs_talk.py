"""What a run or a response is asked, and in which session it goes on."""

import hashlib
import re
import secrets
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct, structs

from hermes.agent.repair import open_calls
from hermes.api.chat_wire import AskedCall, CallFunction, ChatMessage, Parts
from hermes.api.entry import SOURCE
from hermes.api.errors import ApiError, invalid, missing
from hermes.api.ownership import demand_own, principal_for
from hermes.api.prompts import Draft, Prompt
from hermes.api.talks import Place, header_name
from hermes.app.build import App
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.journal import KeptResponse
from hermes.ports.store import Append
from hermes.schema.errors import NotFound
from hermes.schema.messages import Message, Result, Text, Trust, User, text_of
from hermes.schema.scope import OWNER, Role
from hermes.schema.sessions import Session

KEPT_BY_TRUNCATION = 100
MOST_KEY = 256
SEAM = "\n\n"
"""Between messages that were joined to one question."""
_PRINTABLE = re.compile(r"[\x21-\x7e]+( [\x21-\x7e]+)*")


Kind: TypeAlias = Literal[
    "message", "function_call", "function_call_output", "mcp_call", "reasoning", "item_reference"
]


class InputItem(Struct, frozen=True, kw_only=True):
    """A message, a call of a tool, or what came of one; `type` says which.

    Clients send back what they were given, with null for what is not there.
    """

    type: Kind | None = "message"
    role: Literal["system", "developer", "user", "assistant", "tool"] | None = "user"
    content: str | Parts | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | Parts | None = None
    error: str | dict[str, Any] | None = None


Input: TypeAlias = str | Annotated[list[str | InputItem], Meta(max_length=10_000)]
History: TypeAlias = Annotated[list[InputItem], Meta(max_length=10_000)]
Identity: TypeAlias = Annotated[str, Meta(max_length=256)]


Spoken = TypeVar("Spoken", bound=Message)


class Wanted(Struct, frozen=True, kw_only=True):
    """What a body says about its talk; at most one of the three places may be named.

    `key` is written down with a session that is made, `trust` says who stands behind the words,
    and only a session of this `role` is continued.
    """

    input: Input
    history: History = []
    session: str = ""
    header: str = ""
    key: str = ""
    previous: str = ""
    conversation: str = ""
    truncate: bool = False
    trust: Trust = Trust.OWNER
    role: Role = Role.OWNER


class Talk(Struct, frozen=True, kw_only=True):
    """`instructions` are those of the body's messages; `previous` is what the talk goes on from."""

    place: Place
    prompt: Prompt
    previous: KeptResponse | None = None


class Question:
    """A body's words, checked. Nothing is written before `place`."""

    def __init__(self, wanted: Wanted) -> None:
        given = [_item(item) for item in _items(wanted.input)]
        history = [_item(item) for item in wanted.history]
        goes_on = bool(wanted.session or wanted.previous or wanted.conversation or wanted.header)
        made = {item.call_id for item in (*given, *history) if item.type == "function_call"}
        self._results = [
            item
            for item in given
            if goes_on and item.type == "function_call_output" and item.call_id not in made
        ]
        rest = [item for item in given if item not in self._results]
        self._rest = rest
        self._draft = _draft(rest, history, needed=not self._results)
        self._alone = _draft(rest, [], needed=not self._results) if history else self._draft
        self._wanted = wanted

    async def asked(self, app: App) -> User:
        """The words alone, for a turn that goes on already."""
        prompt = await self._alone.keep(app) if self._alone else None
        if prompt is None or prompt.asked is None or prompt.past:
            raise invalid("Only words of the user can be said here.", param="input")
        return prompt.asked

    async def place(self, app: App) -> Talk:
        """Find the session; pictures are kept. Raises `ApiError` for one that is not there."""
        wanted = self._wanted
        previous = await _previous(app, wanted)
        place = await _place(app, wanted, previous)
        await self._demand_calls(app, place)
        # What the session holds is the truth: a history sent along with it is only repeated.
        draft = self._draft if place.new and not place.past else await self._unsaid(app, place)
        prompt = await draft.keep(app) if draft else Prompt("", (), None, ())
        prompt = _behind(prompt, wanted.trust)
        past = [*place.past, *prompt.past]
        if wanted.truncate and len(past) > KEPT_BY_TRUNCATION:
            past = past[-KEPT_BY_TRUNCATION:]
        given = (_of(wanted.trust, _result(item)) for item in self._results)
        results = [*prompt.results, *given]
        prompt = structs.replace(prompt, past=(), results=tuple(results))
        if past and not place.new:
            await _append(app, place.session.id, past)
            past = []
        return Talk(place=Place(place.session, place.new, past), prompt=prompt, previous=previous)

    async def _demand_calls(self, app: App, place: Place) -> None:
        """A result must be one that the session waits for; else there is nothing to answer."""
        if not self._results:
            return
        said: list[Message] = list(place.past)
        if not place.new:
            rows = await app.store.seen_by(OWNER).messages(place.session.id)
            said = [row.message for row in rows]
        waiting = {call.id for call in open_calls(said)}
        for item in self._results:
            if item.call_id not in waiting:
                named = one_line(item.call_id or "", 100)
                told = f"This session has no call {named!r} that waits for a result."
                raise invalid(told, param="input", code="unknown_tool_call")

    async def _unsaid(self, app: App, place: Place) -> Draft | None:
        """The words alone, without those that the session ends with and nobody answered.

        Who is interrupted before an answer sends what was asked before along with the next word.
        """
        if place.new or len(self._rest) < 2:
            return self._alone
        rows = await app.store.seen_by(OWNER).messages(place.session.id)
        begin = _said_already(self._rest, [row.message for row in rows])
        if not begin:
            return self._alone
        return _draft(self._rest[begin:], [], needed=not self._results)


def _behind(prompt: Prompt, trust: Trust) -> Prompt:
    """With who stands behind it, also behind what is said to have been said before."""
    if trust is Trust.OWNER:
        return prompt
    return structs.replace(
        prompt,
        asked=prompt.asked and _of(trust, prompt.asked),
        past=tuple(_of(trust, one) for one in prompt.past),
        results=tuple(_of(trust, one) for one in prompt.results),
    )


def _of(trust: Trust, message: Spoken) -> Spoken:
    if trust is Trust.OWNER:
        return message
    if isinstance(message, User):
        return structs.replace(message, trust=trust)
    if isinstance(message, Result):
        return structs.replace(message, foreign=True)
    return message


def idempotency(header: str | None, body: bytes, kind: str) -> tuple[str, str]:
    """Key and fingerprint of a request; both empty when it has none. Raises `ApiError`."""
    if header is None:
        return "", ""
    key = header.strip()
    if not 0 < len(key) <= MOST_KEY or not _PRINTABLE.fullmatch(key):
        told = f"An idempotency key has 1 to {MOST_KEY} visible characters."
        raise invalid(told, param="Idempotency-Key", code="invalid_idempotency_key")
    return f"{kind}:{key}", hashlib.sha256(body).hexdigest()


def key_reused() -> ApiError:
    told = "This idempotency key was used for another request."
    return ApiError(422, "idempotency_key_reused", told, param="Idempotency-Key")


def fresh_session(app: App, identity: str = "", key: str = "", role: Role = Role.OWNER) -> Session:
    """Nobody can work out the id of one that was not named."""
    identity = identity or f"api-{secrets.token_hex(16)}"
    return Session(
        id=identity,
        principal=principal_for(role, identity),
        started_at=app.clock.now(),
        source=SOURCE,
        # Under a name of its own, so that no caller can take the place of a chat.
        key=f"{SOURCE}:{key}" if key else "",
        cwd=app.conversation.session.cwd,
    )


async def known_session(app: App, identity: str) -> Session:
    """Whoever began it; to continue it, see `own_session`."""
    try:
        return await app.store.seen_by(OWNER).get(identity)
    except NotFound as error:
        raise missing(f"There is no session {identity[:100]!r}.", "session_not_found") from error


async def own_session(app: App, identity: str, role: Role) -> Session:
    """One that a turn of this role may continue. Raises `ApiError`."""
    return demand_own(await known_session(app, identity), role)


def _said_already(items: Sequence[InputItem], said: Sequence[Message]) -> int:
    """How many of the first items are what waits at the end of the session; never all of them."""
    waiting: list[str] = []
    for message in reversed(said):
        if not isinstance(message, User):
            break
        if message.trust is not Trust.HOUSE:
            waiting.insert(0, text_of(message))
    words: list[str] = []
    for number, item in enumerate(items[:-1], 1):
        if (
            item.type not in {"message", None}
            or item.role not in {"user", None}
            or not isinstance(item.content, str)
        ):
            return 0
        words.append(item.content)
        if SEAM.join(words) == SEAM.join(waiting):
            return number
    return 0


def _items(given: Input) -> list[str | InputItem]:
    if isinstance(given, str):
        return [given]
    return given


def _item(item: str | InputItem) -> InputItem:
    return InputItem(content=item) if isinstance(item, str) else item


def _draft(items: list[InputItem], history: list[InputItem], *, needed: bool) -> Draft | None:
    messages = [message for item in (*history, *items) for message in _messages(item)]
    if not items and not needed:
        return None
    try:
        return Draft(messages)
    except ApiError as error:
        param = (error.param or "").replace("messages", "input")
        raise invalid(str(error), param=param, code=error.code) from error


def _messages(item: InputItem) -> list[ChatMessage]:
    name = item.call_id or (item.id if item.type == "mcp_call" else "") or ""
    call = AskedCall(name, CallFunction(item.name or "", item.arguments or "{}"))
    match item.type:
        case "reasoning":
            return []
        case "item_reference":
            raise invalid("An item can only be named where responses are made.", param="input")
        case "function_call":
            return [ChatMessage(role="assistant", tool_calls=[call])]
        case "function_call_output":
            return [ChatMessage(role="tool", tool_call_id=name, content=item.output)]
        case "mcp_call":
            came = item.output if item.error is None else str(item.error)
            result = ChatMessage(role="tool", tool_call_id=name, content=came)
            return [ChatMessage(role="assistant", tool_calls=[call]), result]
        case "message" | None:
            role = item.role or "user"
            return [ChatMessage(role=role, content=item.content, tool_call_id=name)]


def _result(item: InputItem) -> Result:
    return Result(new_id("msg"), item.call_id or "", (Text(_text(item.output)),))


def _text(output: str | list[dict[str, Any]] | None) -> str:
    if output is None or isinstance(output, str):
        return output or ""
    return "".join(text for part in output if isinstance(text := part.get("text"), str))


async def _previous(app: App, wanted: Wanted) -> KeptResponse | None:
    if wanted.previous:
        try:
            found = await app.store.responses.get(wanted.previous, OWNER)
        except NotFound as error:
            told = f"There is no response {wanted.previous[:100]!r}."
            raise ApiError(
                404, "previous_response_not_found", told, param="previous_response_id"
            ) from error
        if wanted.role is not Role.OWNER:
            # Its instructions and its place are those of whoever was answered there.
            await own_session(app, found.session, wanted.role)
        return found
    if wanted.conversation:
        return await app.store.responses.latest(wanted.conversation, OWNER)
    return None


async def _place(app: App, wanted: Wanted, previous: KeptResponse | None) -> Place:
    if previous is not None and not (wanted.history and wanted.previous):
        return await _going_on(app, previous, wanted.role)
    if wanted.session:
        return Place(await own_session(app, wanted.session, wanted.role), new=False)
    named = header_name(wanted.header, "X-Hermes-Session-Id")
    if named:
        try:
            found = await app.store.seen_by(OWNER).get(named)
        except NotFound:
            pass
        else:
            return Place(demand_own(found, wanted.role), new=False)
    return Place(fresh_session(app, named, wanted.key, wanted.role), new=True)


async def _going_on(app: App, previous: KeptResponse, role: Role) -> Place:
    """In the same session; where that went on since, in a branch from the place of the response."""
    archive = app.store.seen_by(OWNER)
    session = await own_session(app, previous.session, role)
    if not await archive.messages(session.id, previous.seq):
        return Place(session, new=False)
    rows = await archive.messages(session.id)
    past: list[Message] = [row.message for row in rows if row.seq <= previous.seq]
    branch = structs.replace(
        fresh_session(app),
        parent=session.id,
        model=session.model,
        provider=session.provider,
        system=session.system,
    )
    return Place(branch, new=True, past=past)


async def _append(app: App, session: str, past: list[Message]) -> None:
    """What was said elsewhere meanwhile becomes part of the session."""
    async with app.runner.holding(session) as lease:
        now = app.clock.now()
        said = [Append(session, "", message, now) for message in past]
        await app.store.commit(*said, fence=lease.fence)
