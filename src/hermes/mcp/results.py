"""Convert a server's answer to a tool result with text and images."""

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import mcp_types as types
import msgspec

from hermes.kit.file_types import MAX_IMAGE_BYTES, image_type
from hermes.kit.terminal_text import escape_controls
from hermes.kit.text import head_and_tail, one_line
from hermes.ports.blobs import Blobs
from hermes.ports.tool import ToolOutput
from hermes.schema.messages import Media, Text

MAX_TEXT = 100_000
"""Characters of all parts of one answer."""
MAX_SCANNED = 4 * MAX_TEXT
MAX_IMAGES = 8
NO_TEXT = "(The server answered without text.)"


class ResultReader:
    """`redact` removes our own secrets from answers."""

    def __init__(self, blobs: Blobs, redact: Callable[[str], str]) -> None:
        self._blobs = blobs
        self._redact = redact

    async def tool_output(self, result: types.CallToolResult) -> ToolOutput:
        texts = [*self._texts(result.content)]
        if _adds_content(result.structured_content, texts):
            texts.append(msgspec.json.encode(result.structured_content).decode())
        return await self._output(texts, _images(result.content), failed=bool(result.is_error))

    async def content_output(self, contents: Sequence[types.ContentBlock]) -> ToolOutput:
        return await self._output([*self._texts(contents)], _images(contents))

    async def _output(
        self, texts: Sequence[str], images: Sequence[str], *, failed: bool = False
    ) -> ToolOutput:
        shown: list[Media] = []
        notes: list[str] = []
        for data in images:
            media = await self._image(data) if len(shown) < MAX_IMAGES else None
            if media is None:
                notes.append("[an image that cannot be shown]")
            else:
                shown.append(media)
        text = "\n".join(filter(None, [*texts, *notes]))
        # Scanning all of a very long text for secrets would take too long.
        text = self._redact(escape_controls(head_and_tail(text, MAX_SCANNED)))
        text = head_and_tail(text, MAX_TEXT) or ("" if shown else NO_TEXT)
        parts = (*([Text(text)] if text else []), *shown)
        return ToolOutput(parts, shown=one_line(text, 200), failed=failed, foreign=True)

    async def _image(self, data: str) -> Media | None:
        if len(data) > MAX_IMAGE_BYTES * 4 // 3 + 4:
            return None
        try:
            image = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return None
        kind = image_type(image)
        return await self._blobs.put(image, kind) if kind else None

    def _texts(self, content: Sequence[types.ContentBlock]) -> Iterator[str]:
        for block in content:
            match block:
                case types.TextContent(text=text):
                    yield text
                case types.ImageContent():
                    pass
                case types.AudioContent(mime_type=kind, data=data):
                    yield f"[audio, {kind}, {len(data) * 3 // 4:,} bytes: not supported]"
                case types.ResourceLink(uri=uri, name=name):
                    yield f"[resource {name}: {uri}]"
                case types.EmbeddedResource(resource=resource):
                    yield _resource_text(resource)


def _resource_text(resource: types.TextResourceContents | types.BlobResourceContents) -> str:
    if isinstance(resource, types.TextResourceContents):
        return f"[resource {resource.uri}]\n{resource.text}"
    if _is_image(resource):
        return f"[resource {resource.uri}]"
    size = len(resource.blob) * 3 // 4
    return f"[resource {resource.uri}: {size:,} bytes of {resource.mime_type or 'unknown type'}]"


def _is_image(resource: types.BlobResourceContents) -> bool:
    return (resource.mime_type or "").startswith("image/")


def _images(content: Sequence[types.ContentBlock]) -> list[str]:
    found: list[str] = []
    for block in content:
        match block:
            case types.ImageContent(data=data):
                found.append(data)
            case types.EmbeddedResource(resource=types.BlobResourceContents() as blob) if _is_image(
                blob
            ):
                found.append(blob.blob)
            case _:
                pass
    return found


def _adds_content(structured: object, texts: Sequence[str]) -> bool:
    """Whether the structured content is new: many servers repeat it as text."""
    if structured is None:
        return False
    left = MAX_SCANNED
    for text in texts:
        left -= len(text)
        if left < 0:
            break
        try:
            same: object = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            continue
        if same in (structured, {"result": same}) or {"result": same} == structured:
            return False
    if not isinstance(structured, dict):
        return True
    fields = cast("dict[str, object]", structured)
    return [*fields] != ["result"] or fields["result"] not in texts
