"""What codex asks leave for, whole, as a person is shown it and as leave for later covers it."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio
import msgspec
from msgspec import Raw, Struct, structs

from hermes.kit.call_arguments import parse_arguments
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.terminal_text import show_invisible
from hermes.ports.approvals import ApprovalRequest, Approvals, Isolation
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeRequest
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.event_mapper import ALL_ITEMS, OUTCOME_UNKNOWN, EventMapper
from hermes.runtimes.codex.items import FileChange
from hermes.runtimes.codex.protocol import Json, RpcMessage
from hermes.runtimes.codex.threads import messages_since_question
from hermes.schema.attachments import has_untrusted_text
from hermes.schema.errors import ToolError
from hermes.schema.events import Event, MessageAdded, QuestionAnswered, QuestionAsked
from hermes.schema.messages import Assistant, Result, Stop, Text, ToolCall, User

_MAX_CHARACTERS, _MAX_LINES = 7_000, 350
"""What is shown of changes, in all; somewhat more can be."""
_VOLATILE_FIELDS = frozenset(
    {"itemId", "threadId", "turnId", "approvalId", "conversationId", "callId", "startedAtMs",
     "reason"}
)  # fmt: skip
"""What is another each time, and says nothing about what would be done."""


def request_digest(params: Raw) -> str:
    """A digest of all that was asked, also of what is not understood here."""
    asked = msgspec.json.decode(params, type=dict[str, object])
    told = {name: value for name, value in asked.items() if name not in _VOLATILE_FIELDS}
    return hashlib.sha256(msgspec.json.encode(told, order="sorted")).hexdigest()


def readable_json(data: Raw) -> str:
    """JSON without escapes that hide letters; empty for nothing. Raises a `DecodeError`."""
    raw = bytes(data)
    found: object = msgspec.json.decode(raw) if raw else None
    return "" if found is None else msgspec.json.encode(found).decode()


def describe_changes(changes: Sequence[FileChange]) -> tuple[str, str]:
    """The paths, and what would be written there; of a long text the beginning, which says so."""
    paths = ", ".join(_describe_change(one) for one in changes)
    text = show_invisible("\n".join(f"{_describe_change(one)}\n{one.diff}" for one in changes))
    if len(paths) + len(text) <= _MAX_CHARACTERS and text.count("\n") < _MAX_LINES:
        return paths, text
    sized = ", ".join(f"{_describe_change(one)} ({len(one.diff):,} characters)" for one in changes)
    room = max(_MAX_CHARACTERS - len(show_invisible(sized)) - 100, 0)
    head = "\n".join(text.splitlines()[: _MAX_LINES - 1])[:room]
    return sized, f"{head}\n[cut: {len(text) - len(head):,} more characters are not shown]"


def _describe_change(change: FileChange) -> str:
    name = f"{change.what or 'change'} {change.path}"
    return f"{name} -> {change.moved}" if change.moved else name


ACCEPT, DECLINE = "accept", "decline"
YES, NO = "yes", "no"


class UnknownRequest(Exception):
    """A question that is not understood here."""


class _Network(Struct):
    host: str = ""
    protocol: str = ""


class _CommandApproval(Struct, rename="camel"):
    item_id: str = ""
    command: str | None = None
    cwd: str | None = None
    reason: str | None = None
    network_approval_context: _Network | None = None
    additional_permissions: Raw = Raw(b"null")


class _FileChangeApproval(Struct, rename="camel"):
    item_id: str = ""
    grant_root: str | None = None
    reason: str | None = None


class _PermissionsApproval(Struct):
    permissions: Raw = Raw(b"{}")
    cwd: str | None = None
    reason: str | None = None


class _Option(Struct):
    label: str = ""


class _InputQuestion(Struct, rename="camel"):
    id: str = ""
    question: str = ""
    header: str = ""
    options: list[_Option] | None = None
    is_secret: bool = False


class _UserInputRequest(Struct):
    questions: list[_InputQuestion] = []


class _Field(Struct):
    type: str = "string"
    title: str | None = None
    description: str | None = None
    enum: list[str] | None = None


class _Form(Struct):
    properties: dict[str, _Field] = {}
    required: list[str] | None = None


class _ElicitationMeta(Struct):
    tool_params: Raw = Raw(b"")


class _ElicitationRequest(
    Struct,
    rename={"server_name": "serverName", "requested_schema": "requestedSchema", "about": "_meta"},
):
    mode: str = ""
    about: _ElicitationMeta | None = None
    message: str = ""
    server_name: str = ""
    url: str = ""
    requested_schema: _Form | None = None


class _ToolCallRequest(Struct, rename="camel"):
    tool: str = ""
    call_id: str = ""
    arguments: Raw = Raw(b"{}")


def _failed_result(call: ToolCall, why: str) -> Result:
    return Result(new_id("msg"), call.id, (Text(why),), failed=True)


def _elicitation_text(asked: _ElicitationRequest) -> str:
    """Whoever is asked sees with what the tool would be called."""
    params = readable_json(asked.about.tool_params) if asked.about else ""
    return f"{asked.message} {params}".strip()


class ServerRequestHandler:
    """For one turn: our rules, and where they do not decide, people."""

    def __init__(
        self,
        counsel: Approvals | None,
        clock: Clock,
        runtime_request: RuntimeRequest,
        tell: EmitRuntimeEvent,
        mapper: EventMapper,
    ) -> None:
        self._counsel = counsel
        self._clock = clock
        self._runtime_request = runtime_request
        self._tell = tell
        self._mapper = mapper
        self._strange = {spec.name for spec in runtime_request.tools if spec.foreign}
        mapper.foreign |= runtime_request.foreign or self._recall()

    def _recall(self) -> bool:
        """Whether strangers spoke since the last question: a turn may be taken up again."""
        calls: set[str] = set()
        for message in messages_since_question(self._runtime_request.messages):
            match message:
                case User():
                    if has_untrusted_text(message):
                        return True
                case Assistant(calls=made):
                    calls |= {call.id for call in made if call.name in self._strange}
                case Result(call=call, foreign=foreign):
                    if foreign or call in calls:
                        return True
        return False

    async def to(self, asked: RpcMessage) -> Json:
        """The result to send. Raises `Unknown`, or a `DecodeError` for what cannot be read."""
        ways: Mapping[str, Callable[[Raw], Awaitable[Json]]] = {
            protocol.COMMAND_APPROVAL: self._command,
            protocol.FILE_CHANGE_APPROVAL: self._change,
            protocol.PERMISSIONS_APPROVAL: self._permissions,
            protocol.USER_INPUT_REQUEST: self._input,
            protocol.ELICITATION_REQUEST: self._form,
            protocol.TOOL_CALL_REQUEST: self._tool,
            protocol.TIME_REQUEST: self._time,
        }
        if asked.method not in ways:
            raise UnknownRequest(f"{asked.method} is not answered here")
        return await ways[asked.method](asked.params)

    async def _time(self, params: Raw) -> Json:
        return {"currentTimeAt": int(self._clock.now().timestamp())}

    async def _command(self, params: Raw) -> Json:
        asked = msgspec.json.decode(params, type=_CommandApproval)
        network = asked.network_approval_context
        reaching = Isolation.BEYOND if network is None else Isolation.NETWORK
        more = [f"connect to {network.protocol}://{network.host}"] if network else []
        if permissions := readable_json(asked.additional_permissions):
            more.append(f"with these permissions: {permissions}")
        told = "\n".join(more)
        wish = ApprovalRequest(
            tool="terminal",
            action=asked.command or told,
            reaching=reaching,
            shell=bool(asked.command),
            folder=asked.cwd or self._runtime_request.scope.workspace,
            reason=asked.reason or "",
            detail=told if asked.command else "",
            seal=request_digest(params),
        )
        # What nobody can be shown, nobody can allow.
        if not wish.action or not await self._may(wish):
            return {"decision": DECLINE}
        self._mapper.allow_unsandboxed(asked.item_id)
        return {"decision": ACCEPT}

    async def _change(self, params: Raw) -> Json:
        asked = msgspec.json.decode(params, type=_FileChangeApproval)
        item = self._mapper.changes.get(asked.item_id)
        action, detail = describe_changes(item.changes) if item is not None else ("", "")
        if asked.grant_root:
            action = f"{action} (and anything under {asked.grant_root})".strip()
        wish = ApprovalRequest(
            tool="patch",
            action=action,
            reaching=Isolation.BEYOND,
            folder=self._runtime_request.scope.workspace,
            reason=asked.reason or "",
            detail=detail,
            seal=request_digest(params),
        )
        allowed = bool(action) and await self._may(wish)
        return {"decision": ACCEPT if allowed else DECLINE}

    async def _permissions(self, params: Raw) -> Json:
        """Granted are those that were asked for, for this turn, or none at all."""
        asked = msgspec.json.decode(params, type=_PermissionsApproval)
        wanted = readable_json(asked.permissions) or "{}"
        wish = ApprovalRequest(
            tool="permissions",
            action=f"go beyond the sandbox: {wanted}",
            reaching=Isolation.BEYOND,
            folder=asked.cwd or "",
            reason=asked.reason or "",
            seal=request_digest(params),
        )
        if not await self._may(wish):
            return {"permissions": {}, "scope": "turn"}
        self._mapper.allow_unsandboxed(ALL_ITEMS)
        return {"permissions": Raw(wanted.encode()), "scope": "turn"}

    async def _input(self, params: Raw) -> Json:
        asked = msgspec.json.decode(params, type=_UserInputRequest)
        answers: Json = {}
        for question in asked.questions:
            # A secret that is typed into a chat stays there; codex has to go without.
            words = None
            if not question.is_secret:
                choices = [option.label for option in question.options or ()]
                words = await self._inquire(question.question or question.header, choices)
            answers[question.id] = {"answers": [words] if words else []}
        return {"answers": answers}

    async def _form(self, params: Raw) -> Json:
        """Leave for a tool of an MCP server comes as a form without fields."""
        asked = msgspec.json.decode(params, type=_ElicitationRequest)
        fields = asked.requested_schema.properties if asked.requested_schema is not None else {}
        if asked.mode not in {"form", "openai/form", "openaiForm"}:
            return {"action": DECLINE}
        if not fields:
            wish = ApprovalRequest(
                tool=f"mcp.{asked.server_name or 'server'}",
                action=_elicitation_text(asked),
                reaching=Isolation.BEYOND,
                folder=self._runtime_request.scope.workspace,
                seal=request_digest(params),
            )
            allowed = await self._may(wish)
            return {"action": ACCEPT, "content": {}} if allowed else {"action": DECLINE}
        content: Json = {}
        for name, field in fields.items():
            value = await self._fill(asked.message, name, field)
            if value is None:
                return {"action": DECLINE}
            content[name] = value
        return {"action": ACCEPT, "content": content}

    async def _fill(self, message: str, name: str, field: _Field) -> object:
        label = field.title or field.description or name
        text = f"{message}\n{label}" if message else label
        if field.type == "boolean":
            words = await self._inquire(text, (YES, NO))
            return None if words is None else words.strip().lower() == YES
        words = await self._inquire(text, field.enum or ())
        if words is None or field.type not in {"number", "integer"}:
            return words
        try:
            return int(words) if field.type == "integer" else float(words)
        except ValueError:
            return None

    async def _tool(self, params: Raw) -> Json:
        """One of ours: told before, run as in any turn, told after."""
        asked = msgspec.json.decode(params, type=_ToolCallRequest)
        args, broken = parse_arguments(asked.arguments)
        call = ToolCall(f"codex_{asked.call_id or new_id('call')}", asked.tool, args, broken)
        for event in self._mapper.flush():
            await self._tell(event)
        await self._tell(MessageAdded(Assistant(new_id("msg"), (call,), Stop.TOOLS)))
        if self._mapper.foreign:
            self._runtime_request.strangers_heard()
        try:
            result = await self._runtime_request.use(call)
        except ToolError as error:
            result = _failed_result(call, error.sentence)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._tell(MessageAdded(_failed_result(call, OUTCOME_UNKNOWN)))
            raise
        await self._tell(MessageAdded(result))
        self._mapper.last = result.id
        self._mapper.iterations += 1
        self._mapper.foreign |= result.foreign or call.name in self._strange
        text = "".join(part.text for part in result.parts if isinstance(part, Text))
        content = [{"type": "inputText", "text": text or "(no output)"}]
        return {"contentItems": content, "success": not result.failed}

    async def _may(self, wish: ApprovalRequest) -> bool:
        if self._counsel is None:
            return False
        wish = structs.replace(wish, foreign=self._mapper.foreign)
        decision = await self._counsel.rule(self._runtime_request.scope, wish, self._show)
        return decision.allowed

    async def _inquire(self, text: str, choices: Sequence[str]) -> str | None:
        if self._counsel is None:
            return None
        return await self._counsel.inquire(self._runtime_request.scope, text, choices, self._show)

    async def _show(self, event: Event) -> None:
        if isinstance(event, QuestionAsked | QuestionAnswered):
            await self._tell(event)
