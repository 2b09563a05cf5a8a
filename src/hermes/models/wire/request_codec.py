"""The base of the request codecs: tool encoding, optional fields and call ids."""

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from operator import is_
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from hermes.models.images import is_image
from hermes.models.providers import ModelProfile
from hermes.models.wire.stream import ImageUrlMap, WireStream
from hermes.ports.model import ModelRequest
from hermes.schema.messages import Assistant, Media, Message
from hermes.schema.tools import ToolSpec


class ToolEncoder:
    def __init__(self, encode_tool: Callable[[ToolSpec], dict[str, Any]]) -> None:
        self._write = encode_tool
        self._last: tuple[Sequence[ToolSpec], bytes] = ((), b"[]")

    def __call__(self, specs: Sequence[ToolSpec]) -> Raw:
        return Raw(self.encode(specs))

    def encode(self, specs: Sequence[ToolSpec]) -> bytes:
        """Encode the tools, reusing the last result for the same objects."""
        last, encoded = self._last
        if len(last) != len(specs) or not all(map(is_, last, specs)):
            encoded = msgspec.json.encode([self._write(spec) for spec in specs])
            self._last = tuple(specs), encoded
        return encoded


class OptionalFields:
    """Optional request fields, each with a pattern of the refusals it may cause."""

    def __init__(self, **complaints: str) -> None:
        self._complaints = complaints
        self._refused: set[str] = set()

    def drop_rejected(self, refusal: str) -> bool:
        """Return whether a refusal was about one of the fields, which is omitted from now on."""
        for name, complaint in self._complaints.items():
            if name not in self._refused and re.search(complaint, refusal, re.IGNORECASE):
                self._refused.add(name)
                return True
        return False

    def is_accepted(self, name: str) -> bool:
        return name not in self._refused


_PORTABLE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def portable_call_id(identity: str) -> str:
    """Hash ids of other providers that this one would reject; the result is deterministic."""
    if _PORTABLE_ID.fullmatch(identity):
        return identity
    return f"call_{sha256(identity.encode()).hexdigest()[:24]}"


class RequestCodec:
    """Encodes request bodies for one model of a provider.

    `complaints` maps optional fields to patterns of the refusals they may cause.
    """

    refusal_patterns: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self,
        model: str,
        provider: str,
        profile: ModelProfile,
        max_output: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = model
        self._provider = provider
        self._profile = profile
        self._max_output = max_output
        self._extra = dict(extra or {})
        self._optional = OptionalFields(**self.refusal_patterns)
        self._tool_encoder = ToolEncoder(self._tool)
        self._encoder = msgspec.json.Encoder()

    def body(self, request: ModelRequest, images: ImageUrlMap | None = None) -> bytes:
        raise NotImplementedError

    def body_pieces(
        self, request: ModelRequest, images: ImageUrlMap | None = None
    ) -> Sequence[bytes]:
        return [self.body(request, images)]

    def images_in(self, messages: Sequence[Message]) -> list[Media]:
        """Return the images that the body needs."""
        return [
            part
            for message in messages
            if not isinstance(message, Assistant)
            for part in message.parts
            if isinstance(part, Media) and self._sends_image(part)
        ]

    def drop_rejected(self, refusal: str) -> bool:
        """Return whether a refused field can be omitted; the next body is without it."""
        return self._optional.drop_rejected(refusal)

    def answer_received(self, request: ModelRequest, stream: WireStream, answer: Assistant) -> None:
        """Do nothing by default."""

    @staticmethod
    def _tool(spec: ToolSpec) -> dict[str, Any]:
        """Encode one tool."""
        raise NotImplementedError

    def _sends_image(self, media: Media) -> bool:
        return self._profile.images and is_image(media)

    def _owns(self, answer: Assistant) -> bool:
        """Return whether this model wrote the answer: only then can it read its signatures."""
        return (answer.provider, answer.model) == (self._provider, self._model)
