"""What codex asks in the middle of a turn: leave, a person's words, a tool of ours, the time."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio
import msgspec
from msgspec import Raw, Struct, structs

from hermes.kit.arguments import read_arguments
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.counsel import Counsel, Reaching, Wish
from hermes.ports.runtime import Errand, Tell
from hermes.runtimes.codex import names
from hermes.runtimes.codex.hearing import EVERY, INTERRUPTED, Hearing
from hermes.runtimes.codex.showing import plainly, seal_of, shown_of
from hermes.runtimes.codex.threads import since_question
from hermes.runtimes.codex.wire import Incoming, Json
from hermes.schema.attachments import is_strange
from hermes.schema.errors import ToolError
from hermes.schema.events import Answered, Asked, Event, Said
from hermes.schema.messages import Assistant, Result, Stop, Text, ToolCall, User

ACCEPT, DECLINE = "accept", "decline"
YES, NO = "yes", "no"


class Unknown(Exception):
    """A question that is not understood here."""


class _Network(Struct):
    host: str = ""
    protocol: str = ""


class _AsksCommand(Struct, rename="camel"):
    item_id: str = ""
    command: str | None = None
    cwd: str | None = None
    reason: str | None = None
    network_approval_context: _Network | None = None
    additional_permissions: Raw = Raw(b"null")


class _AsksChange(Struct, rename="camel"):
    item_id: str = ""
    grant_root: str | None = None
    reason: str | None = None


class _AsksPermissions(Struct):
    permissions: Raw = Raw(b"{}")
    cwd: str | None = None
    reason: str | None = None


class _Option(Struct):
    label: str = ""


class _Question(Struct, rename="camel"):
    id: str = ""
    question: str = ""
    header: str = ""
    options: list[_Option] | None = None
    is_secret: bool = False


class _AsksInput(Struct):
    questions: list[_Question] = []


class _Field(Struct):
    type: str = "string"
    title: str | None = None
    description: str | None = None
    enum: list[str] | None = None


class _Form(Struct):
    properties: dict[str, _Field] = {}
    required: list[str] | None = None


class _About(Struct):
    tool_params: Raw = Raw(b"")


class _AsksForm(
    Struct,
    rename={"server_name": "serverName", "requested_schema": "requestedSchema", "about": "_meta"},
):
    mode: str = ""
    about: _About | None = None
    message: str = ""
    server_name: str = ""
    url: str = ""
    requested_schema: _Form | None = None


class _AsksTool(Struct, rename="camel"):
    tool: str = ""
    call_id: str = ""
    arguments: Raw = Raw(b"{}")


def _no_result(call: ToolCall, why: str) -> Result:
    return Result(new_id("msg"), call.id, (Text(why),), failed=True)


def _exactly(asked: _AsksForm) -> str:
    """Whoever is asked sees with what the tool would be called."""
    params = plainly(asked.about.tool_params) if asked.about else ""
    return f"{asked.message} {params}".strip()


class Answers:
    """For one turn: our rules, and where they do not decide, people."""

    def __init__(
        self, counsel: Counsel | None, clock: Clock, errand: Errand, tell: Tell, hearing: Hearing
    ) -> None:
        self._counsel = counsel
        self._clock = clock
        self._errand = errand
        self._tell = tell
        self._hearing = hearing
        self._strange = {spec.name for spec in errand.tools if spec.foreign}
        hearing.foreign |= errand.foreign or self._recall()

    def _recall(self) -> bool:
        """Whether strangers spoke since the last question: a turn may be taken up again."""
        calls: set[str] = set()
        for message in since_question(self._errand.messages):
            match message:
                case User():
                    if is_strange(message):
                        return True
                case Assistant(calls=made):
                    calls |= {call.id for call in made if call.name in self._strange}
                case Result(call=call, foreign=foreign):
                    if foreign or call in calls:
                        return True
        return False

    async def to(self, asked: Incoming) -> Json:
        """The result to send. Raises `Unknown`, or a `DecodeError` for what cannot be read."""
        ways: Mapping[str, Callable[[Raw], Awaitable[Json]]] = {
            names.ASKS_COMMAND: self._command,
            names.ASKS_CHANGE: self._change,
            names.ASKS_PERMISSIONS: self._permissions,
            names.ASKS_INPUT: self._input,
            names.ASKS_FORM: self._form,
            names.ASKS_TOOL: self._tool,
            names.ASKS_TIME: self._time,
        }
        if asked.method not in ways:
            raise Unknown(f"{asked.method} is not answered here")
        return await ways[asked.method](asked.params)

    async def _time(self, params: Raw) -> Json:
        return {"currentTimeAt": int(self._clock.now().timestamp())}

    async def _command(self, params: Raw) -> Json:
        asked = msgspec.json.decode(params, type=_AsksCommand)
        network = asked.network_approval_context
        reaching = Reaching.BEYOND if network is None else Reaching.NETWORK
        more = [f"connect to {network.protocol}://{network.host}"] if network else []
        if permissions := plainly(asked.additional_permissions):
            more.append(f"with these permissions: {permissions}")
        told = "\n".join(more)
        wish = Wish(
            tool="terminal",
            action=asked.command or told,
            reaching=reaching,
            shell=bool(asked.command),
            folder=asked.cwd or self._errand.scope.workspace,
            reason=asked.reason or "",
            detail=told if asked.command else "",
            seal=seal_of(params),
        )
        # What nobody can be shown, nobody can allow.
        if not wish.action or not await self._may(wish):
            return {"decision": DECLINE}
        self._hearing.let_out(asked.item_id)
        return {"decision": ACCEPT}

    async def _change(self, params: Raw) -> Json:
        asked = msgspec.json.decode(params, type=_AsksChange)
        item = self._hearing.changes.get(asked.item_id)
        action, detail = shown_of(item.changes) if item is not None else ("", "")
        if asked.grant_root:
            action = f"{action} (and anything under {asked.grant_root})".strip()
        wish = Wish(
            tool="patch",
            action=action,
            reaching=Reaching.BEYOND,
            folder=self._errand.scope.workspace,
            reason=asked.reason or "",
            detail=detail,
            seal=seal_of(params),
        )
        allowed = bool(action) and await self._may(wish)
        return {"decision": ACCEPT if allowed else DECLINE}

    async def _permissions(self, params: Raw) -> Json:
        """Granted are those that were asked for, for this turn, or none at all."""
        asked = msgspec.json.decode(params, type=_AsksPermissions)
        wanted = plainly(asked.permissions) or "{}"
        wish = Wish(
            tool="permissions",
            action=f"go beyond the sandbox: {wanted}",
            reaching=Reaching.BEYOND,
            folder=asked.cwd or "",
            reason=asked.reason or "",
            seal=seal_of(params),
        )
        if not await self._may(wish):
            return {"permissions": {}, "scope": "turn"}
        self._hearing.let_out(EVERY)
        return {"permissions": Raw(wanted.encode()), "scope": "turn"}

    async def _input(self, params: Raw) -> Json:
        asked = msgspec.json.decode(params, type=_AsksInput)
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
        asked = msgspec.json.decode(params, type=_AsksForm)
        fields = asked.requested_schema.properties if asked.requested_schema is not None else {}
        if asked.mode not in {"form", "openai/form", "openaiForm"}:
            return {"action": DECLINE}
        if not fields:
            wish = Wish(
                tool=f"mcp.{asked.server_name or 'server'}",
                action=_exactly(asked),
                reaching=Reaching.BEYOND,
                folder=self._errand.scope.workspace,
                seal=seal_of(params),
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
        asked = msgspec.json.decode(params, type=_AsksTool)
        args, broken = read_arguments(asked.arguments)
        call = ToolCall(f"codex_{asked.call_id or new_id('call')}", asked.tool, args, broken)
        for event in self._hearing.flush():
            await self._tell(event)
        await self._tell(Said(Assistant(new_id("msg"), (call,), Stop.TOOLS)))
        if self._hearing.foreign:
            self._errand.strangers_heard()
        try:
            result = await self._errand.use(call)
        except ToolError as error:
            result = _no_result(call, error.sentence)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._tell(Said(_no_result(call, INTERRUPTED)))
            raise
        await self._tell(Said(result))
        self._hearing.last = result.id
        self._hearing.iterations += 1
        self._hearing.foreign |= result.foreign or call.name in self._strange
        text = "".join(part.text for part in result.parts if isinstance(part, Text))
        content = [{"type": "inputText", "text": text or "(no output)"}]
        return {"contentItems": content, "success": not result.failed}

    async def _may(self, wish: Wish) -> bool:
        if self._counsel is None:
            return False
        wish = structs.replace(wish, foreign=self._hearing.foreign)
        ruling = await self._counsel.rule(self._errand.scope, wish, self._show)
        return ruling.allowed

    async def _inquire(self, text: str, choices: Sequence[str]) -> str | None:
        if self._counsel is None:
            return None
        return await self._counsel.inquire(self._errand.scope, text, choices, self._show)

    async def _show(self, event: Event) -> None:
        if isinstance(event, Asked | Answered):
            await self._tell(event)
