"""Answer codex's requests: approvals, questions, forms and tool calls."""

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
from hermes.runtimes.codex.notifications import FileChange
from hermes.runtimes.codex.protocol import Json, RpcMessage
from hermes.runtimes.codex.threads import messages_since_question
from hermes.schema.errors import ToolError
from hermes.schema.events import Event, MessageAdded, QuestionAnswered, QuestionAsked
from hermes.schema.messages import Assistant, Result, Stop, Text, ToolCall, User, has_untrusted_text

_MAX_CHARACTERS, _MAX_LINES = 7_000, 350
"""Limits for the changes to show; the prompt itself allows somewhat more."""
_VOLATILE_FIELDS = frozenset(
    {"itemId", "threadId", "turnId", "approvalId", "conversationId", "callId", "startedAtMs",
     "reason"}
)  # fmt: skip
"""Fields that differ each time without changing what is requested."""


def request_digest(params: Raw) -> str:
    """Return a digest of the whole request, including unknown fields."""
    fields = msgspec.json.decode(params, type=dict[str, object])
    stable = {name: value for name, value in fields.items() if name not in _VOLATILE_FIELDS}
    return hashlib.sha256(msgspec.json.encode(stable, order="sorted")).hexdigest()


def readable_json(data: Raw) -> str:
    """Return JSON without escapes that hide letters, or an empty string. Raises `DecodeError`."""
    raw = bytes(data)
    found: object = msgspec.json.decode(raw) if raw else None
    return "" if found is None else msgspec.json.encode(found).decode()


def describe_changes(changes: Sequence[FileChange]) -> tuple[str, str]:
    """Return the paths and the content to write; a long text is cut, and says so."""
    paths = ", ".join(_describe_change(change) for change in changes)
    text = show_invisible(
        "\n".join(f"{_describe_change(change)}\n{change.diff}" for change in changes)
    )
    if len(paths) + len(text) <= _MAX_CHARACTERS and text.count("\n") < _MAX_LINES:
        return paths, text
    sized = ", ".join(
        f"{_describe_change(change)} ({len(change.diff):,} characters)" for change in changes
    )
    room = max(_MAX_CHARACTERS - len(show_invisible(sized)) - 100, 0)
    head = "\n".join(text.splitlines()[: _MAX_LINES - 1])[:room]
    return sized, f"{head}\n[cut: {len(text) - len(head):,} more characters are not shown]"


def _describe_change(change: FileChange) -> str:
    name = f"{change.action or 'change'} {change.path}"
    return f"{name} -> {change.new_path}" if change.new_path else name


ACCEPT, DECLINE = "accept", "decline"
YES, NO = "yes", "no"


class UnknownRequest(Exception):
    """A request that we cannot answer."""


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


class ServerRequestHandler:
    """Answers requests of one turn: by policy, or by asking people."""

    def __init__(
        self,
        approvals: Approvals | None,
        clock: Clock,
        runtime_request: RuntimeRequest,
        emit: EmitRuntimeEvent,
        mapper: EventMapper,
    ) -> None:
        self._approvals = approvals
        self._clock = clock
        self._runtime_request = runtime_request
        self._emit = emit
        self._mapper = mapper
        self._untrusted_tools = {spec.name for spec in runtime_request.tools if spec.foreign}
        mapper.has_untrusted_text |= runtime_request.foreign or self._has_untrusted_history()

    def _has_untrusted_history(self) -> bool:
        """Return whether there is untrusted text since the last question, for resumed turns."""
        calls: set[str] = set()
        for message in messages_since_question(self._runtime_request.messages):
            match message:
                case User():
                    if has_untrusted_text(message):
                        return True
                case Assistant(calls=made):
                    calls |= {call.id for call in made if call.name in self._untrusted_tools}
                case Result(call=call, foreign=foreign):
                    if foreign or call in calls:
                        return True
        return False

    async def answer(self, request: RpcMessage) -> Json:
        """Return the result. Raises `UnknownRequest`, or `DecodeError` for invalid parameters."""
        handlers: Mapping[str, Callable[[Raw], Awaitable[Json]]] = {
            protocol.COMMAND_APPROVAL: self._command,
            protocol.FILE_CHANGE_APPROVAL: self._change,
            protocol.PERMISSIONS_APPROVAL: self._permissions,
            protocol.USER_INPUT_REQUEST: self._input,
            protocol.ELICITATION_REQUEST: self._form,
            protocol.TOOL_CALL_REQUEST: self._tool,
            protocol.TIME_REQUEST: self._time,
        }
        if request.method not in handlers:
            raise UnknownRequest(f"{request.method} is not supported")
        return await handlers[request.method](request.params)

    async def _time(self, params: Raw) -> Json:
        return {"currentTimeAt": int(self._clock.now().timestamp())}

    async def _command(self, params: Raw) -> Json:
        request = msgspec.json.decode(params, type=_CommandApproval)
        network = request.network_approval_context
        reaching = Isolation.BEYOND if network is None else Isolation.NETWORK
        more = [f"connect to {network.protocol}://{network.host}"] if network else []
        if permissions := readable_json(request.additional_permissions):
            more.append(f"with these permissions: {permissions}")
        detail = "\n".join(more)
        approval = ApprovalRequest(
            tool="terminal",
            action=request.command or detail,
            reaching=reaching,
            shell=bool(request.command),
            folder=request.cwd or self._runtime_request.scope.workspace,
            reason=request.reason or "",
            detail=detail if request.command else "",
        )
        # A request that cannot be shown cannot be allowed.
        if not approval.action or not await self._is_allowed(approval, params):
            return {"decision": DECLINE}
        self._mapper.allow_unsandboxed(request.item_id)
        return {"decision": ACCEPT}

    async def _change(self, params: Raw) -> Json:
        request = msgspec.json.decode(params, type=_FileChangeApproval)
        item = self._mapper.changes.get(request.item_id)
        action, detail = describe_changes(item.changes) if item is not None else ("", "")
        if request.grant_root:
            action = f"{action} (and anything under {request.grant_root})".strip()
        approval = ApprovalRequest(
            tool="patch",
            action=action,
            reaching=Isolation.BEYOND,
            folder=self._runtime_request.scope.workspace,
            reason=request.reason or "",
            detail=detail,
        )
        allowed = bool(action) and await self._is_allowed(approval, params)
        return {"decision": ACCEPT if allowed else DECLINE}

    async def _permissions(self, params: Raw) -> Json:
        """Grant exactly the requested permissions for this turn, or none."""
        request = msgspec.json.decode(params, type=_PermissionsApproval)
        wanted = readable_json(request.permissions) or "{}"
        approval = ApprovalRequest(
            tool="permissions",
            action=f"go beyond the sandbox: {wanted}",
            reaching=Isolation.BEYOND,
            folder=request.cwd or "",
            reason=request.reason or "",
        )
        if not await self._is_allowed(approval, params):
            return {"permissions": {}, "scope": "turn"}
        self._mapper.allow_unsandboxed(ALL_ITEMS)
        return {"permissions": Raw(wanted.encode()), "scope": "turn"}

    async def _input(self, params: Raw) -> Json:
        request = msgspec.json.decode(params, type=_UserInputRequest)
        answers: Json = {}
        for question in request.questions:
            choices = [option.label for option in question.options or ()]
            text = question.question or question.header
            # A secret typed into a chat stays there, so codex does not get one.
            answer = None if question.is_secret else await self._ask(text, choices)
            answers[question.id] = {"answers": [answer] if answer else []}
        return {"answers": answers}

    async def _form(self, params: Raw) -> Json:
        """Approvals for tools of MCP servers come as a form without fields."""
        request = msgspec.json.decode(params, type=_ElicitationRequest)
        fields = request.requested_schema.properties if request.requested_schema else {}
        if request.mode not in {"form", "openai/form", "openaiForm"}:
            return {"action": DECLINE}
        if not fields:
            # The arguments of the tool call are shown too.
            arguments = readable_json(request.about.tool_params) if request.about else ""
            approval = ApprovalRequest(
                tool=f"mcp.{request.server_name or 'server'}",
                action=f"{request.message} {arguments}".strip(),
                reaching=Isolation.BEYOND,
                folder=self._runtime_request.scope.workspace,
            )
            allowed = await self._is_allowed(approval, params)
            return {"action": ACCEPT, "content": {}} if allowed else {"action": DECLINE}
        content: Json = {}
        for name, field in fields.items():
            value = await self._ask_field(request.message, name, field)
            if value is None:
                return {"action": DECLINE}
            content[name] = value
        return {"action": ACCEPT, "content": content}

    async def _ask_field(self, message: str, name: str, field: _Field) -> object:
        label = field.title or field.description or name
        text = f"{message}\n{label}" if message else label
        if field.type == "boolean":
            answer = await self._ask(text, (YES, NO))
            return None if answer is None else answer.strip().lower() == YES
        answer = await self._ask(text, field.enum or ())
        if answer is None or field.type not in {"number", "integer"}:
            return answer
        try:
            return int(answer) if field.type == "integer" else float(answer)
        except ValueError:
            return None

    async def _tool(self, params: Raw) -> Json:
        """Run one of our tools, as in any turn, and emit the call and its result."""
        request = msgspec.json.decode(params, type=_ToolCallRequest)
        args, broken = parse_arguments(request.arguments)
        call = ToolCall(f"codex_{request.call_id or new_id('call')}", request.tool, args, broken)
        for event in self._mapper.flush():
            await self._emit(event)
        await self._emit(MessageAdded(Assistant(new_id("msg"), (call,), Stop.TOOLS)))
        if self._mapper.has_untrusted_text:
            self._runtime_request.mark_untrusted()
        try:
            result = await self._runtime_request.run_tool(call)
        except ToolError as error:
            result = _failed_result(call, error.sentence)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._emit(MessageAdded(_failed_result(call, OUTCOME_UNKNOWN)))
            raise
        await self._emit(MessageAdded(result))
        self._mapper.last_message = result.id
        self._mapper.iterations += 1
        self._mapper.has_untrusted_text |= result.foreign or call.name in self._untrusted_tools
        text = "".join(part.text for part in result.parts if isinstance(part, Text))
        content = [{"type": "inputText", "text": text or "(no output)"}]
        return {"contentItems": content, "success": not result.failed}

    async def _is_allowed(self, approval: ApprovalRequest, params: Raw) -> bool:
        if self._approvals is None:
            return False
        approval = structs.replace(
            approval, foreign=self._mapper.has_untrusted_text, seal=request_digest(params)
        )
        decision = await self._approvals.decide(self._runtime_request.scope, approval, self._show)
        return decision.allowed

    async def _ask(self, text: str, choices: Sequence[str]) -> str | None:
        if self._approvals is None:
            return None
        scope = self._runtime_request.scope
        return await self._approvals.ask_person(scope, text, choices, self._show)

    async def _show(self, event: Event) -> None:
        if isinstance(event, QuestionAsked | QuestionAnswered):
            await self._emit(event)
