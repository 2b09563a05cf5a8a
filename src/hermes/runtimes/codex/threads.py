"""Which thread of codex belongs to which session, and what of the session it has not heard."""

import logging
from base64 import b64encode
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw, Struct, structs

from hermes.kit.file_types import image_type
from hermes.ports.blobs import Blobs
from hermes.ports.runtime import RuntimeRequest
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.errors import request_refused
from hermes.runtimes.codex.protocol import Json
from hermes.runtimes.codex.server import AppServer
from hermes.runtimes.codex.service import CodexTimeouts
from hermes.runtimes.codex.thread_store import ContextFill, ForkPoint, StoredThread, ThreadStore
from hermes.schema.errors import ModelError, StoreError
from hermes.schema.messages import Assistant, Media, Message, Text, Trust, User, text_of
from hermes.schema.tools import ToolSpec

log = logging.getLogger(__name__)

APPROVAL_POLICY = "on-request"
MAX_OPEN_THREADS = 32
"""Threads that are open at once, those with the newest turns."""
PERMISSIONS_NAME = "hermes"
"""What we call the permissions that we give; codex knows what `:workspace` is."""


class ThreadSettings(Struct, frozen=True, kw_only=True):
    """`model` and `effort` are codex's own when they are empty.

    `parent` is the session that this one is a branch of. From the share `compact_at` of its window
    on, a thread is shortened before its next turn; with 0 that is left to codex.
    `closed` are paths that its commands may not even read, and `read_only` those that they may
    not write; unless the person chose a sandbox in codex's own settings. `config` is given to
    each thread, MCP servers among it, and nothing is written to files of codex.
    """

    model: str = ""
    effort: str = ""
    parent: str | None = None
    compact_at: float = 0.0
    closed: Sequence[str] = ()
    read_only: Sequence[str] = ()
    config: Mapping[str, object] = {}


class OpenThread(Struct, frozen=True):
    """A thread, ready for a turn in which it is `asked`; `known` is the last message before."""

    id: str
    model: str = ""
    provider: str = ""
    asked: Sequence[User] = ()
    known: str = ""
    marks: Sequence[ForkPoint] = ()
    filled: ContextFill = ContextFill()

    def kept(self, seen: str, filled: ContextFill, turn: str = "") -> StoredThread:
        """What is to be remembered of it; `turn` is one that has ended."""
        kept = StoredThread(self.id, seen, self.marks, filled)
        return structs.replace(kept, marks=kept.marked(turn))


class _ThreadRef(Struct, rename="camel"):
    id: str | None = None
    session_id: str | None = None


class _ThreadResponse(Struct, rename="camel"):
    """Versions differ in where they say what the thread is called."""

    thread: _ThreadRef | None = None
    thread_id: str | None = None
    session_id: str | None = None
    model: str | None = None
    model_provider: str | None = None

    @property
    def id(self) -> str:
        named = self.thread or _ThreadRef()
        return named.id or named.session_id or self.thread_id or self.session_id or ""


class _CodexConfig(Struct):
    sandbox_mode: str | None = None
    default_permissions: str | None = None


class _ConfigRead(Struct):
    config: _CodexConfig = msgspec.field(default_factory=_CodexConfig)


class Threads:
    """Remembers on disk, so that a thread outlives our process and codex's."""

    def __init__(
        self, kept: ThreadStore, settings: ThreadSettings, patience: CodexTimeouts
    ) -> None:
        self._kept = kept
        self._settings = settings
        self._patience = patience

    async def open(self, server: AppServer, runtime_request: RuntimeRequest) -> OpenThread:
        """The session's own thread, one forked from it or from its parent's, or a new one.

        It is told what was said and it has not heard.
        """
        opened, (behind, asked) = await self._found(server, runtime_request)
        await self._inject_history(server, opened.id, behind)
        await self._let_go(server)
        before = len(runtime_request.messages) - len(asked)
        known = runtime_request.messages[before - 1].id if before else ""
        return structs.replace(opened, asked=asked, known=known)

    async def _found(
        self, server: AppServer, runtime_request: RuntimeRequest
    ) -> tuple[OpenThread, tuple[Sequence[Message], Sequence[User]]]:
        """With what it has not heard."""
        messages = runtime_request.messages
        kept = await self._kept.of(runtime_request.scope.session)
        unknown = messages_since(messages, kept.seen) if kept is not None else None
        if kept is not None and unknown is not None:
            if (opened := await self._resume_thread(server, runtime_request, kept)) is not None:
                return opened, unknown
        else:
            kept = kept or await self._kept.before(self._settings.parent)
            marks = kept.shared(messages) if kept is not None else ()
            unknown = messages_since(messages, marks[-1].message) if marks else None
            if kept is not None and unknown is not None:
                opened = await self._fork(server, runtime_request, kept.thread, marks)
                if opened is not None:
                    return opened, unknown
        return await self._begin(server, runtime_request), split_question(messages)

    async def _let_go(self, server: AppServer) -> None:
        """Codex keeps every thread in memory that somebody may still listen to."""
        quiet = [thread for thread in server.threads if not server.has_listener(thread)]
        for thread in quiet[: max(0, len(server.threads) - MAX_OPEN_THREADS)]:
            del server.threads[thread]
            server.spent.pop(thread, None)
            try:
                params: Json = {"threadId": thread}
                await server.call(protocol.THREAD_UNSUBSCRIBE, params, self._patience.thread)
            except ModelError as error:
                log.info("codex did not let go of thread %s: %s", thread, error)

    async def _resume_thread(
        self, server: AppServer, runtime_request: RuntimeRequest, kept: StoredThread
    ) -> OpenThread | None:
        """None when codex no longer has it."""
        thread = kept.thread
        if (known := server.threads.pop(thread, None)) is not None:
            server.threads[thread] = known
            opened = OpenThread(thread, *known)
        else:
            given = await self._load_thread(
                server, runtime_request, protocol.THREAD_RESUME, {"threadId": thread}
            )
            if given is None:
                return None
            opened = _open_thread(given, server, thread)
        return structs.replace(opened, marks=kept.marks, filled=kept.filled)

    async def _fork(
        self,
        server: AppServer,
        runtime_request: RuntimeRequest,
        thread: str,
        marks: Sequence[ForkPoint],
    ) -> OpenThread | None:
        """A thread of its own that knows what the other one knew then; None when it cannot be."""
        place: Json = {"threadId": thread, "lastTurnId": marks[-1].turn}
        given = await self._load_thread(server, runtime_request, protocol.THREAD_FORK, place)
        return None if given is None else structs.replace(_open_thread(given, server), marks=marks)

    async def _load_thread(
        self, server: AppServer, runtime_request: RuntimeRequest, method: str, place: Json
    ) -> Raw | None:
        """A thread that codex has on its disk; None when it has not."""
        params = await self._params(server, runtime_request)
        params |= {**place, "excludeTurns": True}
        try:
            return await server.call(method, params, self._patience.thread)
        except ModelError as error:
            if server.dead:
                raise
            log.info("codex has no thread for %s %s: %s", method, place, error)
            return None

    async def _begin(self, server: AppServer, runtime_request: RuntimeRequest) -> OpenThread:
        params = await self._params(server, runtime_request)
        if runtime_request.tools:
            params["dynamicTools"] = [_dynamic_tool(spec) for spec in runtime_request.tools]
        given = await server.call(protocol.THREAD_START, params, self._patience.thread)
        return _open_thread(given, server)

    async def _params(self, server: AppServer, runtime_request: RuntimeRequest) -> Json:
        settings = self._settings
        params: Json = {"cwd": runtime_request.scope.workspace, "approvalPolicy": APPROVAL_POLICY}
        config = dict(settings.config)
        if not await self._has_sandbox(server, runtime_request.scope.workspace):
            config |= permissions_config(settings.closed, settings.read_only)
        if config:
            params["config"] = config
        if runtime_request.system:
            params["developerInstructions"] = runtime_request.system
        if settings.model:
            params["model"] = settings.model
        return params

    async def _has_sandbox(self, server: AppServer, cwd: str) -> bool:
        """Whether the person chose one in codex's own settings."""
        try:
            given = await server.call(protocol.CONFIG_READ, {"cwd": cwd}, self._patience.thread)
            chosen = msgspec.json.decode(given, type=_ConfigRead).config
        except (ModelError, msgspec.DecodeError) as error:
            log.info("the settings of codex could not be read: %s", error)
            return False
        return bool(chosen.sandbox_mode or chosen.default_permissions)

    async def _inject_history(
        self, server: AppServer, thread: str, behind: Sequence[Message]
    ) -> None:
        items = [item for message in behind if (item := _history_item(message)) is not None]
        if items:
            params: Json = {"threadId": thread, "items": items}
            await server.call(protocol.THREAD_INJECT, params, self._patience.thread)


def permissions_config(closed: Sequence[str], read_only: Sequence[str] = ()) -> Json:
    """Commands write in the working folder, without network, and do not see what is closed.

    What is `read_only` in the working folder they only read.
    """
    files = dict.fromkeys(read_only, "read") | dict.fromkeys(closed, "deny")
    own: Json = {"extends": ":workspace", "filesystem": files}
    return {"default_permissions": PERMISSIONS_NAME, "permissions": {PERMISSIONS_NAME: own}}


def split_question(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[User]]:
    """What was said before, and what is to be answered now."""
    place = len(messages)
    while place and isinstance(messages[place - 1], User):
        place -= 1
    asked = [message for message in messages[place:] if isinstance(message, User)]
    return messages[:place], asked


def messages_since_question(messages: Sequence[Message]) -> Sequence[Message]:
    """What is to be answered now; of a turn that is taken up again, all since it was asked."""
    asked = split_question(messages)[1]
    place = len(messages) - len(asked)
    found = any(map(_is_question, asked))
    while place and not found:
        place -= 1
        found = _is_question(messages[place])
    return messages[place:]


def _is_question(message: Message) -> bool:
    return isinstance(message, User) and message.trust is not Trust.PROGRAM


def messages_since(
    messages: Sequence[Message], seen: str
) -> tuple[Sequence[Message], Sequence[User]] | None:
    """The same of what came after the last message that a thread knows; None if that is gone."""
    if not seen:
        return split_question(messages)
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].id == seen:
            said, asked = split_question(messages[place + 1 :])
            # A turn that is taken up again has nothing new to say.
            return said, asked or split_question(messages)[1][-1:]
    return None


def _history_item(message: Message) -> Json | None:
    """Words only: what tools did elsewhere is in the words about it."""
    text = text_of(message)
    if not text.strip():
        return None
    if isinstance(message, User):
        return _message_item("user", "input_text", text)
    if isinstance(message, Assistant):
        return _message_item("assistant", "output_text", text)
    return None


def _message_item(role: str, kind: str, text: str) -> Json:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _dynamic_tool(spec: ToolSpec) -> Json:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "inputSchema": spec.schema,
    }


def _open_thread(given: Raw, server: AppServer, known: str = "") -> OpenThread:
    try:
        read = msgspec.json.decode(given, type=_ThreadResponse)
    except (msgspec.DecodeError, RecursionError) as error:
        raise request_refused("a thread", f"its answer cannot be read ({error})") from error
    if not (thread := read.id or known):
        raise request_refused("a thread", "its answer names none")
    names_of_model = (read.model or "", read.model_provider or "")
    server.threads[thread] = names_of_model
    return OpenThread(thread, *names_of_model)


async def user_input(messages: Sequence[User], blobs: Blobs | None) -> list[Json]:
    """What people said, with pictures; of other files the names."""
    given: list[Json] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, Text) and part.text:
                given.append({"type": "text", "text": part.text})
            elif isinstance(part, Media):
                given.append(await _image_input(part, blobs))
    return given


async def _image_input(media: Media, blobs: Blobs | None) -> Json:
    try:
        data = await blobs.read(media.digest) if blobs is not None else b""
    except (StoreError, OSError) as error:
        log.warning("%s cannot be read and stays behind: %s", media.name or media.digest, error)
        data = b""
    if (kind := image_type(data)) is None:
        name = f"[attached: {media.name or 'a file'} ({media.media_type}), which stayed behind]"
        return {"type": "text", "text": name}
    url = f"data:{kind};base64,{b64encode(data).decode()}"
    return {"type": "image", "url": url}
