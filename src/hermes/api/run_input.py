"""What a run or a response is asked, and in which session it goes on."""

import hashlib
import re
import secrets
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct, structs

from hermes.agent.history import open_calls
from hermes.api.chat_objects import CallFunction, ChatMessage, ContentParts, HistoryCall
from hermes.api.errors import ApiError, invalid, not_found
from hermes.api.session_resolver import ResolvedSession, id_from_header
from hermes.api.turn_gate import SOURCE, principal_for, require_own_session
from hermes.api.turn_input import ParsedMessages, TurnInput
from hermes.app.build import App
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.journal import StoredResponse
from hermes.ports.store import AppendMessage
from hermes.schema.errors import NotFound
from hermes.schema.messages import Message, Result, Text, Trust, User, text_of
from hermes.schema.scope import OWNER, Role
from hermes.schema.sessions import Session

TRUNCATED_LENGTH = 100
MAX_KEY = 256
MESSAGE_SEPARATOR = "\n\n"
"""Between messages that were joined to one question."""
_PRINTABLE = re.compile(r"[\x21-\x7e]+( [\x21-\x7e]+)*")


InputItemType: TypeAlias = Literal[
    "message", "function_call", "function_call_output", "mcp_call", "reasoning", "item_reference"
]


class InputItem(Struct, frozen=True, kw_only=True):
    """A message, a call of a tool, or what came of one; `type` says which.

    Clients send back what they were given, with null for what is not there.
    """

    type: InputItemType | None = "message"
    role: Literal["system", "developer", "user", "assistant", "tool"] | None = "user"
    content: str | ContentParts | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | ContentParts | None = None
    error: str | dict[str, Any] | None = None


Input: TypeAlias = str | Annotated[list[str | InputItem], Meta(max_length=10_000)]
History: TypeAlias = Annotated[list[InputItem], Meta(max_length=10_000)]
Identifier: TypeAlias = Annotated[str, Meta(max_length=256)]


AnyMessage = TypeVar("AnyMessage", bound=Message)


class RunInput(Struct, frozen=True, kw_only=True):
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


class ResolvedInput(Struct, frozen=True, kw_only=True):
    """`instructions` are those of the body's messages; `previous` is what the talk goes on from."""

    place: ResolvedSession
    prompt: TurnInput
    previous: StoredResponse | None = None


class ParsedInput:
    """A body's words, checked. Nothing is written before `place`."""

    def __init__(self, wanted: RunInput) -> None:
        given = [_as_input_item(item) for item in _input_list(wanted.input)]
        history = [_as_input_item(item) for item in wanted.history]
        goes_on = bool(wanted.session or wanted.previous or wanted.conversation or wanted.header)
        made = {item.call_id for item in (*given, *history) if item.type == "function_call"}
        self._results = [
            item
            for item in given
            if goes_on and item.type == "function_call_output" and item.call_id not in made
        ]
        rest = [item for item in given if item not in self._results]
        self._rest = rest
        self._draft = _parse_messages(rest, history, needed=not self._results)
        self._alone = (
            _parse_messages(rest, [], needed=not self._results) if history else self._draft
        )
        self._wanted = wanted

    async def asked(self, app: App) -> User:
        """The words alone, for a turn that goes on already."""
        prompt = await self._alone.keep(app) if self._alone else None
        if prompt is None or prompt.asked is None or prompt.past:
            raise invalid("Only words of the user can be said here.", param="input")
        return prompt.asked

    async def place(self, app: App) -> ResolvedInput:
        """Find the session; pictures are kept. Raises `ApiError` for one that is not there."""
        wanted = self._wanted
        previous = await _previous_response(app, wanted)
        place = await _resolve_session(app, wanted, previous)
        await self._require_calls(app, place)
        # What the session holds is the truth: a history sent along with it is only repeated.
        draft = self._draft if place.new and not place.past else await self._unsaid(app, place)
        prompt = await draft.keep(app) if draft else TurnInput("", (), None, ())
        prompt = _with_trust(prompt, wanted.trust)
        past = [*place.past, *prompt.past]
        if wanted.truncate and len(past) > TRUNCATED_LENGTH:
            past = past[-TRUNCATED_LENGTH:]
        given = (_message_with_trust(wanted.trust, _tool_result(item)) for item in self._results)
        results = [*prompt.results, *given]
        prompt = structs.replace(prompt, past=(), results=tuple(results))
        if past and not place.new:
            await _append_history(app, place.session.id, past)
            past = []
        return ResolvedInput(
            place=ResolvedSession(place.session, place.new, past), prompt=prompt, previous=previous
        )

    async def _require_calls(self, app: App, place: ResolvedSession) -> None:
        """A result must be one that the session waits for; else there is nothing to answer."""
        if not self._results:
            return
        said: list[Message] = list(place.past)
        if not place.new:
            rows = await app.store.archive_for(OWNER).messages(place.session.id)
            said = [row.message for row in rows]
        waiting = {call.id for call in open_calls(said)}
        for item in self._results:
            if item.call_id not in waiting:
                named = one_line(item.call_id or "", 100)
                told = f"This session has no call {named!r} that waits for a result."
                raise invalid(told, param="input", code="unknown_tool_call")

    async def _unsaid(self, app: App, place: ResolvedSession) -> ParsedMessages | None:
        """The words alone, without those that the session ends with and nobody answered.

        Who is interrupted before an answer sends what was asked before along with the next word.
        """
        if place.new or len(self._rest) < 2:
            return self._alone
        rows = await app.store.archive_for(OWNER).messages(place.session.id)
        begin = _already_sent(self._rest, [row.message for row in rows])
        if not begin:
            return self._alone
        return _parse_messages(self._rest[begin:], [], needed=not self._results)


def _with_trust(prompt: TurnInput, trust: Trust) -> TurnInput:
    """With who stands behind it, also behind what is said to have been said before."""
    if trust is Trust.OWNER:
        return prompt
    return structs.replace(
        prompt,
        asked=prompt.asked and _message_with_trust(trust, prompt.asked),
        past=tuple(_message_with_trust(trust, one) for one in prompt.past),
        results=tuple(_message_with_trust(trust, one) for one in prompt.results),
    )


def _message_with_trust(trust: Trust, message: AnyMessage) -> AnyMessage:
    if trust is Trust.OWNER:
        return message
    if isinstance(message, User):
        return structs.replace(message, trust=trust)
    if isinstance(message, Result):
        return structs.replace(message, foreign=True)
    return message


def idempotency_key(header: str | None, body: bytes, kind: str) -> tuple[str, str]:
    """Key and fingerprint of a request; both empty when it has none. Raises `ApiError`."""
    if header is None:
        return "", ""
    key = header.strip()
    if not 0 < len(key) <= MAX_KEY or not _PRINTABLE.fullmatch(key):
        told = f"An idempotency key has 1 to {MAX_KEY} visible characters."
        raise invalid(told, param="Idempotency-Key", code="invalid_idempotency_key")
    return f"{kind}:{key}", hashlib.sha256(body).hexdigest()


def key_reused() -> ApiError:
    told = "This idempotency key was used for another request."
    return ApiError(422, "idempotency_key_reused", told, param="Idempotency-Key")


def new_session(app: App, identity: str = "", key: str = "", role: Role = Role.OWNER) -> Session:
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


async def get_session(app: App, identity: str) -> Session:
    """Whoever began it; to continue it, see `own_session`."""
    try:
        return await app.store.archive_for(OWNER).get(identity)
    except NotFound as error:
        raise not_found(f"There is no session {identity[:100]!r}.", "session_not_found") from error


async def get_own_session(app: App, identity: str, role: Role) -> Session:
    """One that a turn of this role may continue. Raises `ApiError`."""
    return require_own_session(await get_session(app, identity), role)


def _already_sent(items: Sequence[InputItem], said: Sequence[Message]) -> int:
    """How many of the first items are what waits at the end of the session; never all of them."""
    waiting: list[str] = []
    for message in reversed(said):
        if not isinstance(message, User):
            break
        if message.trust is not Trust.PROGRAM:
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
        if MESSAGE_SEPARATOR.join(words) == MESSAGE_SEPARATOR.join(waiting):
            return number
    return 0


def _input_list(given: Input) -> list[str | InputItem]:
    if isinstance(given, str):
        return [given]
    return given


def _as_input_item(item: str | InputItem) -> InputItem:
    return InputItem(content=item) if isinstance(item, str) else item


def _parse_messages(
    items: list[InputItem], history: list[InputItem], *, needed: bool
) -> ParsedMessages | None:
    messages = [message for item in (*history, *items) for message in _chat_messages(item)]
    if not items and not needed:
        return None
    try:
        return ParsedMessages(messages)
    except ApiError as error:
        param = (error.param or "").replace("messages", "input")
        raise invalid(str(error), param=param, code=error.code) from error


def _chat_messages(item: InputItem) -> list[ChatMessage]:
    name = item.call_id or (item.id if item.type == "mcp_call" else "") or ""
    call = HistoryCall(name, CallFunction(item.name or "", item.arguments or "{}"))
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


def _tool_result(item: InputItem) -> Result:
    return Result(new_id("msg"), item.call_id or "", (Text(_output_text(item.output)),))


def _output_text(output: str | list[dict[str, Any]] | None) -> str:
    if output is None or isinstance(output, str):
        return output or ""
    return "".join(text for part in output if isinstance(text := part.get("text"), str))


async def _previous_response(app: App, wanted: RunInput) -> StoredResponse | None:
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
            await get_own_session(app, found.session, wanted.role)
        return found
    if wanted.conversation:
        return await app.store.responses.latest(wanted.conversation, OWNER)
    return None


async def _resolve_session(
    app: App, wanted: RunInput, previous: StoredResponse | None
) -> ResolvedSession:
    if previous is not None and not (wanted.history and wanted.previous):
        return await _continue_response(app, previous, wanted.role)
    if wanted.session:
        return ResolvedSession(await get_own_session(app, wanted.session, wanted.role), new=False)
    named = id_from_header(wanted.header, "X-Hermes-Session-Id")
    if named:
        try:
            found = await app.store.archive_for(OWNER).get(named)
        except NotFound:
            pass
        else:
            return ResolvedSession(require_own_session(found, wanted.role), new=False)
    return ResolvedSession(new_session(app, named, wanted.key, wanted.role), new=True)


async def _continue_response(app: App, previous: StoredResponse, role: Role) -> ResolvedSession:
    """In the same session; where that went on since, in a branch from the place of the response."""
    archive = app.store.archive_for(OWNER)
    session = await get_own_session(app, previous.session, role)
    if not await archive.messages(session.id, previous.seq):
        return ResolvedSession(session, new=False)
    rows = await archive.messages(session.id)
    past: list[Message] = [row.message for row in rows if row.seq <= previous.seq]
    branch = structs.replace(
        new_session(app),
        parent=session.id,
        model=session.model,
        provider=session.provider,
        system=session.system,
    )
    return ResolvedSession(branch, new=True, past=past)


async def _append_history(app: App, session: str, past: list[Message]) -> None:
    """What was said elsewhere meanwhile becomes part of the session."""
    async with app.runner.holding(session) as lease:
        now = app.clock.now()
        said = [AppendMessage(session, "", message, now) for message in past]
        await app.store.commit(*said, fence=lease.fence)
