"""The tools of a request in their written form, kept while they are the very same."""

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from operator import is_
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from hermes.models.model_profile import ModelProfile
from hermes.models.wire.images import is_image
from hermes.models.wire.stream import ImageUrlMap, WireStream
from hermes.ports.model import ModelRequest
from hermes.schema.messages import Assistant, Media, Message
from hermes.schema.tools import ToolSpec


class ToolEncoder:
    def __init__(self, write: Callable[[ToolSpec], dict[str, Any]]) -> None:
        self._write = write
        self._last: tuple[Sequence[ToolSpec], bytes] = ((), b"[]")

    def __call__(self, specs: Sequence[ToolSpec]) -> Raw:
        return Raw(self.written(specs))

    def written(self, specs: Sequence[ToolSpec]) -> bytes:
        """The very same bytes again for the very same tools."""
        last, written = self._last
        if len(last) != len(specs) or not all(map(is_, last, specs)):
            written = msgspec.json.encode([self._write(spec) for spec in specs])
            self._last = tuple(specs), written
        return written


class OptionalFields:
    """Each part by name, with what a server says when it does not take it."""

    def __init__(self, **complaints: str) -> None:
        self._complaints = complaints
        self._refused: set[str] = set()

    def learn(self, refusal: str) -> bool:
        """Whether it was about one of them; from now on that one is left out."""
        for name, complaint in self._complaints.items():
            if name not in self._refused and re.search(complaint, refusal, re.IGNORECASE):
                self._refused.add(name)
                return True
        return False

    def takes(self, name: str) -> bool:
        return name not in self._refused


_PORTABLE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def portable_call_id(identity: str) -> str:
    """Other providers' ids may hold what this one refuses; the same id becomes the same again."""
    if _PORTABLE_ID.fullmatch(identity):
        return identity
    return f"call_{sha256(identity.encode()).hexdigest()[:24]}"


class RequestCodec:
    """Writes the bodies for one model of one provider.

    `complaints` are what servers say of parts that can be left out, by their names.
    """

    complaints: ClassVar[Mapping[str, str]] = {}

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
        self._optional = OptionalFields(**self.complaints)
        self._offered = ToolEncoder(self._tool)
        self._encoder = msgspec.json.Encoder()

    def body(self, request: ModelRequest, images: ImageUrlMap | None = None) -> bytes:
        raise NotImplementedError

    def pieces(self, request: ModelRequest, images: ImageUrlMap | None = None) -> Sequence[bytes]:
        return [self.body(request, images)]

    def images_in(self, messages: Sequence[Message]) -> list[Media]:
        """The images whose bytes the body will need."""
        return [
            part
            for message in messages
            if not isinstance(message, Assistant)
            for part in message.parts
            if isinstance(part, Media) and self._shows(part)
        ]

    def learn(self, refusal: str) -> bool:
        """Whether what was refused can be left out; the next body is without it."""
        return self._optional.learn(refusal)

    def heard(self, request: ModelRequest, stream: WireStream, answer: Assistant) -> None:
        """Nothing of it is needed again."""

    @staticmethod
    def _tool(spec: ToolSpec) -> dict[str, Any]:
        """One tool as it is offered."""
        raise NotImplementedError

    def _shows(self, media: Media) -> bool:
        return self._profile.images and is_image(media)

    def _owns(self, answer: Assistant) -> bool:
        """Whether this very model gave it: only then it can read its seals again."""
        return (answer.provider, answer.model) == (self._provider, self._model)
