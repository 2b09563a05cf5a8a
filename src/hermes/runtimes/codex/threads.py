"""Open codex threads for sessions, and add the messages that they have missed."""

import logging
from base64 import b64encode
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw, Struct, structs

from hermes.kit.files import image_type
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.runtime import RuntimeRequest
from hermes.ports.store import Blobs
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.errors import request_rejected
from hermes.runtimes.codex.protocol import Json
from hermes.runtimes.codex.server import AppServer
from hermes.runtimes.codex.service import CodexTimeouts
from hermes.runtimes.codex.thread_store import ContextFill, ForkPoint, StoredThread, ThreadStore
from hermes.schema.errors import ModelError, StoreError
from hermes.schema.messages import Media, Message, Result, Text, Trust, User, text_of
from hermes.schema.tools import ToolSpec

log = logging.getLogger(__name__)

APPROVAL_POLICY = "on-request"
MAX_OPEN_THREADS = 32
"""Threads to keep open, those with the newest turns."""
PERMISSIONS_NAME = "hermes"
"""The name of our permission profile; it extends codex's `:workspace`."""


class ThreadSettings(Struct, frozen=True, kw_only=True):
    """Empty `model` and `effort` mean codex's defaults.

    `parent` is the session that this one is a branch of. A thread that fills the share `compact_at`
    of its window is compacted before its next turn; with 0 that is up to codex. `closed` are paths
    that its commands may not read, `read_only` those that they may not write, unless the user
    chose a sandbox in codex's own settings. `config` is passed to each thread, including MCP
    servers; no files of codex are changed.
    """

    model: str = ""
    effort: str = ""
    parent: str | None = None
    compact_at: float = 0.0
    closed: Sequence[str] = ()
    read_only: Sequence[str] = ()
    config: Mapping[str, object] = {}


class OpenThread(Struct, frozen=True):
    """A thread with the messages to answer; `last_known` is the last message before them."""

    id: str
    model: str = ""
    provider: str = ""
    questions: Sequence[User] = ()
    last_known: str = ""
    marks: Sequence[ForkPoint] = ()
    filled: ContextFill = ContextFill()

    def to_stored(self, seen: str, filled: ContextFill, turn: str = "") -> StoredThread:
        """Return what to store; `turn` is one that has ended."""
        kept = StoredThread(self.id, seen, self.marks, filled)
        return structs.replace(kept, marks=kept.with_fork_point(turn))


class _ThreadRef(Struct, rename="camel"):
    id: str | None = None
    session_id: str | None = None


class _ThreadResponse(Struct, rename="camel"):
    """Versions differ in where they return the thread id."""

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
    """Opens threads; the store lets them outlive both processes."""

    def __init__(
        self, store: ThreadStore, settings: ThreadSettings, timeouts: CodexTimeouts
    ) -> None:
        self._store = store
        self._settings = settings
        self._timeouts = timeouts

    async def open(self, server: AppServer, runtime_request: RuntimeRequest) -> OpenThread:
        """Open the session's thread, a fork of it or of its parent's, or a new one.

        Messages that it has missed are added.
        """
        opened, (missed, questions) = await self._open(server, runtime_request)
        await self._inject_history(server, opened.id, missed)
        await self._unsubscribe_idle(server)
        before = len(runtime_request.messages) - len(questions)
        known = runtime_request.messages[before - 1].id if before else ""
        return structs.replace(opened, questions=questions, last_known=known)

    async def _open(
        self, server: AppServer, runtime_request: RuntimeRequest
    ) -> tuple[OpenThread, tuple[Sequence[Message], Sequence[User]]]:
        """Return the thread with the messages it has missed."""
        messages = runtime_request.messages
        kept = await self._store.get(runtime_request.scope.session)
        unknown = messages_since(messages, kept.seen) if kept is not None else None
        if kept is not None and unknown is not None:
            if (opened := await self._resume_thread(server, runtime_request, kept)) is not None:
                return opened, unknown
        else:
            kept = kept or await self._store.nearest_ancestor(self._settings.parent)
            marks = kept.common_fork_points(messages) if kept is not None else ()
            unknown = messages_since(messages, marks[-1].message) if marks else None
            if kept is not None and unknown is not None:
                opened = await self._fork(server, runtime_request, kept.thread, marks)
                if opened is not None:
                    return opened, unknown
        return await self._begin(server, runtime_request), split_question(messages)

    async def _unsubscribe_idle(self, server: AppServer) -> None:
        """Codex keeps every subscribed thread in memory."""
        quiet = [thread for thread in server.threads if not server.has_listener(thread)]
        for thread in quiet[: max(0, len(server.threads) - MAX_OPEN_THREADS)]:
            del server.threads[thread]
            server.token_totals.pop(thread, None)
            try:
                params: Json = {"threadId": thread}
                await server.call(protocol.THREAD_UNSUBSCRIBE, params, self._timeouts.thread)
            except ModelError as error:
                log.info("codex did not unsubscribe thread %s: %s", thread, error)

    async def _resume_thread(
        self, server: AppServer, runtime_request: RuntimeRequest, kept: StoredThread
    ) -> OpenThread | None:
        """Return None if codex no longer has the thread."""
        thread = kept.thread
        if (known := server.threads.pop(thread, None)) is not None:
            server.threads[thread] = known
            opened = OpenThread(thread, *known)
        else:
            source: Json = {"threadId": thread}
            method = protocol.THREAD_RESUME
            response = await self._load_thread(server, runtime_request, method, source)
            if response is None:
                return None
            opened = _open_thread(response, server, thread)
        return structs.replace(opened, marks=kept.marks, filled=kept.filled)

    async def _fork(
        self,
        server: AppServer,
        runtime_request: RuntimeRequest,
        thread: str,
        marks: Sequence[ForkPoint],
    ) -> OpenThread | None:
        """Fork a thread at an earlier turn; return None if that fails."""
        source: Json = {"threadId": thread, "lastTurnId": marks[-1].turn}
        response = await self._load_thread(server, runtime_request, protocol.THREAD_FORK, source)
        if response is None:
            return None
        return structs.replace(_open_thread(response, server), marks=marks)

    async def _load_thread(
        self, server: AppServer, runtime_request: RuntimeRequest, method: str, source: Json
    ) -> Raw | None:
        """Load a thread from codex's disk; return None if it is missing."""
        params = await self._params(server, runtime_request)
        params |= {**source, "excludeTurns": True}
        try:
            return await server.call(method, params, self._timeouts.thread)
        except ModelError as error:
            if server.dead:
                raise
            log.info("codex has no thread for %s %s: %s", method, source, error)
            return None

    async def _begin(self, server: AppServer, runtime_request: RuntimeRequest) -> OpenThread:
        params = await self._params(server, runtime_request)
        if runtime_request.tools:
            params["dynamicTools"] = [_dynamic_tool(spec) for spec in runtime_request.tools]
        response = await server.call(protocol.THREAD_START, params, self._timeouts.thread)
        return _open_thread(response, server)

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
        """Return whether the user chose a sandbox in codex's own settings."""
        try:
            response = await server.call(protocol.CONFIG_READ, {"cwd": cwd}, self._timeouts.thread)
            chosen = msgspec.json.decode(response, type=_ConfigRead).config
        except (ModelError, *JSON_ERRORS) as error:
            log.info("cannot read codex's settings: %s", error)
            return False
        return bool(chosen.sandbox_mode or chosen.default_permissions)

    async def _inject_history(
        self, server: AppServer, thread: str, messages: Sequence[Message]
    ) -> None:
        items = [item for message in messages if (item := _history_item(message)) is not None]
        if items:
            params: Json = {"threadId": thread, "items": items}
            await server.call(protocol.THREAD_INJECT, params, self._timeouts.thread)


def permissions_config(closed: Sequence[str], read_only: Sequence[str] = ()) -> Json:
    """Let commands write in the working directory, without network or access to `closed` paths.

    `read_only` paths in the working directory cannot be written.
    """
    files = dict.fromkeys(read_only, "read") | dict.fromkeys(closed, "deny")
    own: Json = {"extends": ":workspace", "filesystem": files}
    return {"default_permissions": PERMISSIONS_NAME, "permissions": {PERMISSIONS_NAME: own}}


def split_question(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[User]]:
    """Split messages into the history and those to answer now."""
    questions: list[User] = []
    for message in reversed(messages):
        if not isinstance(message, User):
            break
        questions.insert(0, message)
    return messages[: len(messages) - len(questions)], questions


def messages_since_question(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages to answer; for a resumed turn, all since its question."""
    question = split_question(messages)[1]
    index = len(messages) - len(question)
    found = any(map(_is_question, question))
    while index and not found:
        index -= 1
        found = _is_question(messages[index])
    return messages[index:]


def _is_question(message: Message) -> bool:
    return isinstance(message, User) and message.trust is not Trust.PROGRAM


def messages_since(
    messages: Sequence[Message], seen: str
) -> tuple[Sequence[Message], Sequence[User]] | None:
    """Split the messages after the last one a thread knows; None if that one is gone."""
    if not seen:
        return split_question(messages)
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].id == seen:
            history, questions = split_question(messages[index + 1 :])
            # A resumed turn has no new messages.
            return history, questions or split_question(messages)[1][-1:]
    return None


def _history_item(message: Message) -> Json | None:
    """Text only: the answers describe what tools did elsewhere."""
    text = text_of(message)
    if isinstance(message, Result) or not text.strip():
        return None
    role, kind = ("user", "input") if isinstance(message, User) else ("assistant", "output")
    content = [{"type": f"{kind}_text", "text": text}]
    return {"type": "message", "role": role, "content": content}


def _dynamic_tool(spec: ToolSpec) -> Json:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "inputSchema": spec.schema,
    }


def _open_thread(response: Raw, server: AppServer, known: str = "") -> OpenThread:
    try:
        read = msgspec.json.decode(response, type=_ThreadResponse)
    except JSON_ERRORS as error:
        raise request_rejected("a thread", f"its response is invalid ({error})") from error
    if not (thread := read.id or known):
        raise request_rejected("a thread", "its response has no thread id")
    model = (read.model or "", read.model_provider or "")
    server.threads[thread] = model
    return OpenThread(thread, *model)


async def user_input(messages: Sequence[User], blobs: Blobs | None) -> list[Json]:
    """Convert messages to codex input: text, images, and the names of other files."""
    items: list[Json] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, Text) and part.text:
                items.append({"type": "text", "text": part.text})
            elif isinstance(part, Media):
                items.append(await _image_input(part, blobs))
    return items


async def _image_input(media: Media, blobs: Blobs | None) -> Json:
    try:
        data = await blobs.read(media.digest) if blobs is not None else b""
    except (StoreError, OSError) as error:
        log.warning("cannot read attachment %s: %s", media.name or media.digest, error)
        data = b""
    if (kind := image_type(data)) is None:
        name = f"[attached: {media.name or 'a file'} ({media.media_type}), which was not sent]"
        return {"type": "text", "text": name}
    return {"type": "image", "url": f"data:{kind};base64,{b64encode(data).decode()}"}
