"""Encode a session as one lossless line of JSON."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from hermes.ports.store import Store
from hermes.schema.chat_api import WireMessage, WireTime, content_text, from_wire, to_utc, to_wire
from hermes.schema.errors import UsageError
from hermes.schema.messages import Assistant, Media
from hermes.schema.scope import OWNER
from hermes.schema.sessions import ModelUsage, Session, StoredMessage

FORMAT = "hermes-session/1"


class SessionExport(Struct, frozen=True):
    """A session with its messages, usage and files."""

    session: Session
    messages: Sequence[StoredMessage]
    usage: Sequence[ModelUsage] = ()
    files: Mapping[str, bytes] = {}
    """Attached files by digest, as far as they are still stored."""

    @property
    def digests(self) -> list[str]:
        """The digests of all attached files, without duplicates."""
        parts = (part for stored in self.messages for part in stored.message.parts)
        return list(dict.fromkeys(part.digest for part in parts if isinstance(part, Media)))


class ExportLine(Struct, frozen=True, kw_only=True):
    """The JSON document of a session; files are base64."""

    id: str
    started_at: WireTime
    format: str = ""
    source: str | None = None
    principal: str = OWNER
    key: str | None = None
    title: str | None = None
    model: str | None = None
    provider: str | None = None
    system: str | None = None
    parent: str | None = None
    cwd: str | None = None
    ended_at: WireTime | None = None
    end_reason: str | None = None
    effort: str = ""
    personality: str = ""
    messages: list[WireMessage] = []
    usage: list[ModelUsage] = []
    files: dict[str, bytes] = {}


class _OtherNames(Struct, frozen=True):
    """Names of the same fields in exports of other programs."""

    system_prompt: str | None = None
    parent_session_id: str | None = None
    session_key: str | None = None


_line_decoder = msgspec.json.Decoder(ExportLine)
_other_names_decoder = msgspec.json.Decoder(_OtherNames)


async def load_session(store: Store, name: str) -> SessionExport:
    """The session with this name, without its files. Raises `NotFound`."""
    archive = store.archive_for(OWNER)
    session = await archive.find(name)
    messages = await archive.messages(session.id)
    return SessionExport(session, messages, await archive.usage(session.id))


def encode(copy: SessionExport) -> bytes:
    """The line including its line break."""
    session = copy.session
    line = ExportLine(
        format=FORMAT,
        messages=[to_wire(stored) for stored in copy.messages],
        usage=list(copy.usage),
        files=dict(copy.files),
        **msgspec.structs.asdict(session),
    )
    return msgspec.json.encode(line) + b"\n"


def decode(data: bytes, number: int) -> SessionExport:
    """Raises `UsageError` with the line number if the line is not a session."""
    try:
        line = _line_decoder.decode(data)
        _check(line)
        session = _session(line, _other_names_decoder.decode(data))
        messages = [from_wire(message, session.started_at) for message in line.messages]
        _check_calls(messages)
    except (ValueError, OverflowError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise UsageError(
            f"Line {number} is not an exported session, so nothing was imported: {why}",
            hint="Import what `hermes sessions export` wrote.",
        ) from error
    return SessionExport(session, [stored for stored in messages if stored], line.usage, line.files)


def _check(line: ExportLine) -> None:
    if line.format not in {"", FORMAT}:
        raise ValueError(f"its format is {line.format!r}, this version reads {FORMAT!r}")
    if not line.id.strip() or len(line.id) > 200:
        raise ValueError("its id is empty or too long")


def _check_calls(messages: Iterable[StoredMessage | None]) -> None:
    """Arguments are stored as raw JSON, so invalid ones would corrupt the message."""
    for stored in messages:
        if stored is not None and isinstance(stored.message, Assistant):
            for call in stored.message.calls:
                msgspec.json.decode(call.args, type=dict[str, object])


def _session(line: ExportLine, other: _OtherNames) -> Session:
    prompts = (
        content_text(message.content) for message in line.messages if message.role == "system"
    )
    return Session(
        id=line.id,
        started_at=to_utc(line.started_at),
        source="import" if line.source is None else line.source,
        principal=line.principal,
        key=line.key or other.session_key or "",
        title=line.title or "",
        model=line.model or "",
        provider=line.provider or "",
        system=line.system or other.system_prompt or next(prompts, ""),
        parent=line.parent or other.parent_session_id,
        cwd=line.cwd or "",
        ended_at=None if line.ended_at is None else to_utc(line.ended_at),
        end_reason=line.end_reason or "",
        effort=line.effort,
        personality=line.personality,
    )
