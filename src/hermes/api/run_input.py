"""Parse the input of a run or a response and resolve the session it continues."""

import logging
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import Meta, Raw, Struct, structs

from hermes.agent.history import open_calls
from hermes.api.chat_objects import CallFunction, ChatMessage, ContentParts, HistoryCall
from hermes.api.client_tools import custom_arguments, tool_name
from hermes.api.context import SESSION_ID_HEADER
from hermes.api.errors import ApiError, invalid
from hermes.api.session_resolver import (
    ResolvedSession,
    SessionResolver,
    find_session,
    get_own_session,
    id_from_header,
    new_session,
)
from hermes.api.turn_gate import require_own_session
from hermes.api.turn_input import ParsedMessages, TurnInput
from hermes.app.build import App
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.journal import StoredResponse
from hermes.ports.store import AppendMessage
from hermes.schema.errors import NotFound
from hermes.schema.messages import Message, Result, Text, Trust, User, text_of
from hermes.schema.scope import OWNER, Role

log = logging.getLogger(__name__)
TRUNCATED_LENGTH = 100
_CALLS = frozenset({"function_call", "custom_tool_call"})
_CALL_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
MESSAGE_SEPARATOR = "\n\n"
"""Separates messages joined into one question."""


class InputItem(Struct, frozen=True, kw_only=True):
    """A message, a tool call or its output, according to `type`.

    Clients send back what they received, with null for absent fields. Items of other types, such
    as the searches of another service, are left out.
    """

    type: str | None = "message"
    role: Literal["system", "developer", "user", "assistant", "tool"] | None = "user"
    content: str | ContentParts | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: str | ContentParts | None = None
    error: str | dict[str, Any] | None = None
    tools: list[Raw] | None = None  # of `additional_tools`, as codex sends them


Input: TypeAlias = str | Annotated[list[str | InputItem], Meta(max_length=10_000)]
History: TypeAlias = Annotated[list[InputItem], Meta(max_length=10_000)]
Identifier: TypeAlias = Annotated[str, Meta(max_length=256)]


AnyMessage = TypeVar("AnyMessage", bound=Message)


class RunInput(Struct, frozen=True, kw_only=True):
    """The conversation-related fields of a body; at most one session reference may be given.

    `key` is stored with a new session, `trust` applies to the messages, and only sessions of this
    `role` are continued.
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
    """The input with its session; `previous` is the response it continues.

    `repeated` is the history of a request without a session; the next request finds the session by
    it.
    """

    target: ResolvedSession
    repeated: tuple[Message, ...] | None = None
    turn_input: TurnInput
    previous: StoredResponse | None = None

    def instructions(self, requested: str | None) -> str:
        """Return the given instructions, or those of the previous response."""
        if requested is not None:
            return requested
        return self.previous.instructions if self.previous else ""


class ParsedInput:
    """Validated input. Nothing is stored before `resolve`."""

    def __init__(self, run_input: RunInput) -> None:
        raw_items = [run_input.input] if isinstance(run_input.input, str) else run_input.input
        items = [InputItem(content=item) if isinstance(item, str) else item for item in raw_items]
        history = run_input.history
        continues = self._continues = bool(
            run_input.session or run_input.previous or run_input.conversation or run_input.header
        )
        call_ids = {item.call_id for item in (*items, *history) if item.type in _CALLS}
        self._results = [
            item
            for item in items
            if continues and item.type in _CALL_OUTPUTS and item.call_id not in call_ids
        ]
        self._rest = [item for item in items if item not in self._results]
        needed = not self._results
        self._with_history = _parse_messages(self._rest, history, needed=needed)
        self._without_history = (
            _parse_messages(self._rest, [], needed=needed) if history else self._with_history
        )
        self._run_input = run_input

    async def user_message(self, app: App) -> User:
        """Return only the user's message, for a turn that is already running."""
        prompt = await self._without_history.store(app) if self._without_history else None
        if prompt is None or prompt.question is None or prompt.history:
            raise invalid("Only user messages are accepted here.", param="input")
        return prompt.question

    async def resolve(self, app: App, ends: SessionResolver | None = None) -> ResolvedInput:
        """Resolve the session and store images. Raises `ApiError` if the session does not exist.

        With `ends`, a request without a session continues the session that ends like its history.
        """
        run_input = self._run_input
        previous = await _previous_response(app, run_input)
        resolved = await _resolve_session(app, run_input, previous)
        await self._require_calls(app, resolved)
        # The session's transcript is authoritative: a history sent along is a repetition.
        draft = (
            self._with_history
            if resolved.new and not resolved.history
            else await self._unsent(app, resolved)
        )
        prompt = await draft.store(app) if draft else TurnInput("", (), None, ())
        prompt = _with_trust(prompt, run_input.trust)
        repeated = None if self._continues else prompt.history
        if repeated and ends and (session := await ends.find_end(app, repeated)):
            resolved = ResolvedSession(session, new=False)
            prompt = structs.replace(prompt, history=())
        history = [*resolved.history, *prompt.history]
        if run_input.truncate and len(history) > TRUNCATED_LENGTH:
            history = history[-TRUNCATED_LENGTH:]
        client_results = (
            _message_with_trust(run_input.trust, _tool_result(item)) for item in self._results
        )
        results = [*prompt.results, *client_results]
        prompt = structs.replace(prompt, history=(), results=tuple(results))
        if history and not resolved.new:
            await _append_history(app, resolved.session.id, history)
            history = []
        return ResolvedInput(
            target=ResolvedSession(resolved.session, resolved.new, history),
            turn_input=prompt,
            previous=previous,
            repeated=repeated,
        )

    async def _require_calls(self, app: App, resolved: ResolvedSession) -> None:
        """Require a pending call for each tool result."""
        if not self._results:
            return
        messages: list[Message] = list(resolved.history)
        if not resolved.new:
            rows = await app.store.archive_for(OWNER).messages(resolved.session.id)
            messages = [row.message for row in rows]
        pending = {call.id for call in open_calls(messages)}
        for item in self._results:
            if item.call_id not in pending:
                quoted = one_line(item.call_id or "", 100)
                message = f"This session has no pending call {quoted!r}."
                raise invalid(message, param="input", code="unknown_tool_call")

    async def _unsent(self, app: App, resolved: ResolvedSession) -> ParsedMessages | None:
        """Return the new messages, without those already stored at the end of the session.

        A client interrupted before an answer resends its unanswered messages with the next one.
        """
        if resolved.new or len(self._rest) < 2:
            return self._without_history
        rows = await app.store.archive_for(OWNER).messages(resolved.session.id)
        known = _already_sent(self._rest, [row.message for row in rows])
        if not known:
            return self._without_history
        return _parse_messages(self._rest[known:], [], needed=not self._results)


def _with_trust(prompt: TurnInput, trust: Trust) -> TurnInput:
    """Apply the trust level to all messages, including the history."""
    if trust is Trust.OWNER:
        return prompt
    return structs.replace(
        prompt,
        question=prompt.question and _message_with_trust(trust, prompt.question),
        history=tuple(_message_with_trust(trust, message) for message in prompt.history),
        results=tuple(_message_with_trust(trust, message) for message in prompt.results),
    )


def _message_with_trust(trust: Trust, message: AnyMessage) -> AnyMessage:
    if trust is Trust.OWNER:
        return message
    if isinstance(message, User):
        return structs.replace(message, trust=trust)
    if isinstance(message, Result):
        return structs.replace(message, foreign=True)
    return message


def additional_tools(items_or_text: Input) -> list[Raw]:
    """Tools that are part of the conversation instead of the field `tools`."""
    items = [] if isinstance(items_or_text, str) else items_or_text
    found = [item for item in items if isinstance(item, InputItem)]
    return [tool for item in found if item.type == "additional_tools" for tool in item.tools or ()]


def _already_sent(items: Sequence[InputItem], messages: Sequence[Message]) -> int:
    """Count the first items already stored at the end of the session; never all of them."""
    unanswered: list[str] = []
    for message in reversed(messages):
        if not isinstance(message, User):
            break
        if message.trust is not Trust.PROGRAM:
            unanswered.insert(0, text_of(message))
    texts: list[str] = []
    for number, item in enumerate(items[:-1], 1):
        if (
            item.type not in {"message", None}
            or item.role not in {"user", None}
            or not isinstance(item.content, str)
        ):
            return 0
        texts.append(item.content)
        if MESSAGE_SEPARATOR.join(texts) == MESSAGE_SEPARATOR.join(unanswered):
            return number
    return 0


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
    call_id = item.call_id or (item.id if item.type == "mcp_call" else "") or ""
    arguments = item.arguments or "{}"
    if item.type == "custom_tool_call":
        arguments = custom_arguments(item.input or "")
    name = tool_name(item.name or "", item.namespace or "")
    call = HistoryCall(call_id, CallFunction(name, arguments))
    match item.type:
        case "item_reference":
            message = "Item references are only supported in POST /v1/responses."
            raise invalid(message, param="input")
        case "function_call" | "custom_tool_call":
            return [ChatMessage(role="assistant", tool_calls=[call])]
        case "function_call_output" | "custom_tool_call_output":
            return [ChatMessage(role="tool", tool_call_id=call_id, content=item.output)]
        case "mcp_call":
            output = item.output if item.error is None else str(item.error)
            result = ChatMessage(role="tool", tool_call_id=call_id, content=output)
            return [ChatMessage(role="assistant", tool_calls=[call]), result]
        case "message" | None:
            role = item.role or "user"
            return [ChatMessage(role=role, content=item.content, tool_call_id=call_id)]
        case _:
            if item.type != "reasoning":
                log.info("input item of type %s left out", one_line(item.type, 100))
            return []


def _tool_result(item: InputItem) -> Result:
    output = item.output or ""
    if not isinstance(output, str):
        output = "".join(text for part in output if isinstance(text := part.get("text"), str))
    return Result(new_id("msg"), item.call_id or "", (Text(output),))


async def _previous_response(app: App, run_input: RunInput) -> StoredResponse | None:
    if run_input.previous:
        try:
            response = await app.store.responses.get(run_input.previous, OWNER)
        except NotFound as error:
            message = f"Response {run_input.previous[:100]!r} not found."
            raise ApiError(
                404, "previous_response_not_found", message, param="previous_response_id"
            ) from error
        if run_input.role is not Role.OWNER:
            # Its instructions and session belong to the role that was answered.
            await get_own_session(app, response.session, run_input.role)
        return response
    if run_input.conversation:
        return await app.store.responses.latest(run_input.conversation, OWNER)
    return None


async def _resolve_session(
    app: App, run_input: RunInput, previous: StoredResponse | None
) -> ResolvedSession:
    if previous is not None and not (run_input.history and run_input.previous):
        return await _continue_response(app, previous, run_input.role)
    session_id = id_from_header(run_input.session, "session_id")
    session_id = session_id or id_from_header(run_input.header, SESSION_ID_HEADER)
    if session_id and (session := await find_session(app, session_id)):
        return ResolvedSession(require_own_session(session, run_input.role), new=False)
    return ResolvedSession(new_session(app, session_id, run_input.key, run_input.role), new=True)


async def _continue_response(app: App, previous: StoredResponse, role: Role) -> ResolvedSession:
    """Continue the session, or a branch of it if it has moved on since the response."""
    archive = app.store.archive_for(OWNER)
    session = await get_own_session(app, previous.session, role)
    if not await archive.messages(session.id, previous.seq):
        return ResolvedSession(session, new=False)
    rows = await archive.messages(session.id)
    history: list[Message] = [row.message for row in rows if row.seq <= previous.seq]
    branch = structs.replace(
        new_session(app),
        parent=session.id,
        model=session.model,
        provider=session.provider,
        system=session.system,
    )
    return ResolvedSession(branch, new=True, history=history)


async def _append_history(app: App, session: str, messages: list[Message]) -> None:
    """Append messages exchanged elsewhere to the session."""
    async with app.runner.holding(session) as lease:
        now = app.clock.now()
        writes = [AppendMessage(session, "", message, now) for message in messages]
        await app.store.commit(*writes, fence=lease.fence)
